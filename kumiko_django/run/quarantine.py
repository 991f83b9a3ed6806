"""The stall budget: a job that has lost too many workers is not run again (P30, user-needs 11).

Losing a worker is no fault of the job's and uses no attempt. But a job that kills its workers, for
want of memory, say, would go on killing them, with all that runs beside it.
"""

from __future__ import annotations

from kumiko_django.broker.delivery import Delivery
from kumiko_django.run.outcome import Quarantined


def quarantine(delivery: Delivery, budget: int) -> Quarantined | None:
    """The outcome of a job that may not be run again; None if it may.

    The queue's check exempts jobs of schedulers (bullmq-python 1.9), so the count is looked at
    here. A job that another BullMQ client's check has given up sooner has failed, like any other
    that the queue gives up.

    Args:
        delivery: The job.
        budget: How many workers it may lose.
    """
    if delivery.losses < budget:
        return None
    return Quarantined(
        f"its workers died, or lost touch with the queue, {delivery.losses} times while it ran. "
        "Find out why (memory, a crash in C code, a blocked machine) before it is run again."
    )

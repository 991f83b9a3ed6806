"""Running one job: from a delivery to its outcome, as a visible list of steps.

Enters: deliveries from a lane's consumer.
Leaves: events for the history, signals for the host, and a settlement for the queue.
"""

from __future__ import annotations

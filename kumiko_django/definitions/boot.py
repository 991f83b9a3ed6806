"""``run_on_boot`` and ``boot_gate``: what they may be, and what they may not be combined with.

Both start a job with an empty payload and without a tenant. A boot job is queued once per data set;
a gate runs inside the starting worker, before it consumes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kumiko_django.definitions.scheduling import check_empty_payload, check_tenant
from kumiko_django.exceptions import DefinitionError

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition

BootGate: TypeAlias = bool | Literal["one-at-a-time"]
"""True: every process that starts runs it, side by side; ``one-at-a-time``: one after the other."""
ONE_AT_A_TIME: Final = "one-at-a-time"
_TAKES_TURNS: Final = f"boot_gate={ONE_AT_A_TIME!r}"


def check_boot(definition: JobDefinition, where: str) -> None:
    """Check the two options of a definition whose other options are right.

    Raises:
        DefinitionError: A value or combination is wrong.
    """
    if not isinstance(definition.run_on_boot, bool):
        raise DefinitionError(
            f"{where}: run_on_boot must be True or False, not {definition.run_on_boot!r}."
        )
    gate: object = definition.boot_gate
    if not isinstance(gate, bool) and gate != ONE_AT_A_TIME:
        raise DefinitionError(
            f"{where}: boot_gate must be True, False or {ONE_AT_A_TIME!r}, not {gate!r}."
        )
    if gate:
        _refuse_combinations(definition, where)
    for option, given in (("boot_gate", gate), ("run_on_boot", definition.run_on_boot)):
        if given:
            check_tenant(definition, where, option)
            check_empty_payload(definition, where, option)


def _refuse_combinations(definition: JobDefinition, where: str) -> None:
    is_sequential = definition.concurrency == "sequential"
    combinations = (
        # B114, P61: it would run once, for no tenant, and look as if it had run for each.
        (definition.per_tenant, "per_tenant=True", "a gate runs once, not for each tenant"),
        # B113: a gate cannot wait in the queue for its turn, and must not pass without having run.
        (is_sequential, "concurrency='sequential'", f"a gate takes turns with {_TAKES_TURNS}"),
    )
    for is_given, option, why in combinations:
        if is_given:
            raise DefinitionError(
                f"{where}: boot_gate and {option} exclude each other: {why}. Drop one."
            )

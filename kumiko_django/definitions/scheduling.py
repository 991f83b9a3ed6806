"""What holds for jobs that nobody dispatches: those that a clock starts.

The rules stand here, each in one function, so that what comes to them is put in one place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pydantic import ValidationError

from kumiko_django.conf import get_settings
from kumiko_django.definitions.triggers import Cron, Every, Scheduled, Trigger
from kumiko_django.exceptions import DefinitionError, PayloadError, SettingsError

if TYPE_CHECKING:
    from kumiko_django.definitions.job import JobDefinition

CatchUp: TypeAlias = Literal["one", "none", "all"]
CATCH_UPS: Final[tuple[CatchUp, ...]] = ("one", "none", "all")
DEFAULT_CATCH_UP: Final[CatchUp] = "one"


def scheduled_trigger(definition: JobDefinition) -> Scheduled | None:
    """The definition's trigger, if it is a clock's."""
    trigger = definition.trigger
    return trigger if isinstance(trigger, Cron | Every) else None


def default_concurrency(
    trigger: Trigger, catch_up: CatchUp | None
) -> Literal["skip", "sequential", "parallel"]:
    """The mode of a definition that names none.

    A slow scheduled job must not pile up (P52); unless every occurrence shall run (P53): then they
    wait for one another.
    """
    if not isinstance(trigger, Cron | Every):
        return "parallel"
    return "sequential" if catch_up == "all" else "skip"


def belongs_to_no_single_tenant(definition: JobDefinition) -> bool:
    """Whether a job can begin without a tenant: what starts it by itself knows none."""
    return definition.per_tenant or definition.tenant == "system"


def check_schedule(definition: JobDefinition, where: str) -> None:
    """Refuse what does not go together with the trigger (P10).

    Raises:
        DefinitionError: ``catch_up`` is unknown or has no effect, or the job would begin without
            the tenant that it needs (user-needs 24).
    """
    catch_up = definition.catch_up
    if catch_up is not None and catch_up not in CATCH_UPS:
        raise DefinitionError(
            f"{where}: catch_up={catch_up!r} is unknown; use {' or '.join(map(repr, CATCH_UPS))}."
        )
    if scheduled_trigger(definition) is None:
        if catch_up is not None:
            raise DefinitionError(
                f"{where}: catch_up= has no effect without trigger=Cron(...) or Every(...). "
                "Drop it."
            )
        return
    if catch_up == "all":
        _refuse_what_drops(definition, where)
    starter = type(definition.trigger).__name__
    check_tenant(definition, where, starter)
    check_empty_payload(definition, where, starter)


def _refuse_what_drops(definition: JobDefinition, where: str) -> None:
    """Refuse what would drop occurrences where all of them shall run (P10, P53)."""
    mode, cap = definition.concurrency, definition.max_per_tenant
    if mode not in ("sequential", "parallel"):
        raise DefinitionError(
            f"{where}: catch_up='all' and concurrency={mode!r} exclude each other: the mode drops "
            "some of the occurrences. Use 'sequential' (the default with 'all') or 'parallel', or "
            "drop catch_up=."
        )
    if cap is not None and not definition.per_tenant:
        raise DefinitionError(
            f"{where}: catch_up='all' and max_per_tenant={cap!r} exclude each other: occurrences "
            "over the cap are skipped. Drop one."
        )


def check_empty_payload(definition: JobDefinition, where: str, starter: str) -> None:
    """Refuse a schema that does not take the empty payload of a job that nobody dispatches.

    Args:
        definition: The job, with its schema.
        where: Names it in the message.
        starter: What starts it, e.g. ``Cron``.

    Raises:
        DefinitionError: Every run would fail.
    """
    if definition.payload_schema is None:
        return
    try:
        definition.payload_schema.load({})
    except PayloadError as error:
        if not isinstance(error.__cause__, ValidationError):
            return  # a validator of the host's broke: what it asks for may be there by then
        raise DefinitionError(
            f"{where}: {starter} starts the job with an empty payload, which its schema refuses: "
            f"{error} Give the fields defaults."
        ) from error
    except DefinitionError:
        return  # it names what is defined further down; the run will tell


def check_tenant(definition: JobDefinition, where: str, starter: str) -> None:
    """Refuse a job that would begin without the tenant that it needs.

    Args:
        definition: The job.
        where: Names it in the message.
        starter: What starts it, e.g. ``Cron``.

    Raises:
        DefinitionError: Tenancy is on, and the job needs a tenant.
    """
    try:
        has_tenants = get_settings().tenancy_enabled
    except SettingsError:
        return  # the system checks say what is wrong with them
    if has_tenants and not belongs_to_no_single_tenant(definition):
        raise DefinitionError(
            f"{where}: a job that {starter} starts has no tenant, and this one needs one. Give "
            "tenant='system', or per_tenant=True to run it for each."
        )

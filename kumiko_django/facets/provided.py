"""The facets of one run: each made when first asked for, once, for the run's tenant."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.utils import timezone

from kumiko_django.conf import Settings, get_settings
from kumiko_django.exceptions import FacetMissing, SettingsError
from kumiko_django.facets import config, derivatives, files, notify, secrets, tz
from kumiko_django.facets.request import SYSTEM_USER_ID, FacetRequest
from kumiko_django.tenancy.scope import run_scope
from kumiko_django.types import ambient

_MAKERS: Final[dict[str, Callable[[FacetRequest, Settings], Any]]] = {
    "files": files.make,
    "derivatives": derivatives.make,
    "notify": notify.make,
    "config": config.make,
    "secrets": secrets.make,
}


class Facets:
    """Makes the facets of a run; safe to use from its tasks and threads.

    Every run has one, most use none: what is needed to make some is made when the first is.
    """

    __slots__ = ("_being_made", "_facts", "_lock", "_made", "_zone", "tenant_id")

    def __init__(
        self,
        tenant_id: str,
        job_name: str,
        triggered_by_id: str | None = None,
        correlation_id: str = "",
    ) -> None:
        """Note for whom; nothing is made yet."""
        self.tenant_id = tenant_id
        self._facts = (job_name, SYSTEM_USER_ID, triggered_by_id, correlation_id)
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}
        self._being_made: list[str] | None = None
        self._zone: dt.tzinfo | None = None

    def get(self, name: str) -> Any:
        """A facet by its name.

        Raises:
            FacetMissing: The settings bring none.
            SettingsError: They bring none that can be made.
        """
        if name in self._made:
            return self._made[name]
        with self._lock:
            if name not in self._made:
                self._made[name] = self._make(name)
            return self._made[name]

    @property
    def tz(self) -> dt.tzinfo:
        """The tenant's time zone; asked for once."""
        if self._zone is None:
            with self._lock, ambient.entered({ambient.scope: run_scope(self.tenant_id)}):
                self._zone = self._zone or tz.zone_of(self.tenant_id)
        return self._zone

    def activate_time_zone(self) -> None:
        """Make the tenant's time zone the current one of this context, if it has one."""
        if tz.has_own(self.tenant_id):
            timezone.activate(self.tz)

    async def aactivate_time_zone(self) -> None:
        """The same on an event loop: the settings' callable may ask the database."""
        if tz.has_own(self.tenant_id):
            timezone.activate(await sync_to_async(lambda: self.tz)())

    def _make(self, name: str) -> Any:
        setting = name.upper()
        being_made = self._being_made = self._being_made or []
        if name in being_made:
            raise SettingsError(
                f'KUMIKO["{setting}"] needs ctx.{name} itself, by way of '
                f"{' and '.join(being_made)}."
            )
        being_made.append(name)
        try:
            # Whatever scope the handler is in at the moment (P104).
            with ambient.entered({ambient.scope: run_scope(self.tenant_id)}):
                request = FacetRequest(self.tenant_id, *self._facts, self.get)
                made = _MAKERS[name](request, get_settings())
        except FacetMissing:
            raise
        except SynchronousOnlyOperation as error:
            raise SynchronousOnlyOperation(
                f'ctx.{name} is made by KUMIKO["{setting}"], which asks the database. In an async '
                f'handler: {name} = await sync_to_async(getattr)(ctx, "{name}").'
            ) from error
        except AttributeError as error:
            # It would look as if there were no such facet.
            raise SettingsError(f'KUMIKO["{setting}"] cannot make ctx.{name}: {error}.') from error
        finally:
            being_made.remove(name)
        if made is None:
            raise FacetMissing(
                f'{self._facts[0]}: there is no ctx.{name} here. Set KUMIKO["{setting}"] '
                "to what brings it.",
                name=name,
            )
        return made

"""Every error that kumiko_django raises on purpose, below one root.

Messages name what is wrong, where, and what to type instead. Errors that only steer the flow of a
run live in the room that uses them.
"""

from __future__ import annotations

from django.core import exceptions as of_django


class KumikoError(Exception):
    """Root of all errors of this package; catch it to catch them all.

    Raised itself only where jobs are used before Django is set up.

    Attributes:
        message_key: What the tenant is told instead of the job's own key, where the job has a
            ``tenant_visible_failure`` (B184): a key of the host's translations, never a text.
            Set it on a class of your own, or give it to :class:`Unrecoverable`.
    """

    message_key: str = ""


class DefinitionError(KumikoError):
    """A job definition is wrong: a bad option, name or combination, or a name taken twice."""


class SettingsError(KumikoError):
    """The ``KUMIKO`` setting is wrong: an unknown key, a bad value, or something missing."""


class UnknownJobError(KumikoError, LookupError):
    """No registered job has this name or alias."""


class PayloadError(KumikoError, ValueError):
    """A payload cannot travel: not JSON, a reserved key, or refused by the job's schema.

    Attributes:
        path: Where in the payload the trouble sits, e.g. ``payload.items[3].price``.
    """

    def __init__(self, message: str, *, path: str = "payload") -> None:
        super().__init__(message)
        self.path = path


class PayloadTooLarge(PayloadError):
    """The encoded job data is larger than ``KUMIKO["MAX_PAYLOAD_BYTES"]``."""


class TenantRequired(KumikoError):
    """The job needs a tenant and neither the caller nor the ambient scope names one (P68)."""


class ScopeError(KumikoError):
    """A scope is used wrongly: a bad tenant id, or work for another tenant than the ambient one."""


class UnknownHandlerError(KumikoError, LookupError):
    """No registered write or query handler has this name (B166)."""


class AccessDenied(KumikoError, of_django.PermissionDenied):
    """Whoever acts may not do this: a role or a grant is missing, which the message names (P103).

    Django answers a request in which it is raised with 403.
    """


class BrokerUnavailable(KumikoError):
    """Redis did not take the work in time: refused, silent, unknown host or wrong credentials.

    The message names the setting that the address comes from. Passwords never appear in it.
    """


class Unrecoverable(KumikoError):
    """Raised by a handler to fail its job for good, whatever retries remain (B086)."""

    def __init__(self, *arguments: object, message_key: str = "") -> None:
        super().__init__(*arguments)
        if message_key:
            self.message_key = message_key


class FacetMissing(KumikoError, AttributeError):
    """A handler asks its context for something that is not there, so ``hasattr`` tells (B169).

    The message names the setting or the grant that brings it.
    """

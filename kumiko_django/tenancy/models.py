"""``TenantModel`` and ``TenantMixin``: models whose rows belong to tenants."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from django.core.exceptions import FieldDoesNotExist
from django.db import models
from django.db.models.signals import class_prepared
from django.utils.translation import gettext_lazy as _

from kumiko_django.exceptions import DefinitionError
from kumiko_django.tenancy import rules
from kumiko_django.tenancy.access import column_value, current_access
from kumiko_django.tenancy.install import install, refuse_foreign
from kumiko_django.tenancy.managers import ScopedManager
from kumiko_django.tenancy.scope import MAX_TENANT_ID_LENGTH

_KINDS = (
    models.CharField,
    models.TextField,
    models.IntegerField,
    models.UUIDField,
    models.ForeignKey,
)

install()


class TenantMixin(models.Model):
    """A model whose rows belong to tenants by a column of your own.

    An inner class names it; it is text, a whole number, a UUID, or a foreign key to a model whose
    key is one of these::

        class Invoice(TenantMixin):
            organisation = models.ForeignKey(Organisation, on_delete=models.PROTECT)

            class Tenant:
                field = "organisation"
    """

    objects: ClassVar[ScopedManager[Self]] = ScopedManager()

    class Meta:
        abstract = True

    def save_base(self, *args: Any, **kwargs: Any) -> None:
        """Save the row for the tenant in scope.

        Raises:
            ScopeError: The row is another tenant's, or there is no scope.
        """
        field = _tenant_field(type(self))
        if field is not None and self._state.adding and self.__dict__.get(field.attname) is None:
            access = current_access(type(self), "insert")
            if not access.lifted.global_writes:
                setattr(self, field.attname, column_value(field, access.tenant_id))
        else:
            refuse_foreign(self, "insert" if self._state.adding else "update")
        super().save_base(*args, **kwargs)


class TenantModel(TenantMixin):
    """A model whose rows belong to tenants by the column ``tenant_id``.

    It is stamped with the tenant in scope; rows that belong to none, which every tenant may read,
    have NULL there (or ``SYSTEM_TENANT_VALUE``).
    """

    tenant_id = models.CharField(
        _("tenant"),
        max_length=MAX_TENANT_ID_LENGTH,
        null=True,
        blank=True,
        editable=False,
        db_index=True,
    )

    class Meta:
        abstract = True

    class Tenant:
        field = "tenant_id"


def _tenant_field(model: type[models.Model]) -> Any:
    name = getattr(getattr(model, "Tenant", None), "field", None)
    return None if name is None else model._meta.get_field(name)


def _prepare(sender: type[models.Model], **_: Any) -> None:
    """Register a concrete tenant model, once Django has made the class."""
    if not issubclass(sender, TenantMixin) or sender._meta.proxy:
        return
    label = sender._meta.label
    for parent in sender._meta.parents:
        if not issubclass(parent, TenantMixin):
            raise DefinitionError(
                f"{label} is a tenant model, and its parent {parent._meta.label} is not: the "
                "columns in the parent's table would belong to nobody. Make the parent abstract, "
                "or a tenant model itself."
            )
    try:
        field = _tenant_field(sender)
    except FieldDoesNotExist as error:
        reason = str(error).rstrip(".")
        raise DefinitionError(
            f"{label}.Tenant names a field that is not there: {reason}."
        ) from None
    if field is None:
        raise DefinitionError(
            f"{label} does not say which column holds its tenant. Add an inner "
            'class Tenant: field = "organisation", or derive it from TenantModel.'
        )
    if not isinstance(field, _KINDS):
        raise DefinitionError(
            f"{label}.{field.name} is a {type(field).__name__}; a tenant column is text, a whole "
            "number, a UUID or a foreign key."
        )
    rules.register(sender, field)


class_prepared.connect(_prepare, dispatch_uid="kumiko_django.tenancy.models.prepare")

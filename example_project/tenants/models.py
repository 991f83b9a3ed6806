"""The tenants."""

from __future__ import annotations

import hashlib
import secrets

from django.db import models
from django.utils.crypto import constant_time_compare


class TenantQuerySet(models.QuerySet["Tenant"]):
    """The vocabulary of tenants."""

    def active(self) -> TenantQuerySet:
        return self.filter(is_active=True)


class Tenant(models.Model):
    """A company that works with this service. Its id stands in URLs, jobs and run history."""

    id = models.SlugField(primary_key=True, max_length=40)
    name = models.CharField(max_length=100)
    is_active = models.BooleanField(default=True)
    api_key_digest = models.CharField(max_length=64, blank=True, editable=False)

    objects = TenantQuerySet.as_manager()

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return self.name

    def renew_api_key(self) -> str:
        """Give the tenant a new key and return it; only its digest is stored."""
        key = secrets.token_urlsafe(24)
        self.api_key_digest = _digest(key)
        self.save(update_fields=["api_key_digest"])
        return key

    def accepts_api_key(self, key: str) -> bool:
        return bool(self.api_key_digest) and constant_time_compare(
            self.api_key_digest, _digest(key)
        )


def active_tenant_ids() -> list[str]:
    """``KUMIKO["TENANTS"]``."""
    return list(Tenant.objects.active().values_list("pk", flat=True))


def _digest(key: str) -> str:
    # A fast digest is fine here: the key is long and random, not a password that one could guess.
    return hashlib.sha256(key.encode()).hexdigest()

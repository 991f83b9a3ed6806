"""A small invoicing service for several tenants: orders, invoices, reminders."""

from __future__ import annotations

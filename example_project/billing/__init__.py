"""Invoices for orders, their payment, and reminders for those that are overdue."""

from __future__ import annotations

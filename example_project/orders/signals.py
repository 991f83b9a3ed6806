"""What other apps may listen to."""

from __future__ import annotations

from django.dispatch import Signal

orders_imported = Signal()
"""A file's orders are in the database. Keyword argument: ``order_import``.

Sent inside the transaction that ends the import, so what a receiver writes or dispatches happens
together with it or not at all.
"""

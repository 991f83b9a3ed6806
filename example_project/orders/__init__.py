"""Customers and their orders: one by one, or thousands from a CSV file."""

from __future__ import annotations

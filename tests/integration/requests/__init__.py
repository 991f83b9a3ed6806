"""Requests through Django's own handlers, sync and async, with the middleware in place."""

from __future__ import annotations

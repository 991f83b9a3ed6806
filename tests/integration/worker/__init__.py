"""A worker in this process: its steps, spied on."""

from __future__ import annotations

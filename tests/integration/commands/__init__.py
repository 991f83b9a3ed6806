"""The commands for looking at jobs and for sending one."""

from __future__ import annotations

"""Events and the jobs that they start, with a real queue and a real database."""

from __future__ import annotations

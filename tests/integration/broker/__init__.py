"""The broker room, producer side, against real servers: reachable, unreachable and strange ones."""

from __future__ import annotations

"""The broker room, producer side: addresses, names, envelopes and options, without a Redis."""

from __future__ import annotations

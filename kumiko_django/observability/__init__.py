"""What the host's operators see: one meter, one tracer, and the context of log records.

Enters: ``METER`` and ``TRACER`` of the settings, what is ambient.
Leaves: metrics and spans for whatever the host has chosen; fields on its log records.
"""

from __future__ import annotations

from kumiko_django.observability.memory import InMemoryMeter, InMemoryTracer
from kumiko_django.observability.meter import Meter
from kumiko_django.observability.tracer import Span, Tracer
from kumiko_django.types.trace import TraceParent

__all__ = ["InMemoryMeter", "InMemoryTracer", "Meter", "Span", "TraceParent", "Tracer"]

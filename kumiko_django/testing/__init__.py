"""What tests of an application use.

In: the queues of the settings, with whatever a test has dispatched. Out: the runs of it, and the
errors of its handlers; or nothing, where a test clears them. Imported by tests only.
"""

from __future__ import annotations

from kumiko_django.testing.clear import aclear, clear
from kumiko_django.testing.drain import adrain, drain

__all__ = ["aclear", "adrain", "clear", "drain"]

"""What tests of an application use.

In: the queues of the settings, with whatever a test has dispatched. Out: the runs of it, and the
errors of its handlers. Imported by tests only.
"""

from __future__ import annotations

from kumiko_django.testing.drain import adrain, drain

__all__ = ["adrain", "drain"]

"""Putting jobs on their lanes: one door for every entry point, sync and async (user-needs 3).

Enters: a job, a payload and what the caller says about it; the ambient scope.
Leaves: jobs in the queue, at once or after the commit, and a ``Dispatched`` for each.
"""

from __future__ import annotations

from kumiko_django.definitions.decorator import dispatcher_port
from kumiko_django.dispatching import dispatcher

dispatcher_port.dispatcher = dispatcher

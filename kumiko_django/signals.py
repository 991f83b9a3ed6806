"""Django signals that tell the host project what happens to its jobs (B219-B223).

The sender is the :class:`~kumiko_django.definitions.job.JobDefinition`. Receivers are called
robustly, in a thread (so they may use the ORM) and inside the run's scope, after the history has
its record; an exception in a receiver is logged and can never change the outcome of a run (P24,
P25). ``run`` is a frozen :class:`~kumiko_django.types.runinfo.RunInfo`.
"""

from __future__ import annotations

from django.dispatch import Signal

job_started = Signal()
"""A run began, or goes on after a deferral. Keyword arguments: ``run``."""

job_completed = Signal()
"""A run ended well. Keyword arguments: ``run``, ``outcome``, ``logs`` (a tuple of log entries)."""

job_failed = Signal()
"""An attempt failed, or the job was quarantined; ``run.final`` tells whether it was the last one.

Keyword arguments: ``run``, ``outcome``, ``logs``.
"""

job_skipped = Signal()
"""A job was not let in, at dispatch or by a worker, or its handler need not be called.

Keyword arguments: ``run``, ``reason``; from a worker also ``outcome``, ``logs``.
"""

job_deferred = Signal()
"""A run was put off by its handler and goes on later (B199).

Keyword arguments: ``run``, ``outcome`` (``delay_ms``, ``resume_at``, ``count``), ``logs``.
"""

dispatch_failed = Signal()
"""A dispatch could not be sent after its commit, or one of the jobs of an event not be queued.

Keyword arguments: ``job_id``, ``tenant_id``, ``payload`` (a dict) and ``error``. The request that
dispatched is long past the point where it could react, and a Django signal that announces an event
does not look at the answer; this is the place to raise the alarm.
"""

escape_hatch_used = Signal()
"""An escape hatch was used or refused, and that is on record now; sent once for each record.

Keyword arguments: ``use`` (a frozen :class:`~kumiko_django.types.hatches.HatchUse`) and ``count``,
how often it was used until then. The sender is None outside of jobs. It is sent by the thread that
writes the records, in the scope of the tenant: be quick.
"""

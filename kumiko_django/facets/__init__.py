"""What a handler finds on its context besides facts: files, config, notify, and their like.

Enters: a run's tenant, user and job; the factories of the settings.
Leaves: one object for each facet, made on first use, for that tenant alone.
"""

from __future__ import annotations

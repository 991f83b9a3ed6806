"""What a job is: its definition, the decorator that makes one, and the registry of all of them.

Enters: functions and options from the host's ``jobs.py`` modules.
Leaves: frozen, validated ``JobDefinition`` objects, found by name or alias.
"""

from __future__ import annotations

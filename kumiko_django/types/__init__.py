"""Small shared types that every room may use and that use no room.

Enters: nothing. Leaves: ids, JSON conversion, the ambient ContextVars, secret scrubbing and the
frozen facts about a run that signals carry.
"""

from __future__ import annotations

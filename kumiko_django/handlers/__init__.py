"""Named write and query handlers: what users and jobs may do, by roles, behind one door.

Enters: a handler's name, a payload, and who acts: a user, the system, nobody known.
Leaves: the result as JSON; after a write's commit an event of the handler's name.
"""

from __future__ import annotations

from kumiko_django.handlers.calling import aquery, awrite, query, write
from kumiko_django.handlers.context import HandlerContext
from kumiko_django.handlers.principals import Principal, system_user

__all__ = ["HandlerContext", "Principal", "aquery", "awrite", "query", "system_user", "write"]

"""Who work is done for: the ambient scope, and the rule that gives every job its tenant.

Enters: tenant ids from callers, ``TENANTS`` from the settings.
Leaves: a scope that is set and put back exactly, and one resolved tenant id per job.
"""

from __future__ import annotations

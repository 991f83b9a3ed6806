"""Events: things that happen, and the jobs that they start (B115-B123).

Enters: an event's name, payload and id, from a caller or from a Django signal.
Leaves: a dispatch for each job whose trigger listens to it, and what each of them came to.
"""

from __future__ import annotations

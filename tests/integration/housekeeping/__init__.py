"""What one worker of all does now and then: leases, roll-up, pruning."""

from __future__ import annotations

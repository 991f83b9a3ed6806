"""The only room that knows bullmq and redis: queues, what travels in them, and who fetches it.

Enters: new jobs as envelopes with options; a function that runs deliveries.
Leaves: jobs in the lane's queue, in BullMQ's format; deliveries, and their settlement in the queue.
"""

from __future__ import annotations

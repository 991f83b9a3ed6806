"""Telling the queues which records have reached the history, many at once."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from kumiko_django.broker.consumer import Consumer
from kumiko_django.broker.delivery import Delivery
from kumiko_django.broker.records import record_field
from kumiko_django.definitions.options import Lane


class WrittenRecords:
    """Collects what one commit of the history has written. Used on the event loop."""

    def __init__(self, consumers: Mapping[Lane, Consumer]) -> None:
        self._consumers = consumers
        self._fields: dict[Lane, list[str]] = defaultdict(list)

    def note(self, delivery: Delivery) -> None:
        """The record of a delivery's run is in the history."""
        if not self._fields:
            asyncio.get_running_loop().call_soon(self.tell)
        self._fields[delivery.lane].append(record_field(delivery))

    def tell(self) -> None:
        """Have the queues drop what they keep of them; there may be room for new runs, too."""
        fields, self._fields = self._fields, defaultdict(list)
        for lane, written in fields.items():
            self._consumers[lane].forget(written)
        for consumer in self._consumers.values():
            consumer.look()

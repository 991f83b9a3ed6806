"""The one row that a handler inserts."""

from __future__ import annotations

from django.db import models


class Row(models.Model):
    """What the insert jobs of every side write."""

    number = models.IntegerField()
    name = models.CharField(max_length=100)
    amount = models.IntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.number} {self.name}"

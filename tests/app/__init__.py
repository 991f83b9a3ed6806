"""The Django app whose jobs the tests run (label ``testapp``)."""

from __future__ import annotations

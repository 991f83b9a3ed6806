"""Scopes, and the rule that gives a job its tenant."""

from __future__ import annotations

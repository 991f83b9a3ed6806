"""Who the customers of this service are, and how a request gets its tenant."""

from __future__ import annotations

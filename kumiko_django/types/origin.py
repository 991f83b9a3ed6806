"""The write origin: who started a chain of work, carried from request to job to job (B170-B172)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

Root = Literal["anonymous", "user", "system"]


class MalformedOrigin(ValueError):
    """A stored write origin cannot be read; the run is refused rather than guessed (B133)."""


@dataclass(frozen=True, slots=True)
class WriteOrigin:
    """Who stands at the root of a chain of work, and the last job that it passed through."""

    root: Root
    via_job: str | None = None

    @property
    def is_gated(self) -> bool:
        """Whether personal data is out of reach for this chain (B170)."""
        return self.root == "anonymous"

    def via(self, job_name: str) -> WriteOrigin:
        """The same origin as seen from inside ``job_name``."""
        return replace(self, via_job=job_name)

    def to_wire(self) -> dict[str, str]:
        """The form that travels as ``_writeOrigin``."""
        wire = {"root": str(self.root)}
        if self.via_job is not None:
            wire["viaJob"] = self.via_job
        return wire

    @classmethod
    def from_wire(cls, value: object) -> WriteOrigin:
        """Read a stored origin.

        Raises:
            MalformedOrigin: It is no object with a known root and, if any, a text ``viaJob``.
        """
        if not isinstance(value, dict):
            raise MalformedOrigin(f"expected an object, found {type(value).__name__}")
        root: Any = value.get("root")
        via_job = value.get("viaJob")
        if root not in get_args(Root):
            raise MalformedOrigin(f"unknown root {root!r}")
        if via_job is not None and not isinstance(via_job, str):
            raise MalformedOrigin("viaJob is not text")
        return cls(root=root, via_job=via_job)

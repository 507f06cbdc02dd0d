"""What a service asks of an API server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Write:
    """One request that may change something."""

    method: str
    path: str
    body: bytes

    @property
    def kind(self) -> str:
        """The resource, with its subresource if it has one: `pods/binding`, `events`."""
        parts = self.path.strip("/").split("/")
        parts = parts[2:] if parts[0] == "api" else parts[3:]
        if parts[0] == "namespaces" and len(parts) > 2:
            parts = parts[2:]
        return "/".join(parts[:1] + parts[2:])

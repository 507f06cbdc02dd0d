"""The API server's own record of who asked for what."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

ACCOUNTS = "system:serviceaccount:stromboli-system:"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts:stromboli-system"]},
        {"level": "Metadata", "verbs": ["create", "delete", "patch", "update"], "users": ["admin", "kwok"]},
    ],
}


@dataclass(frozen=True, slots=True)
class Write:
    """A request that may have changed the cluster, and when the API server took it."""

    path: str
    received: datetime


class Audit:
    """Bindings, and all that the chart's ServiceAccount asked for."""

    def __init__(self, directory: Path) -> None:
        self._policy = directory / "audit-policy.json"
        self._log = directory / "audit.log"
        self._policy.write_text(json.dumps(POLICY))

    @property
    def apiserver_args(self) -> list[str]:
        # Of one file: half an hour of faults fills 300 MB.
        sizes = "--audit-log-maxsize=4096"
        return [f"--audit-policy-file={self._policy}", f"--audit-log-path={self._log}", sizes]

    def bindings(self, namespace: str) -> Counter[tuple[str, int]]:
        """How often the binding of each pod was answered with each status code."""
        return Counter(
            (event["objectRef"]["name"], event["responseStatus"]["code"])
            for event, ref in self._asked()
            if ref.get("subresource") == "binding" and ref["namespace"] == namespace
        )

    def accepted(self, namespace: str) -> Counter[str]:
        """How often a binding of each pod was accepted."""
        counts: Counter[str] = Counter()
        for (pod, code), times in self.bindings(namespace).items():
            if code == 201:
                counts[pod] += times
        return counts

    def writes(self, user: str, program: str) -> list[Write]:
        """What a program asked to be changed as a user, the lease aside."""
        return [
            Write(event["requestURI"], datetime.fromisoformat(event["requestReceivedTimestamp"]))
            for event, ref in self._asked()
            if (event["user"]["username"], event.get("userAgent")) == (user, program)
            and event["verb"] in ("create", "delete", "patch", "update")
            and ref["resource"] != "leases"
        ]

    def denied(self) -> list[str]:
        """What the chart's ServiceAccount was not allowed to do."""
        return [
            f"{event['verb']} {event['requestURI']}"
            for event in self._events()
            if event.get("responseStatus", {}).get("code") == 403 and event["user"]["username"].startswith(ACCOUNTS)
        ]

    def used(self) -> set[str]:
        """Each right that the chart's ServiceAccount made use of, as VERB GROUP/RESOURCE or VERB RESOURCE."""
        return {
            right(event["verb"], ref.get("apiGroup", ""), _path(ref))
            for event, ref in self._asked()
            if event["user"]["username"].startswith(ACCOUNTS)
        }

    def _asked(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """What concerned a resource, discovery and the like aside, and which."""
        for event in self._events():
            ref = event.get("objectRef", {})
            if "resource" in ref:
                yield event, ref

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._log.open() as lines:
            for line in lines:
                # A server that is killed may leave half a line.
                if line.endswith("}\n"):
                    yield json.loads(line)


def right(verb: str, group: str, resource: str) -> str:
    """How tests name what a rule allows."""
    return f"{verb} {group}/{resource}" if group else f"{verb} {resource}"


def _path(ref: dict[str, Any]) -> str:
    """A resource as in rules, its subresource behind a slash."""
    return "/".join(filter(None, (ref["resource"], ref.get("subresource"))))

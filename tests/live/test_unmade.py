"""Why pods have no PodGroup, asked by any name that people know."""

from __future__ import annotations

from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from stromboli.api import objects
from stromboli.live.groups.owners import Owners
from stromboli.live.groups.unmade import Unmade
from stromboli.workloads import known_kinds
from tests.builders import pod


def reference(kind: str, name: str) -> objects.OwnerReference:
    """A reference to a controller."""
    return objects.OwnerReference(kind, name, f"uid-{name}", controller=True, api_version="apps/v1")


@pytest.mark.parametrize(("asked", "told"), [("web", "first"), ("web-5d9c", "first"), ("canary", "second")])
def test_it_is_known_of_whatever_is_above_the_pods(asked: str, told: str) -> None:
    owners, unmade = Owners(cast(Any, None), known_kinds()), Unmade()
    above = msgspec.to_builtins(reference("Deployment", "web"))
    owners.seen({"kind": "ReplicaSet", "metadata": {"uid": "uid-web-5d9c", "ownerReferences": [above]}})
    managed = pod("web-5d9c-x")
    meta = replace(managed.metadata, owner_references=[reference("ReplicaSet", "web-5d9c")])
    managed = replace(managed, metadata=meta)
    unmade.put("1", "first", owners.workloads(managed))
    unmade.put("2", "second", owners.workloads(pod("p", labels={"kueue.x-k8s.io/pod-group-name": "canary"})))
    assert unmade.of_workload(f"default/{asked}") == told
    assert not unmade.of_workload(f"elsewhere/{asked}")
    assert not unmade.of_workload(f"default/{told}")

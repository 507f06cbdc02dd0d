"""The definitions of Queue, PodGroup and HyperNode in a cluster: compared with ours, and applied."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from stromboli.api.crd_compare import is_ours, narrower
from stromboli.api.crd_schema import manifests
from stromboli.live.api_server.client import AGENT, APPLY_PATCH, CONNECTION_ERRORS, ApiError, Kube, Object
from stromboli.live.process.logs import Logger

log = Logger(__name__)

PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@dataclass(frozen=True, slots=True)
class Installed:
    """One of our definitions, and the cluster's definition of the same kind."""

    ours: Object
    #: None where the cluster has none
    found: Object | None

    @property
    def name(self) -> str:
        """PLURAL.GROUP."""
        name: str = self.ours["metadata"]["name"]
        return name

    @property
    def foreign(self) -> bool:
        """Whether it belongs to another project."""
        return self.found is not None and not is_ours(self.found)

    @property
    def lacks(self) -> list[str]:
        """The parts of our objects that the cluster's definition drops or refuses."""
        return narrower(self.found, self.ours) if self.found is not None else []

    @property
    def narrows(self) -> list[str]:
        """The parts of the cluster's objects that our definition would drop or refuse."""
        return narrower(self.ours, self.found) if self.found is not None else []


async def installed(kube: Kube) -> list[Installed]:
    """Our definitions, each with the cluster's definition of that kind, if any. Raises the errors of `Kube.get`."""
    return [Installed(ours, await _found(kube, ours["metadata"]["name"])) for ours in manifests()]


async def _found(kube: Kube, name: str) -> Object | None:
    try:
        return await kube.get(f"{PATH}/{name}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise


async def apply(kube: Kube, definition: Mapping[str, Any], *, dry_run: bool = False) -> Object:
    """Create a definition or update the existing one; returns the result, which `dry_run` does not store."""
    # From then on we own all fields, even if helm, kubectl or another operator set them before.
    params = {"fieldManager": AGENT, "force": "true", **({"dryRun": "All"} if dry_run else {})}
    path = f"{PATH}/{definition['metadata']['name']}"
    answer = await kube.request("PATCH", path, msgspec.json.encode(definition), APPLY_PATCH, params)
    applied: Object = msgspec.json.decode(answer)
    return applied


async def established(kube: Kube, name: str, patience: float = 30.0) -> bool:
    """Wait until objects of a definition can be made; False after `patience` seconds."""
    for _ in range(int(patience * 10)):
        conditions = ((await kube.get(f"{PATH}/{name}")).get("status") or {}).get("conditions") or ()
        if any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
            return True
        await asyncio.sleep(0.1)
    return False


async def tell_what_is_lost(kube: Kube) -> None:
    """Log fields that the cluster's definitions drop or refuse, once; nothing where they may not be read."""
    try:
        found = await installed(kube)
    except (ApiError, *CONNECTION_ERRORS) as error:
        log.debug("definitions not compared", error=str(error))
        return
    for each in found:
        if lacks := each.lacks:
            log.warning("definition differs", definition=each.name, problem="; ".join(lacks))

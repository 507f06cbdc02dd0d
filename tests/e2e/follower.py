"""A thread that follows a list of a cluster's objects, from outside the scheduler."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import httpx
import msgspec
from msgspec import Struct

from tests.controlplane.cluster import Cluster


class _Metadata(Struct, rename="camel"):
    resource_version: str = ""


class _Object(Struct):
    metadata: _Metadata


class _List(Struct):
    metadata: _Metadata
    items: list[msgspec.Raw]


class _Event(Struct):
    type: str
    object: msgspec.Raw


class Follower:
    """Calls `see` in a thread of its own: first with each object of a list, then with each that changes.

    A watch that ends is taken up where it ended, so that nothing is missed; only where the API server no longer knows
    that version, the list is read again. Entering returns when the first list has been seen.
    """

    def __init__(self, cluster: Cluster, path: str) -> None:
        self._cluster = cluster
        self._path = path
        self._listed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._follow, name=f"{type(self).__name__} {path}", daemon=True)

    def see(self, api: httpx.Client, found: msgspec.Raw) -> None:
        """Called with each object as it now is; `api` is the thread's own client. Not called for deleted objects."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._listed.wait(30), f"{self._path} could not be listed in 30 s"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The thread ends when its watch next says something, or times out.
        self._stopping = True

    def _follow(self) -> None:
        version = ""
        while not self._stopping:
            try:
                with self._cluster.client(timeout=10) as api:
                    version = version or self._list(api)
                    version = self._stream(api, version)
            except httpx.HTTPStatusError:
                version = ""
                time.sleep(0.1)
            except (httpx.HTTPError, msgspec.MsgspecError):
                time.sleep(0.1)

    def _list(self, api: httpx.Client) -> str:
        listed = msgspec.json.decode(api.get(self._path).raise_for_status().content, type=_List)
        for found in listed.items:
            self.see(api, found)
        self._listed.set()
        return listed.metadata.resource_version

    def _stream(self, api: httpx.Client, version: str) -> str:
        """Follow until the server ends it; returns the version to go on from, empty to read the list again."""
        query = {"watch": "true", "resourceVersion": version, "timeoutSeconds": "60"}
        events, objects = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Object)
        with api.stream("GET", self._path, params=query, timeout=httpx.Timeout(10, read=None)) as answer:
            for line in answer.raise_for_status().iter_lines():
                event = events.decode(line)
                if self._stopping or event.type == "ERROR":
                    return ""
                if event.type != "DELETED":
                    self.see(api, event.object)
                version = objects.decode(event.object).metadata.resource_version
        return version

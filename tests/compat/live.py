"""`python -m tests.compat.live`: random clusters of which a real kube-scheduler and the service say which nodes pass.

kube-scheduler asks an extender about the nodes that its filters left, so the answer of each of them is known to the
node. Where a filter fails on a node, it gives up on all of them: it is then asked about each node by itself, with a pod
that can go to no other. Pods that differ are asked about once more before they count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.compat.devices import DeviceScenes
from tests.compat.made_claims import claims_of, named_claims, of_templates, statuses_of
from tests.compat.requests import RequestScenes
from tests.compat.scenes import FAR, KEPT, NEAR, Object, Scenes
from tests.compat.storage import StorageScenes
from tests.compat.tables import SCHEDULER, passing, state_of
from tests.controlplane.build import control_plane
from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.world import CORE

#: pods that ask, in each scene
_ASKING = 8
#: how long the schedulers' informers may take to hear of what was created, in seconds
_HEARD = 0.4
_QUIET = {"gracePeriodSeconds": "0"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_STORAGE, _DEVICES = "/apis/storage.k8s.io/v1", "/apis/resource.k8s.io/v1"
#: what a scene may have, and what of it is in namespaces
_OF_ALL = (
    f"{CORE}/nodes",
    f"{CORE}/persistentvolumes",
    "/apis/node.k8s.io/v1/runtimeclasses",
    *(
        f"{_STORAGE}/{each}"
        for each in ("storageclasses", "csinodes", "csidrivers", "volumeattachments", "volumeattributesclasses")
    ),
    *(f"{_DEVICES}/{each}" for each in ("deviceclasses", "resourceslices")),
)
_OF_NAMESPACES = {
    CORE: ("pods", "persistentvolumeclaims"),
    _STORAGE: ("csistoragecapacities",),
    _DEVICES: ("resourceclaims",),
}
#: the reason that kube-scheduler gives when a filter fails
_FAILED = "SchedulerError"
_FIELD, _REQUIRED = "metadata.name", "requiredDuringSchedulingIgnoredDuringExecution"
#: what scenes are about
SCENES = {"nodes": Scenes, "storage": StorageScenes, "requests": RequestScenes, "devices": DeviceScenes}


class _Asked(BaseHTTPRequestHandler):
    """Notes which nodes kube-scheduler asks about, and refuses all, so that nothing is ever bound."""

    nodes: dict[str, set[str]]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        names = asked["NodeNames"] or []
        self.nodes[asked["Pod"]["metadata"]["uid"]] = set(names)
        answer = json.dumps({"NodeNames": [], "FailedNodes": dict.fromkeys(names, "asked")}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Comparison:
    """kube-scheduler on a cluster of its own; one scene at a time."""

    def __init__(self, cluster: Cluster, asked: dict[str, set[str]]) -> None:
        self._api = cluster.client(timeout=30)
        self._asked = asked
        #: of the pods that were asked about, how many pass on no, some and all nodes
        self.counts: Counter[str] = Counter()
        #: pods for which a filter of kube-scheduler failed
        self.failed = 0
        #: what the API server said of objects that it did not take
        self.refused: Counter[str] = Counter()

    def differences(self, seed: int, about: str = "nodes") -> list[str]:
        """A line for each pod of a scene that passes on other nodes here."""
        scenes = SCENES[about](seed)
        spaces = {NEAR: f"near-{about}-{seed}", FAR: f"far-{about}-{seed}"}
        for name, team in zip(spaces.values(), ("x", scenes.any("x", "y")), strict=True):
            labels = {"team": team, "resource.kubernetes.io/admin-access": "true"}
            self._create(f"{CORE}/namespaces", {"metadata": {"name": name, "labels": labels}})
        try:
            return self._compared(scenes, spaces, str(seed))
        finally:
            self._clear(spaces.values())

    def _compared(self, scenes: Scenes, spaces: dict[str, str], scene: str) -> list[str]:
        for path, manifest in scenes.objects():
            self._made(path, manifest, spaces)
        for number in range(scenes.any(*range(2 * scenes.count))):
            node, where = f"n{scenes.any(*range(scenes.count))}", scenes.any(*spaces)
            pod = self._asks(scenes.placed(f"placed-{number}", node), where, spaces)
            self._change(scenes.changes_of_placed(_path(pod)) if pod else (), spaces)
        self._change(scenes.changes(), spaces)
        time.sleep(_HEARD)
        pods = [self._asks(scenes.pending(f"asks-{i}"), scenes.any(*spaces), spaces) for i in range(_ASKING)]
        there = list(self._items())
        found = []
        for pod in filter(None, pods):
            metadata = pod["metadata"]
            theirs = self._theirs(pod)
            ours = passing_here(pod, there)
            if ours != theirs:
                self._delete(_path(pod))
                time.sleep(_HEARD)
                theirs = self._theirs(self._again(pod))
            some = "none" if not theirs else "all" if len(theirs) == scenes.count else "some"
            self.counts[some] += 1
            if ours != theirs:
                found.append(f"{scene}: {metadata['name']}: kube-scheduler {sorted(theirs)}, here {sorted(ours)}")
        return found

    def _theirs(self, pod: Object) -> set[str]:
        """The nodes that pass kube-scheduler's filters."""
        uid, path = pod["metadata"]["uid"], _path(pod)
        reasons: set[str] = set()
        claims = f"{_DEVICES}/namespaces/{pod['metadata']['namespace']}/resourceclaims"
        if not all(name and self._stays(f"{claims}/{name}") for name in named_claims(pod)):
            return set()  # kube-scheduler does not try such a pod, nor does it say so

        def judged() -> bool:
            conditions = self._api.get(path).raise_for_status().json()["status"].get("conditions", ())
            reasons.update(each["reason"] for each in conditions if each["type"] == "PodScheduled")
            return uid in self._asked or bool(reasons - {"SchedulingGated"})

        eventually(judged, 60)
        if uid not in self._asked and _FAILED in reasons and not _confined(pod):
            return self._one_by_one(pod)
        return self._asked.get(uid, set())

    def _stays(self, path: str) -> bool:
        """Whether an object is there and is not being deleted."""
        answer = self._api.get(path)
        return answer.is_success and "deletionTimestamp" not in answer.json()["metadata"]

    def _one_by_one(self, pod: Object) -> set[str]:
        """The nodes that pass kube-scheduler's filters when no other node is looked at."""
        passing: set[str] = set()
        self.failed += 1
        for node in self._api.get(f"{CORE}/nodes").json()["items"]:
            self._delete(_path(pod))
            passing |= self._theirs(self._again(_only_on(pod, node["metadata"]["name"])))
        return passing

    # -- objects ---------------------------------------------------------------------------------------------------

    def _pod(self, manifest: Object, where: str, spaces: dict[str, str]) -> Object | None:
        """Create a pod in one of the namespaces; None if the API server refuses it."""
        return self._made(f"{CORE}/namespaces/{where}/pods", manifest, spaces)

    def _asks(self, manifest: Object, where: str, spaces: dict[str, str]) -> Object | None:
        """Create a pod, and the claims that controllers make for it, until which a pod that asks is gated."""
        if not of_templates(manifest):
            return self._pod(manifest, where, spaces)
        gates = [] if "nodeName" in manifest["spec"] else [{"name": "example.com/claims"}]
        gated = {**manifest, "spec": {**manifest["spec"], "schedulingGates": gates}}
        pod = self._pod(gated, where, spaces)
        if pod is None:
            return None
        claims = f"{_DEVICES}/namespaces/{pod['metadata']['namespace']}/resourceclaims"
        specs = {each["metadata"]["name"]: each["spec"] for each in self._api.get(claims).json()["items"]}
        for path, claim in claims_of(pod, specs):
            self._api.delete(f"{path}/{claim['metadata']['name']}", params=_QUIET)
            self._made(path, claim, spaces)
        status = {"status": {"resourceClaimStatuses": statuses_of(pod, specs)}}
        self._api.patch(f"{_path(pod)}/status", json=status, headers=_MERGE).raise_for_status()
        open_ = {"spec": {"schedulingGates": []}}
        made: Object = self._api.patch(_path(pod), json=open_, headers=_MERGE).raise_for_status().json()
        return made

    def _made(self, path: str, manifest: Object, spaces: dict[str, str]) -> Object | None:
        """Create an object with its status, in the namespaces of the scene; None if the API server refuses it."""
        text = json.dumps([path, manifest])
        for name, space in spaces.items():
            text = text.replace(f'{name}"', f'{space}"').replace(f"/{name}/", f"/{space}/")
        path, manifest = json.loads(text)
        answer = self._api.post(path, json=manifest)
        if not answer.is_success:
            self.refused[answer.json()["message"]] += 1
            return None
        made: Object = answer.json()
        if "status" in manifest and not path.endswith("/nodes"):
            where = f"{path}/{made['metadata']['name']}/status"
            answer = self._api.patch(where, json={"status": manifest["status"]}, headers=_MERGE)
            if not answer.is_success:
                self.refused[answer.json()["message"]] += 1
        return made

    def _change(self, changes: Iterable[tuple[str, Object | None]], spaces: dict[str, str]) -> None:
        """Merge patches into objects; None deletes one, for which it may have to wait."""
        for path, patch in changes:
            for name, space in spaces.items():
                path = path.replace(f"/{name}/", f"/{space}/")
            answer = self._api.delete(path) if patch is None else self._api.patch(path, json=patch, headers=_MERGE)
            if not answer.is_success:
                self.refused[answer.json()["message"]] += 1

    def _again(self, pod: Object) -> Object:
        """Create a pod anew that was deleted."""
        metadata = {key: pod["metadata"][key] for key in ("name", "labels") if key in pod["metadata"]}
        made = self._asks({"metadata": metadata, "spec": pod["spec"]}, pod["metadata"]["namespace"], {})
        assert made is not None
        return made

    def _create(self, path: str, manifest: Object) -> Object:
        made: Object = self._api.post(path, json=manifest).raise_for_status().json()
        return made

    def _items(self) -> Iterator[Object]:
        """All that the cluster has, but for pods without a node."""
        everywhere = [f"{group}/{each}" for group, kinds in _OF_NAMESPACES.items() for each in kinds]
        for path in (f"{CORE}/namespaces", *_OF_ALL, *everywhere):
            found = self._api.get(path).raise_for_status().json()
            for item in found["items"]:
                if found["kind"] != "PodList" or item["spec"].get("nodeName"):
                    yield {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List"), **item}

    def _delete(self, path: str) -> None:
        self._api.delete(path, params=_QUIET).raise_for_status()

    def _clear(self, namespaces: Iterable[str]) -> None:
        everywhere = [f"{group}/{each}" for group, kinds in _OF_NAMESPACES.items() for each in kinds]
        for path in (*_OF_ALL, *everywhere):
            for item in self._api.get(path).raise_for_status().json()["items"]:
                if KEPT in item["metadata"].get("finalizers", ()):
                    group, _, kind = path.rpartition("/")
                    within = f"/namespaces/{item['metadata']['namespace']}" if path in everywhere else ""
                    place = f"{group}{within}/{kind}/{item['metadata']['name']}"
                    self._api.patch(place, json={"metadata": {"finalizers": None}}, headers=_MERGE).raise_for_status()
        for name in namespaces:
            for group, kinds in _OF_NAMESPACES.items():
                for kind in kinds:
                    self._delete(f"{group}/namespaces/{name}/{kind}")
            self._delete(f"{CORE}/namespaces/{name}")
        for path in _OF_ALL:
            self._delete(path)
        gone = (f"{CORE}/nodes", f"{CORE}/pods")
        eventually(lambda: not any(self._api.get(path).json()["items"] for path in gone))
        time.sleep(_HEARD)


def passing_here(pod: Object, there: Sequence[Object]) -> set[str]:
    """The nodes that `/filter` passes for a pod, beside what there is."""
    made = {"resourceClaimStatuses": pod["status"].get("resourceClaimStatuses", [])}
    asking = {"apiVersion": "v1", "kind": "Pod", "metadata": pod["metadata"], "status": made}
    asking["spec"] = {**pod["spec"], "schedulerName": SCHEDULER}
    items = [*there, asking]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": items}, file)
        file.flush()
        state = state_of(Path(file.name))
    return asyncio.run(passing(items, state, time.time()))


def _only_on(pod: Object, node: str) -> Object:
    """A copy of a pod that can go to one node only."""
    field = {"key": _FIELD, "operator": "In", "values": [node]}
    affinity = pod["spec"].get("affinity", {})
    required = affinity.get("nodeAffinity", {}).get(_REQUIRED, {"nodeSelectorTerms": [{}]})
    terms = [{**each, "matchFields": [*each.get("matchFields", ()), field]} for each in required["nodeSelectorTerms"]]
    confined = {**affinity, "nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}
    return {**pod, "spec": {**pod["spec"], "affinity": confined}}


def _confined(pod: Object) -> bool:
    """Whether a pod is one that can go to one node only."""
    return _FIELD in json.dumps(pod["spec"])


def _path(pod: Object) -> str:
    return f"{CORE}/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


@contextmanager
def comparison() -> Iterator[Comparison]:
    """Run a kube-scheduler that binds nothing and tells which nodes pass."""
    nodes: dict[str, set[str]] = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (_Asked,), {"nodes": nodes}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    extender = {
        "urlPrefix": f"http://127.0.0.1:{server.server_port}",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "httpTimeout": "60s",
    }
    profile = {
        "schedulerName": "default-scheduler",
        "percentageOfNodesToScore": 100,
        "plugins": {"postFilter": {"disabled": [{"name": "*"}]}},
    }
    backoff = {"podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 1}
    try:
        with Cluster(control_plane()) as cluster:
            cluster.start_scheduler({"profiles": [profile], "extenders": [extender], **backoff})
            yield Comparison(cluster, nodes)
    finally:
        server.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first scene")
    parser.add_argument("--scenes", type=int, default=20)
    parser.add_argument("--about", choices=SCENES, default="nodes", help="what pods ask for")
    parser.add_argument("--refused", action="store_true", help="say what the API server did not take")
    options = parser.parse_args()
    found = []
    with comparison() as both:
        for seed in range(options.seed, options.seed + options.scenes):
            for line in both.differences(seed, options.about):
                found.append(line)
                print(line, flush=True)
        print(f"{sum(both.counts.values())} pods asked, {len(found)} differ; nodes that pass: {dict(both.counts)}")
        print(f"{both.failed} times kube-scheduler gave up, and was asked about each node by itself")
        for message, count in both.refused.most_common(5) if options.refused else ():
            print(f"refused {count} times: {message}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

"""A test's part of the cluster: a namespace, and nodes and queues that go with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx

from tests.controlplane.cluster import Cluster, eventually
from tests.e2e.watch import GROUP

CORE = "/api/v1"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
Object = dict[str, Any]
#: by API group
Resources = Mapping[str, Sequence[str]]

#: what controllers make pods for
_MAKERS = (
    *(("apps/v1", "deployments"), ("apps/v1", "replicasets"), ("apps/v1", "statefulsets")),
    *(("batch/v1", "cronjobs"), ("batch/v1", "jobs")),
)
#: objects that are created at once
_WRITERS = 8


class World:
    """Makes objects and looks at them. Use one at a time: every pod's scheduler sees all nodes."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.api = cluster.client(timeout=30)
        self._pods = f"{CORE}/namespaces/{namespace}/pods"
        self._groups = f"{SCHEDULING}/namespaces/{namespace}/podgroups"

    def begin(self) -> None:
        """Create the namespace."""
        self.create(f"{CORE}/namespaces", {"metadata": {"name": self.namespace}})

    def clear(self) -> None:
        """Delete everything, and wait until no pod, queue or node of this test is left to disturb the next."""
        now = {"gracePeriodSeconds": "0"}
        # Their controllers would make pods anew, which only go with the namespace, seconds later.
        for version, kind in _MAKERS:
            self.api.delete(f"/apis/{version}/namespaces/{self.namespace}/{kind}").raise_for_status()
        for path in (self._pods, self._groups, f"{CORE}/nodes", f"{SCHEDULING}/queues"):
            self.api.delete(path, params=now).raise_for_status()
        self.api.delete(f"{CORE}/namespaces/{self.namespace}").raise_for_status()
        places = (self._pods, f"{CORE}/nodes", f"{SCHEDULING}/queues")
        eventually(lambda: not any(self.items(place) for place in places), 60)
        self.api.close()

    # -- objects ---------------------------------------------------------------------------------------------------

    def create(self, path: str, manifest: Mapping[str, Any]) -> Object:
        answer = self.api.post(path, json=manifest)
        assert answer.is_success, f"{path}: {answer.text}"
        created: Object = answer.json()
        return created

    def nodes(self, count: int, cpu: str, prefix: str = "node", **more: str) -> None:
        """Nodes of one size, with `more` resources, which kwok says are ready."""
        amounts = {"cpu": cpu, "memory": "256Gi", "pods": "110", **more}
        names = [f"{prefix}-{number}" for number in range(count)]
        labels = "kubernetes.io/hostname"
        self.create_all(
            f"{CORE}/nodes",
            [
                {
                    "metadata": {"name": name, "labels": {labels: name}},
                    "status": {"capacity": amounts, "allocatable": amounts},
                }
                for name in names
            ],
        )

    def queue(self, name: str, **spec: Any) -> None:
        self.create(f"{SCHEDULING}/queues", volcano("Queue", name, {"reclaimable": True, **spec}))

    def queues(self) -> set[str]:
        """The names of all queues."""
        return {queue["metadata"]["name"] for queue in self.items(f"{SCHEDULING}/queues")}

    def group(self, name: str, min_member: int, queue: str = "default", **spec: Any) -> None:
        self.create(self._groups, volcano("PodGroup", name, {"minMember": min_member, "queue": queue, **spec}))

    def delete_group(self, name: str) -> None:
        self.api.delete(f"{self._groups}/{name}")

    def gang(
        self,
        name: str,
        pods: int,
        *,
        cpu: str = "1",
        min_member: int | None = None,
        queue: str = "default",
        **priority: str,
    ) -> None:
        """A PodGroup and its pods, all of which it needs unless `min_member` says otherwise.

        `priority` is a `priorityClassName`, if they have one.
        """
        self.group(name, pods if min_member is None else min_member, queue, **priority)
        self.pods([pod(f"{name}-{number}", name, cpu=cpu, **priority) for number in range(pods)])

    def pods(self, manifests: Sequence[Object]) -> None:
        """Create pods, several at once."""
        self.create_all(self._pods, manifests)

    @contextmanager
    def priority_classes(self, **values: int) -> Iterator[None]:
        """Priority classes by name, until the block ends."""
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        for name, value in values.items():
            self.create(path, {"metadata": {"name": name}, "value": value})
        yield
        for name in values:
            self.api.delete(f"{path}/{name}").raise_for_status()

    def create_all(self, path: str, manifests: Sequence[Object]) -> None:
        """Create objects of a collection, several at once."""
        if len(manifests) <= _WRITERS:
            for manifest in manifests:
                self.create(path, manifest)
            return
        with ThreadPoolExecutor(_WRITERS) as writers:
            for _ in writers.map(lambda manifest: self.create(path, manifest), manifests):
                pass

    def reader(self, name: str, resources: Resources, everywhere: Resources | None = None) -> str:
        """A token of a ServiceAccount that may read resources, by API group, of this namespace, and some everywhere."""
        self.create(f"{CORE}/namespaces/{self.namespace}/serviceaccounts", {"metadata": {"name": name}})
        self._let_read(f"{RBAC}/namespaces/{self.namespace}/", "Role", name, name, resources)
        if everywhere:
            # They outlast the namespace, and let nobody read anything then.
            self._let_read(f"{RBAC}/", "ClusterRole", f"{self.namespace}-{name}", name, everywhere)
        config = json.loads(self.cluster.service_account_kubeconfig(self.namespace, name).read_text())
        token: str = config["users"][0]["user"]["token"]
        return token

    def _let_read(self, place: str, kind: str, name: str, account: str, resources: Resources) -> None:
        metadata, verbs, many = {"name": name}, ["get", "list"], f"{place}{kind.lower()}"
        rules = [{"apiGroups": [group], "resources": list(some), "verbs": verbs} for group, some in resources.items()]
        self.create(f"{many}s", {"metadata": metadata, "rules": rules})
        subject = {"kind": "ServiceAccount", "name": account, "namespace": self.namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        self.create(f"{many}bindings", {"metadata": metadata, "subjects": [subject], "roleRef": role})

    # -- what has become of them -----------------------------------------------------------------------------------

    def get(self, path: str) -> Object:
        answer = self.api.get(path)
        assert answer.is_success, f"{path}: {answer.text}"
        found: Object = answer.json()
        return found

    def items(self, path: str) -> list[Object]:
        found: list[Object] = self.get(path)["items"]
        return found

    def placed(self) -> dict[str, str]:
        """The node of each pod that has one."""
        return {name: node for name, node in self._placements() if node}

    def waits(self) -> bool:
        """Whether any pod has no node."""
        return bool(self.get(f"{self._pods}?fieldSelector=spec.nodeName%3D&limit=1")["items"])

    def _placements(self) -> Iterator[tuple[str, str]]:
        for found in self.items(self._pods):
            yield found["metadata"]["name"], found["spec"].get("nodeName", "")

    def bound(self) -> Counter[str]:
        """The number of pods with a node by group."""
        found = self.items(self._pods)
        return Counter(
            pod["metadata"].get("annotations", {}).get(GROUP, "") for pod in found if pod["spec"].get("nodeName")
        )

    def refused(self) -> dict[str, str]:
        """Why each pod that was refused a node has none, in a word."""
        return {
            each["metadata"]["name"]: condition["reason"]
            for each in self.items(f"{CORE}/namespaces/{self.namespace}/pods")
            for condition in each["status"].get("conditions", ())
            if (condition["type"], condition["status"]) == ("PodScheduled", "False")
        }

    def group_status(self, name: str) -> Object:
        status: Object = self.get(f"{self._groups}/{name}").get("status", {})
        return status

    def condition(self, group: str, type: str) -> Object:
        """A condition that holds of a PodGroup, empty when it does not."""
        found = self.group_status(group).get("conditions", [])
        return next((c for c in found if c["type"] == type and c["status"] == "True"), {})

    def groups(self) -> list[Object]:
        return self.items(self._groups)

    def events(self, namespace: str | None = None) -> list[Object]:
        return self.items(f"/apis/events.k8s.io/v1/namespaces/{namespace or self.namespace}/events")


def pod(
    name: str,
    group: str = "",
    *,
    cpu: str = "1",
    scheduler: str = "stromboli",
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """The manifest of a pod; without a group it is a bare one."""
    notes = {**({GROUP: group} if group else {}), **(annotations or {})}
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


def volcano(kind: str, name: str, spec: Mapping[str, Any]) -> Object:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": dict(spec),
    }


def define(api: httpx.Client, definitions: Sequence[Object]) -> None:
    """Create custom resource definitions that are not there yet, and wait until all are served and discovered.

    One that is there may be of other versions: two projects define MPIJobs.
    """
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    there = {each["metadata"]["name"] for each in api.get(path).raise_for_status().json()["items"]}
    missing = [definition for definition in definitions if definition["metadata"]["name"] not in there]
    with ThreadPoolExecutor(_WRITERS) as writers:
        for answer in writers.map(lambda definition: api.post(path, json=definition), missing):
            answer.raise_for_status()
    eventually(lambda: all(api.get(_collection(definition)).is_success for definition in missing), 120)
    kinds = {(each["spec"]["group"], each["spec"]["names"]["kind"]) for each in definitions}
    eventually(lambda: kinds <= _discovered(api), 60)


def _discovered(api: httpx.Client) -> set[tuple[str, str]]:
    """Groups and kinds by aggregated discovery, which kubectl asks and which lags behind what is served."""
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    groups = api.get("/apis", headers={"Accept": accept}).raise_for_status().json()["items"]
    return {
        (group["metadata"]["name"], resource["responseKind"]["kind"])
        for group in groups
        for version in group.get("versions", ())
        for resource in version.get("resources", ())
    }


def _collection(definition: Object) -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"

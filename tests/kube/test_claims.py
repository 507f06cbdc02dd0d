"""Volumes of pods on random clusters, against a plain loop over nodes, before and after placements of the session."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from stromboli.framework.session.session import Session
from stromboli.state.cluster import ClusterState, object_key
from tests import builders
from tests.fuzz import tried
from tests.kube.test_volumes import claim, named, nodes_for, place, storage_class, volume

DRIVERS = ["ebs.csi.aws.com", "b.example.com"]
IN_TREE = "kubernetes.io/aws-ebs"
POLICY = builders.policy("predicates", actions="enqueue")
PLAIN = tried(15)
Manifest = dict[str, Any]

sizes = st.sampled_from(["1Gi", "5Gi", "10Gi"])
nodes = st.sampled_from(["", "n0", "n1", "n2"])


handles = st.sampled_from(["vol-0", "vol-1", "vol-2"])
disks = st.one_of(
    handles.map(lambda name: {"awsElasticBlockStore": {"volumeID": name, "readOnly": True}}),
    st.builds(lambda read: {"iscsi": {"iqn": "x", "readOnly": read}}, st.booleans()),
    st.builds(
        lambda read, monitors: {"rbd": {"image": "x", "monitors": monitors, "readOnly": read}},
        st.booleans(),
        st.sampled_from([["m0"], ["m0", "m1"], ["m2"]]),
    ),
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Manifest], list[Any]]:
    """Objects of storage, and pods that mount them, some of them placed."""
    objects = [
        storage_class("local"),
        storage_class("made", draw(st.sampled_from([DRIVERS[0], IN_TREE]))),
        storage_class("other", DRIVERS[1], allowedTopologies=[_zone("b")]),
    ]
    classes = st.sampled_from(["local", "made", "other"])
    for i in range(draw(st.integers(0, 6))):
        spec: Manifest = {"storageClassName": draw(classes), "accessModes": draw(st.sampled_from(MODES))}
        match draw(st.sampled_from(["csi", "aws", ""])):
            case "csi":
                spec["csi"] = {"driver": draw(st.sampled_from(DRIVERS)), "volumeHandle": draw(handles)}
            case "aws":
                spec["awsElasticBlockStore"] = {"volumeID": draw(st.sampled_from(["", "aws://a/"])) + draw(handles)}
        if draw(st.booleans()):
            spec["claimRef"] = {"namespace": "default", "name": f"c{draw(st.integers(0, 3))}"}
        objects.append(volume(f"v{i}", draw(nodes), draw(sizes), {"disk": draw(st.sampled_from("xy"))}, **spec))
    for i in range(4):
        spec = {"accessModes": draw(st.sampled_from([*MODES, ["ReadWriteOncePod"]]))}
        if draw(st.integers(0, 3)) == 0:
            spec["selector"] = {"matchLabels": {"disk": "x"}}
        bound = draw(st.sampled_from(["", "", *[f"v{i}" for i in range(6)]]))
        objects.append(claim(f"c{i}", draw(classes), bound, draw(sizes), **spec))
    for name in ("n0", "n1"):
        drivers = [{"name": each, "allocatable": {"count": draw(st.integers(0, 2))}} for each in DRIVERS]
        objects.append({"kind": "CSINode", "metadata": {"name": name}, "spec": {"drivers": drivers}})
    for i in range(draw(st.integers(0, 3))):
        source = {"persistentVolumeName": f"v{draw(st.integers(0, 6))}"}
        where = {"attacher": draw(st.sampled_from(DRIVERS)), "nodeName": f"n{draw(st.integers(0, 3))}"}
        objects.append({"kind": "VolumeAttachment", "metadata": {"name": f"a{i}"}, "spec": {**where, "source": source}})
    placed = [_mounting(draw, f"run{i}", draw(nodes)) for i in range(draw(st.integers(0, 3)))]
    return objects, [*placed, *(_mounting(draw, f"p{i}") for i in range(2))]


def _mounting(draw: st.DrawFn, name: str, node: str = "") -> Any:
    """A pod with claims, and maybe with a disk that it names itself."""
    claims = draw(st.lists(st.sampled_from(["c0", "c1", "c2", "c3"]), min_size=1, max_size=3, unique=True))
    volumes: list[Manifest] = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    if draw(st.booleans()):
        volumes.append({"name": "disk", **draw(disks)})
    return builders.pod(name, "g", node=node, volumes=volumes)


MODES = [["ReadWriteOnce"], ["ReadWriteOnce", "ReadOnlyMany"]]


def _zone(value: str) -> Manifest:
    return {"matchLabelExpressions": [{"key": "zone", "values": [value]}]}


class World:
    """The rules in plain words: one pod, one node, one volume after the other."""

    def __init__(self, objects: list[Manifest], pods: list[Any]) -> None:
        self.of = {kind: _by_name(objects, kind) for kind in ("PersistentVolume", "PersistentVolumeClaim")}
        self.classes, self.csi = _by_name(objects, "StorageClass"), _by_name(objects, "CSINode")
        self.where = {p.metadata.name: p.spec.node_name for p in pods if p.spec.node_name}
        self.attached = _by_name(objects, "VolumeAttachment").values()
        self.claims_of = {
            p.metadata.name: [v.persistent_volume_claim.claim_name for v in p.spec.volumes if v.persistent_volume_claim]
            for p in pods
        }
        self.disks_of = {p.metadata.name: [v for v in p.spec.volumes if v.name == "disk"] for p in pods}
        self.taken: dict[str, str] = {}
        self.made_for: dict[str, str] = {}

    def passes(self, name: str, node: str) -> bool:
        claims = [self.of["PersistentVolumeClaim"][each] for each in self.claims_of[name]]
        unshared = self.may_share(name, node) and self.within_limits(name, node)
        return unshared and self.bindings(claims, node) is not None

    def may_share(self, name: str, node: str) -> bool:
        alone = {c for c in self.claims_of[name] if _modes(self.of["PersistentVolumeClaim"][c]) == ["ReadWriteOncePod"]}
        if any(alone & set(self.claims_of[other]) for other in self.where):
            return False
        there = [disk for other, at in self.where.items() if at == node for disk in self.disks_of[other]]
        return not any(_conflict(mine, other) for mine in self.disks_of[name] for other in there)

    def place(self, name: str, node: str) -> None:
        claims = [self.of["PersistentVolumeClaim"][each] for each in self.claims_of[name]]
        for claim_name, found in (self.bindings(claims, node) or {}).items():
            table, value = (self.taken, found) if found else (self.made_for, node)
            table.setdefault(claim_name, value)
        self.where[name] = node

    def bindings(self, claims: list[Manifest], node: str) -> dict[str, str] | None:
        """The volume for each claim that has none, empty where one will be made; None when the node will not do."""
        out: dict[str, str] = {}
        for each in sorted(claims, key=lambda c: not _bound(c)):
            if _bound(each):
                found = self.of["PersistentVolume"].get(each["spec"]["volumeName"])
                if found is None or not _reaches(found, node):
                    return None
        for each in sorted(
            [c for c in claims if not _bound(c)], key=lambda c: _bytes(c["spec"]["resources"]["requests"])
        ):
            name = each["metadata"]["name"]
            chosen = "" if name in self.made_for else self.best(each, node, set(out.values()))
            if not chosen and (self.made_for.get(name, node) != node or not self.can_make(each, node)):
                return None
            out[name] = chosen
        return out

    def best(self, wanted: Manifest, node: str, not_these: set[str]) -> str:
        name, free = wanted["metadata"]["name"], []
        for each in self.of["PersistentVolume"].values():
            volume_name, spec = each["metadata"]["name"], each["spec"]
            if spec["storageClassName"] != wanted["spec"]["storageClassName"] or not _holds(each, wanted):
                continue
            own = spec.get("claimRef", {}).get("name") == name or self.taken.get(name) == volume_name
            if own:
                return volume_name if _reaches(each, node) else ""
            if "claimRef" not in spec and volume_name not in self.taken.values() and _suits(each, wanted):
                free.append(each)
        reached = [e for e in free if _reaches(e, node) and e["metadata"]["name"] not in not_these]
        return min(reached, key=lambda e: _bytes(e["spec"]["capacity"]))["metadata"]["name"] if reached else ""

    def can_make(self, wanted: Manifest, node: str) -> bool:
        made = self.classes[wanted["spec"]["storageClassName"]]
        if made["provisioner"] == "kubernetes.io/no-provisioner":
            return False
        return "allowedTopologies" not in made or node == "n1"

    def within_limits(self, name: str, node: str) -> bool:
        attached = {v for other, at in self.where.items() if at == node for v in self.volumes(other)}
        for driver in DRIVERS:
            counts = [d["allocatable"]["count"] for n in self.csi if n == node for d in self.csi[n]["spec"]["drivers"]]
            limit = counts[DRIVERS.index(driver)] if counts else float("inf")
            new = {v for v in self.volumes(name) - attached if v[0] == driver}
            if new and len({v for v in attached | self.held(node) if v[0] == driver}) + len(new) > limit:
                return False
        return True

    def held(self, node: str) -> set[tuple[str, str]]:
        out = set()
        for spec in (each["spec"] for each in self.attached):
            found = self.of["PersistentVolume"].get(spec["source"]["persistentVolumeName"])
            if spec["nodeName"] == node and found is not None and "csi" in found["spec"]:
                out.add((spec["attacher"], found["spec"]["csi"]["volumeHandle"]))
        return out

    def volumes(self, name: str) -> set[tuple[str, str]]:
        out = {(DRIVERS[0], d.aws_elastic_block_store.volume_id) for d in self.disks_of[name] if _aws(d)}
        for each in (self.of["PersistentVolumeClaim"][c] for c in self.claims_of[name]):
            found = self.of["PersistentVolume"].get(each["spec"].get("volumeName", ""))
            if found is not None:
                csi = found["spec"].get("csi")
                out |= {(csi["driver"], csi["volumeHandle"])} if csi else set()
                aws = found["spec"].get("awsElasticBlockStore")
                out |= {(DRIVERS[0], aws["volumeID"].removeprefix("aws://a/"))} if aws else set()
            else:
                provisioner = self.classes[each["spec"]["storageClassName"]]["provisioner"]
                provisioner = DRIVERS[0] if provisioner == IN_TREE else provisioner
                out |= {(provisioner, each["metadata"]["name"])} if provisioner in DRIVERS else set()
        return out


def _by_name(objects: list[Manifest], kind: str) -> dict[str, Manifest]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def _bound(wanted: Manifest) -> bool:
    return "volumeName" in wanted["spec"]


def _modes(each: Manifest) -> list[str]:
    modes: list[str] = each["spec"]["accessModes"]
    return modes


def _aws(disk: Any) -> bool:
    return disk.aws_elastic_block_store is not None


def _conflict(one: Any, other: Any) -> bool:
    """Whether two disks cannot be on one node."""
    if _aws(one) and _aws(other):
        return bool(one.aws_elastic_block_store.volume_id == other.aws_elastic_block_store.volume_id)
    if one.iscsi and other.iscsi:
        return not (one.iscsi.read_only and other.iscsi.read_only)
    if one.rbd and other.rbd:
        shared = set(one.rbd.monitors) & set(other.rbd.monitors)
        return bool(shared) and not (one.rbd.read_only and other.rbd.read_only)
    return False


def _bytes(amounts: Manifest) -> int:
    return int(amounts["storage"].removesuffix("Gi"))


def _reaches(each: Manifest, node: str) -> bool:
    affinity = each["spec"].get("nodeAffinity")
    return affinity is None or affinity["required"]["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] == [node]


def _holds(each: Manifest, wanted: Manifest) -> bool:
    return _bytes(each["spec"]["capacity"]) >= _bytes(wanted["spec"]["resources"]["requests"])


def _suits(each: Manifest, wanted: Manifest) -> bool:
    labels = wanted["spec"].get("selector", {}).get("matchLabels", {})
    return labels.items() <= each["metadata"]["labels"].items() and set(wanted["spec"]["accessModes"]) <= set(
        each["spec"]["accessModes"]
    )


def cluster(objects: list[Manifest], pods: list[Any]) -> ClusterState:
    zones = {"n0": "a", "n1": "b", "n2": "c"}
    state = builders.state(
        [builders.node(name, labels={"zone": zone}) for name, zone in zones.items()],
        builders.queue("default"),
        builders.pod_group("g"),
        pods,
    )
    for each in objects:
        state.upsert(each["kind"], each)
    return state


def agree(session: Session, world: World) -> None:
    for name in ("p0", "p1"):
        assert nodes_for(session, name) == [i for i in range(3) if world.passes(name, f"n{i}")]


@PLAIN
@given(worlds(), st.integers(0, 2))
def test_volumes_as_in_a_plain_loop(case: tuple[list[Manifest], list[Any]], node: int) -> None:
    objects, pods = case
    session, world = builders.decide(cluster(objects, pods), POLICY).session, World(objects, pods)
    agree(session, world)
    if world.passes("p0", f"n{node}"):
        before = nodes_for(session, "p1")
        statement = place(session, "p0", node)
        statement.discard()
        assert nodes_for(session, "p1") == before
        place(session, "p0", node)
        world.place("p0", f"n{node}")
        assert nodes_for(session, "p1") == [i for i in range(3) if world.passes("p1", f"n{i}")]


@PLAIN
@given(worlds(), worlds())
def test_what_is_kept_from_the_session_before_changes_nothing(
    first: tuple[list[Manifest], list[Any]], second: tuple[list[Manifest], list[Any]]
) -> None:
    state = cluster(*first)
    old = builders.decide(state, POLICY).session
    known = [nodes_for(old, name) for name in ("p0", "p1")]
    objects, pods = second
    for kind in ("Pod", "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSINode", "VolumeAttachment"):
        for key in list(state.keys(kind)):
            state.delete(kind, key)
    for each in [*pods, *objects]:
        state.upsert(each["kind"] if isinstance(each, dict) else "Pod", each)
    agree(builders.decide(state, POLICY).session, World(objects, pods))
    assert [nodes_for(old, name) for name in ("p0", "p1")] == known
    assert named(old, "p0").name == "p0"


@PLAIN
@given(worlds(), worlds(), st.sets(st.integers(0, 15), max_size=3))
def test_a_few_objects_that_change_or_go_are_looked_at_again(
    first: tuple[list[Manifest], list[Any]], second: tuple[list[Manifest], list[Any]], which: set[int]
) -> None:
    (objects, pods), others = first, second[0]
    state = cluster(objects, pods)
    agree(builders.decide(state, POLICY).session, World(objects, pods))
    by_key = {(each["kind"], object_key(each)): each for each in objects}
    for at in which:
        changed = others[at % len(others)]
        key = changed["kind"], object_key(changed)
        if key in by_key and changed["kind"] == "PersistentVolume":
            del by_key[key]
            state.delete(*key)
        else:
            by_key[key] = changed
            state.upsert(changed["kind"], changed)
    agree(builders.decide(state, POLICY).session, World(list(by_key.values()), pods))

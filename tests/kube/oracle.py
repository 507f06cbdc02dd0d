"""Kubernetes' placement rules the plain way: one pod, one node, dictionaries as in manifests.

`World` is a cluster at one moment. Its methods answer for one pod and say the same as the vectors of `stromboli.kube`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]


def selects(selector: Manifest | None, labels: dict[str, str]) -> bool:
    """A label selector."""
    if selector is None:
        return False
    wanted = (selector.get("matchLabels") or {}).items()
    expressions = selector.get("matchExpressions") or []
    return all(labels.get(k) == v for k, v in wanted) and all(holds(e, labels) for e in expressions)


def holds(expression: Manifest, labels: dict[str, str]) -> bool:
    """One requirement of a label or node selector."""
    value, values = labels.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdigit() and int(value) > int(values[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdigit() and int(value) < int(values[0])
    raise AssertionError(expression)


def term_selects(term: Manifest, node: Manifest) -> bool:
    """A node selector term."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    name = {"metadata.name": node["metadata"]["name"]}
    return all(holds(e, labels_of(node)) for e in expressions) and all(holds(f, name) for f in fields)


def labels_of(obj: Manifest) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def affinity_of(pod: Manifest, kind: str, strength: str) -> list[Manifest]:
    part = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return part.get(f"{strength}DuringSchedulingIgnoredDuringExecution") or []


def matches_node(pod: Manifest, node: Manifest) -> bool:
    """nodeSelector and required node affinity."""
    if any(labels_of(node).get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    required = affinity_of(pod, "nodeAffinity", "required")
    return not required or any(term_selects(t, node) for t in required["nodeSelectorTerms"])  # type: ignore[call-overload]


def tolerates(pod: Manifest, taint: Manifest) -> bool:
    for t in pod["spec"].get("tolerations") or []:
        if t.get("effect") and t["effect"] != taint["effect"]:
            continue
        if t.get("key") and t["key"] != taint["key"]:
            continue
        if t.get("operator") == "Exists" or t.get("value", "") == taint.get("value", ""):
            return True
    return False


def untolerated(pod: Manifest, node: Manifest, effects: tuple[str, ...]) -> int:
    taints = node["spec"].get("taints") or []
    return sum(t["effect"] in effects and not tolerates(pod, t) for t in taints)


@dataclass
class World:
    nodes: list[Manifest]
    #: pods with the index of their node
    placed: list[tuple[Manifest, int]]
    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)

    # -- filters -------------------------------------------------------------------------------------------------

    def passes(self, pod: Manifest, node: int) -> bool:
        """All filters of the node alone and of the pods placed."""
        n = self.nodes[node]
        cordoned = n["spec"].get("unschedulable") and not tolerates(
            pod, {"key": "node.kubernetes.io/unschedulable", "value": "", "effect": "NoSchedule"}
        )
        return (
            not cordoned
            and matches_node(pod, n)
            and not untolerated(pod, n, ("NoSchedule", "NoExecute"))
            and self.ports_free(pod, node)
            and self.affinity_met(pod, node)
            and self.spread_met(pod, node)
        )

    def ports_free(self, pod: Manifest, node: int) -> bool:
        def ports(p: Manifest) -> list[tuple[str, int, str]]:
            return [
                (x.get("protocol", "TCP"), x["hostPort"], x.get("hostIP") or "0.0.0.0")
                for c in p["spec"]["containers"]
                for x in c.get("ports") or []
                if x.get("hostPort")
            ]

        return not any(
            a[:2] == b[:2] and (a[2] == b[2] or "0.0.0.0" in (a[2], b[2]))
            for other, where in self.placed
            if where == node
            for a in ports(pod)
            for b in ports(other)
        )

    def term_matches(self, term: Manifest, owner: Manifest, other: Manifest) -> bool:
        """Whether a term of `owner` selects another pod."""
        namespaces, selector = term.get("namespaces") or [], term.get("namespaceSelector")
        if not namespaces and selector is None:
            namespaces = [owner["metadata"]["namespace"]]
        where = other["metadata"]["namespace"]
        if where not in namespaces and not selects(selector, self.namespaces.get(where, {})):
            return False
        return selects(term.get("labelSelector"), labels_of(other))

    def same_domain(self, key: str, a: int, b: int) -> bool:
        one, two = labels_of(self.nodes[a]), labels_of(self.nodes[b])
        return key in one and one.get(key) == two.get(key)

    def affinity_met(self, pod: Manifest, node: int) -> bool:
        near = affinity_of(pod, "podAffinity", "required")
        partners = [(p, w) for p, w in self.placed if all(self.term_matches(t, pod, p) for t in near)]
        if near:
            if any(t["topologyKey"] not in labels_of(self.nodes[node]) for t in near):
                return False
            anybody = any(t["topologyKey"] in labels_of(self.nodes[w]) for _, w in partners for t in near)
            itself = all(self.term_matches(t, pod, pod) for t in near)
            together = all(any(self.same_domain(t["topologyKey"], node, w) for _, w in partners) for t in near)
            if not together and (anybody or not itself):
                return False
        for term in affinity_of(pod, "podAntiAffinity", "required"):
            for other, where in self.placed:
                if self.term_matches(term, pod, other) and self.same_domain(term["topologyKey"], node, where):
                    return False
        for other, where in self.placed:
            for term in affinity_of(other, "podAntiAffinity", "required"):
                if self.term_matches(term, other, pod) and self.same_domain(term["topologyKey"], node, where):
                    return False
        return True

    def constraints(self, pod: Manifest, kind: str) -> list[Manifest]:
        return [c for c in pod["spec"].get("topologySpreadConstraints") or [] if c["whenUnsatisfiable"] == kind]

    def counted(self, constraint: Manifest, pod: Manifest, other: Manifest) -> bool:
        """Whether a pod's labels are those that a constraint counts."""
        same = [k for k in constraint.get("matchLabelKeys") or [] if k in labels_of(pod)]
        return selects(constraint.get("labelSelector"), labels_of(other)) and all(
            labels_of(pod)[k] == labels_of(other).get(k) for k in same
        )

    def matching_on(self, constraint: Manifest, pod: Manifest, node: int) -> int:
        selector = constraint.get("labelSelector")
        same = [k for k in constraint.get("matchLabelKeys") or [] if k in labels_of(pod)]
        if selector is not None and not any(selector.values()) and not same:
            return 0  # a selector without requirements counts nobody
        return sum(
            where == node
            and "deletionTimestamp" not in other["metadata"]
            and other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and self.counted(constraint, pod, other)
            for other, where in self.placed
        )

    def eligible(self, wanted: list[Manifest], constraint: Manifest, pod: Manifest) -> list[int]:
        return [
            i
            for i, node in enumerate(self.nodes)
            if all(c["topologyKey"] in labels_of(node) for c in wanted)
            and (constraint.get("nodeAffinityPolicy") == "Ignore" or matches_node(pod, node))
            and (
                constraint.get("nodeTaintsPolicy") != "Honor" or not untolerated(pod, node, ("NoSchedule", "NoExecute"))
            )
        ]

    def per_domain(self, wanted: list[Manifest], constraint: Manifest, pod: Manifest) -> Counter[str]:
        counts: Counter[str] = Counter()
        for i in self.eligible(wanted, constraint, pod):
            counts[labels_of(self.nodes[i])[constraint["topologyKey"]]] += self.matching_on(constraint, pod, i)
        return counts

    def spread_met(self, pod: Manifest, node: int) -> bool:
        wanted = self.constraints(pod, "DoNotSchedule")
        for c in wanted:
            value = labels_of(self.nodes[node]).get(c["topologyKey"])
            if value is None:
                return False
            counts = self.per_domain(wanted, c, pod)
            fewest = min(counts.values()) if counts and len(counts) >= c.get("minDomains", 1) else 0
            if counts[value] + self.counted(c, pod, pod) - fewest > c["maxSkew"]:
                return False
        return True

    # -- scores --------------------------------------------------------------------------------------------------

    def normalized(self, raw: list[int], reverse: bool = False) -> list[int]:
        highest = max(raw)
        if highest == 0:
            return [100 if reverse else 0] * len(raw)
        scores = [100 * r // highest for r in raw]
        return [100 - s for s in scores] if reverse else scores

    def node_affinity(self, pod: Manifest, nodes: list[int]) -> list[int]:
        terms = affinity_of(pod, "nodeAffinity", "preferred")
        return self.normalized(
            [sum(t["weight"] for t in terms if term_selects(t["preference"], self.nodes[i])) for i in nodes]
        )

    def taint_toleration(self, pod: Manifest, nodes: list[int]) -> list[int]:
        return self.normalized([untolerated(pod, self.nodes[i], ("PreferNoSchedule",)) for i in nodes], reverse=True)

    def pod_affinity(self, pod: Manifest, nodes: list[int]) -> list[int]:
        def weigh(owner: Manifest, other: Manifest, node: int, where: int) -> int:
            total = 0
            for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
                for weighted in affinity_of(owner, kind, "preferred"):
                    term = weighted["podAffinityTerm"]
                    if self.term_matches(term, owner, other) and self.same_domain(term["topologyKey"], node, where):
                        total += sign * weighted["weight"]
            return total

        raw = [
            sum(weigh(pod, other, i, where) + weigh(other, pod, i, where) for other, where in self.placed)
            for i in nodes
        ]
        lowest, span = min(raw), max(raw) - min(raw)
        return [int(100 * ((r - lowest) / span)) if span else 0 for r in raw]

    def topology_spread(self, pod: Manifest, nodes: list[int]) -> list[int]:
        wanted = self.constraints(pod, "ScheduleAnyway")
        if not wanted:
            return [0] * len(nodes)
        known = [i for i in nodes if all(c["topologyKey"] in labels_of(self.nodes[i]) for c in wanted)]
        raw: dict[int, int] = {}
        for i in known:
            score = 0.0
            for c in wanted:
                key = c["topologyKey"]
                if key == "kubernetes.io/hostname":
                    count, domains = self.matching_on(c, pod, i), len(known)
                else:
                    count = self.per_domain(wanted, c, pod)[labels_of(self.nodes[i])[key]]
                    domains = len({labels_of(self.nodes[k])[key] for k in known})
                score += count * math.log(domains + 2) + c["maxSkew"] - 1
            raw[i] = math.floor(score + 0.5)
        highest, lowest = max(raw.values(), default=0), min(raw.values(), default=0)
        return [
            0 if i not in raw else 100 if highest == 0 else 100 * (highest + lowest - raw[i]) // highest for i in nodes
        ]


def least_allocated(requested: list[int], allocatable: list[int]) -> int:
    scores = [max(0, a - r) * 100 // a for r, a in zip(requested, allocatable, strict=True) if a]
    return sum(scores) // len(scores) if scores else 0


def most_allocated(requested: list[int], allocatable: list[int]) -> int:
    scores = [min(a, r) * 100 // a for r, a in zip(requested, allocatable, strict=True) if a]
    return sum(scores) // len(scores) if scores else 0


def evenness(amounts: list[int], allocatable: list[int]) -> int:
    shares = [min(1.0, u / a) for u, a in zip(amounts, allocatable, strict=True) if a]
    if len(shares) == 2:
        deviation = abs((shares[0] - shares[1]) / 2)
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        deviation = math.sqrt(sum((s - mean) * (s - mean) for s in shares) / len(shares))
    else:
        deviation = 0.0
    return int((1 - deviation) * 100)


def balanced(request: list[int], allocated: list[int], allocatable: list[int]) -> int:
    together = [r + a for r, a in zip(request, allocated, strict=True)]
    return 50 + (50 + evenness(together, allocatable) - evenness(allocated, allocatable)) // 2

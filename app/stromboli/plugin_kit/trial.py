"""Checks a plugin on random clusters: its answers, what it reads, and its cost.

The session validates each answer, so the checks run sessions in which every action asks, and collect errors. Each
cluster is decided four times: twice alike, and without evictions once in batches and once pod by pod.
"""

from __future__ import annotations

import copy
import functools
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from stromboli.engine import Engine, SessionResult
from stromboli.framework.cluster.environment import OFFLINE
from stromboli.framework.cluster.view import View
from stromboli.framework.plugin.base import Plugin, extension_points
from stromboli.framework.plugin.hints import FLAGS
from stromboli.framework.registry import Registry
from stromboli.framework.runtime import checks
from stromboli.framework.runtime.checks import AnswerError
from stromboli.plugin_kit.clusters import made_up
from stromboli.plugin_kit.steadiness import Steadiness
from stromboli.plugin_kit.surroundings import engine, policy_with, registry_with, state
from stromboli.plugin_kit.vocabulary import words_of
from stromboli.policy.rules import Compatibility
from stromboli.simulation import synthetic
from stromboli.simulation.synthetic import Shape
from stromboli.state.cluster import ClusterState, object_key
from stromboli.state.pods import PodRecord
from stromboli.state.reads import UndeclaredReadError

#: time of the clusters, seconds since the epoch
_NOW = 1_704_067_200.0
_MODES: tuple[Compatibility, ...] = ("strict", "volcano")
_SESSIONS = 2
_ORDERS = frozenset(("queue_order", "job_order", "sub_job_order", "task_order", "victim_queue_order"))
_PLACING = frozenset(("enqueue", "allocate", "backfill"))
#: limit on reported problems of one kind
_TOLD = 3
#: shapes that are measured: the number of pods, and a description
_TIMED = {Shape.gang: (500, "alike"), Shape.distinct: (100, "all different")}
_TIMED_RUNS = 3


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    check: str
    #: problems, one line each
    problems: Sequence[str] = ()
    #: additional information
    note: str = ""


def try_plugin(
    plugin: type[Plugin],
    policy: Mapping[str, Any] | None = None,
    *,
    registry: Registry | None = None,
    clusters: int = 30,
    seed: int = 0,
    nodes: int = 5_000,
) -> list[Finding]:
    """Check a plugin on random clusters, and measure it on one of `nodes` nodes, unless that is 0.

    `policy` is a document that uses the plugin; by default the usual plugins and this one without arguments. Raises
    PolicyError.
    """
    known = registry_with(plugin, known=registry)
    policy = policy or policy_with(plugin=plugin.name)
    trial = _Trial(plugin, policy, known)
    for number in range(clusters):
        trial.decide(Random(f"{seed}/{number}"), number)
    return [*trial.findings(clusters), *([_cost(plugin.name, policy, known, nodes)] if nodes else ())]


class _Alone(Plugin):
    """Places every pod separately, with every plugin asked anew."""

    name = "trial-alone"

    def varies(self, pod: PodRecord) -> bool:
        return True


#: the validation of answers whose dependencies are declared
_CHECKED: Mapping[str, Callable[[Any, Any, int], Any]] = {
    "predicate": lambda method, answer, nodes: list(checks.filters(method, answer, nodes)),
    "node_order": checks.scores,
}


def _watched(plugin: type[Plugin], calls: Counter[str], tell: Callable[[str], None]) -> type[Plugin]:
    """A subclass of the plugin that counts the calls of its methods and checks its answers about nodes."""

    def counting(point: str) -> Any:
        original, check = getattr(plugin, point), _CHECKED.get(point)

        @functools.wraps(original)
        def call(self: Plugin, *subject: Any) -> Any:
            calls[point] += 1
            method = getattr(super(watching, self), point)
            answer = method(*subject)
            if check is None:
                return answer
            pod, nodes = subject
            answer = check(method, answer, len(nodes))
            problem = watched[self].problem(point, pod, nodes, answer)
            if problem:
                tell(problem)
            return answer

        return call

    def opening(self: Plugin, view: View) -> None:
        watched[self] = Steadiness(self, view)
        plugin.open(self, view)

    watched: WeakKeyDictionary[Plugin, Steadiness] = WeakKeyDictionary()
    body = {point: counting(point) for point in extension_points(plugin)}
    body |= {flag: getattr(plugin, flag) for flag in FLAGS}
    body |= {"__module__": plugin.__module__, "open": opening}
    watching: type[Plugin] = type(plugin.__name__, (plugin,), body)
    return watching


class _Trial:
    """Sessions on one cluster after another, and their problems by check."""

    def __init__(self, plugin: type[Plugin], policy: Mapping[str, Any], registry: Registry) -> None:
        self._plugin = plugin
        self._calls: Counter[str] = Counter()
        self._words = words_of(plugin, [tier["plugins"] for tier in policy["tiers"]])
        #: problems of the plugin's answers about nodes in the current cluster
        self._unsteady: list[str] = []
        known = registry_with(_watched(plugin, self._calls, self._unsteady.append), _Alone, known=registry)
        placing = _placing(policy)
        documents = (policy, placing, _with(placing, _Alone.name))
        self._engines = [[engine(document, known, mode) for document in documents] for mode in _MODES]
        self._answers = _Problems()
        self._keys = _Problems()
        self._undeclared = _Problems()
        self._unlike = _Problems()
        self._batches = _Problems()
        self._changed = _Problems()

    def decide(self, chance: Random, number: int) -> None:
        """Decide one cluster four times and compare."""
        objects = made_up(chance, self._plugin.reads, self._words)
        whole, together, alone = self._engines[number % len(_MODES)]
        self._unsteady.clear()
        given = copy.deepcopy(objects)
        first, second = _sessions(whole, given), _sessions(whole, copy.deepcopy(objects))
        for (kind, now), (_, was) in zip(given, objects, strict=True):
            if now != was:
                changed = f"{kind} {object_key(now)} was changed: plugins must not modify objects of the state"
                self._changed.add(changed, number)
                break
        failures = [failure for result in first for failure in result.session.failures]
        for failure in failures:
            self._check_of(failure.error).add(_told(failure.error), number)
        if failures:
            return
        if [result.decisions for result in first] != [result.decisions for result in second]:
            self._unlike.add("two runs on the same objects decided differently", number)
        one_pass, one_by_one = (_sessions(by, copy.deepcopy(objects)) for by in (together, alone))
        for problem in dict.fromkeys(self._unsteady):
            self._batches.add(problem, number)
        for one, other in zip(one_pass, one_by_one, strict=True):
            pod = _difference(one.session.bound, other.session.bound)
            if pod:
                self._batches.add(pod, number)
                return

    def _check_of(self, error: BaseException) -> _Problems:
        if isinstance(error, UndeclaredReadError):
            return self._undeclared
        return self._keys if isinstance(error, AnswerError) and error.method in _ORDERS else self._answers

    def findings(self, clusters: int) -> Iterator[Finding]:
        taken = extension_points(self._plugin)
        silent = [point for point in taken if not self._calls[point]]
        note = f"{self._calls.total()} calls in {clusters} clusters" + (
            f"; never asked: {', '.join(silent)}" if silent else ""
        )
        yield Finding("answers have the right type and shape", self._answers.lines(), note)
        yield Finding("keys compare with each other", self._keys.lines())
        yield Finding("only declared keys are read", self._undeclared.lines())
        yield Finding("arguments are not modified", self._changed.lines())
        yield Finding("two runs are equal", self._unlike.lines())
        yield Finding("pods are placed in batches as one by one", self._batches.lines())


class _Problems:
    """Problems of one kind, each reported once with the number of the first cluster."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}
        self._count: Counter[str] = Counter()

    def add(self, problem: str, cluster: int) -> None:
        self._first.setdefault(problem, cluster)
        self._count[problem] += 1

    def lines(self) -> list[str]:
        told = [
            f"{problem} (cluster {self._first[problem]}{_again(count - 1)})"
            for problem, count in self._count.most_common(_TOLD)
        ]
        more = len(self._count) - len(told)
        return [*told, f"and {more} more"] if more else told


def _placing(policy: Mapping[str, Any]) -> dict[str, Any]:
    """A policy document that places pods in their order: without evicting actions and the search for whole gangs."""
    actions = [name for name in str(policy["actions"]).replace(",", " ").split() if name in _PLACING]
    session = {**(policy.get("session") or {}), "search": 0}
    return {**policy, "session": session, **({"actions": ", ".join(actions)} if actions else {})}


def _with(policy: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A policy document with one more plugin in the last tier."""
    *tiers, last = policy["tiers"]
    return {**policy, "tiers": [*tiers, {**last, "plugins": [*last["plugins"], {"name": name}]}]}


def _without(policy: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A policy document without a plugin."""
    tiers = [[option for option in tier["plugins"] if option["name"] != name] for tier in policy["tiers"]]
    return {**policy, "tiers": [{"plugins": tier} for tier in tiers if tier]}


def _again(more: int) -> str:
    return f" and {more} time{'s'[: more > 1]} more" if more else ""


def _sessions(by: Engine, objects: list[tuple[str, Any]]) -> list[SessionResult]:
    """Consecutive sessions on the same objects, each continuing from the last."""
    cluster, environment, results = state(objects, by.registry.reads), OFFLINE, []
    for number in range(_SESSIONS):
        results.append(by.decide(cluster.snapshot(), now=_NOW + number, environment=environment))
        environment = results[-1].environment
    return results


def _told(error: BaseException) -> str:
    """An error in one line, with its source location unless it names the method."""
    if isinstance(error, AnswerError | UndeclaredReadError):
        return str(error)
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} in {at.name}(), line {at.lineno} of {Path(at.filename).name}"


def _difference(together: Mapping[str, str], alone: Mapping[str, str]) -> str:
    """A description of the first pod that is placed differently."""
    for pod in sorted(together.keys() | alone.keys()):
        if together.get(pod) != alone.get(pod):
            where, by_itself = (on.get(pod, "nowhere") for on in (together, alone))
            return f"pod {pod} is placed on {where}, by itself on {by_itself}: see `varies`, `one_by_one`"
    return ""


def _cost(name: str, policy: Mapping[str, Any], registry: Registry, nodes: int) -> Finding:
    """The cost of a pod with the plugin and without it."""
    problems, notes = _Problems(), []
    for shape, (pods, kind) in _TIMED.items():
        cluster = synthetic.cluster(nodes, pods, max(1, pods // 50), shape, reads=registry.reads)
        timed = []
        for document in (policy, _without(policy, name)):
            by = engine(document, registry)
            runs = [_timed(by, cluster) for _ in range(_TIMED_RUNS)]
            timed.append(1e3 * min(seconds for seconds, _ in runs) / pods)
            for failure in runs[0][1].session.failures:
                problems.add(_told(failure.error), 0)
        notes.append(f"{timed[0]:.3f} ms for each of {pods} pods, {kind} ({timed[1]:.3f} ms without it)")
    return Finding(f"cost at {nodes} nodes", problems.lines(), "; ".join(notes))


def _timed(by: Engine, cluster: ClusterState) -> tuple[float, SessionResult]:
    """CPU seconds of one session, and the session."""
    snapshot = cluster.snapshot()
    with synthetic.undisturbed():
        began = time.process_time()
        result = by.decide(snapshot, now=_NOW)
        return time.process_time() - began, result

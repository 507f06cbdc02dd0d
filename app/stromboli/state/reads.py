"""The pod data that plugins read, beyond the spec that pods are placed by.

Pods that differ in data that a plugin places them by must not share an answer, so that data is part of their class.
Data that no plugin reads is dropped: for 100,000 pods not every annotation can be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from stromboli.api import objects
from stromboli.api.errors import StromboliError

#: fields that can be declared, and where a pod has them
FIELDS: Mapping[str, Callable[[objects.Pod], Hashable]] = {
    "name": lambda pod: pod.metadata.name,
    "namespace": lambda pod: pod.metadata.namespace or "default",
    "spec_priority": lambda pod: pod.spec.priority,
    "priority_class_name": lambda pod: pod.spec.priority_class_name or "",
    "scheduler_name": lambda pod: pod.spec.scheduler_name or "",
    "host_network": lambda pod: bool(pod.spec.host_network),
    "runtime_class_name": lambda pod: pod.spec.runtime_class_name or "",
    "terminating": lambda pod: pod.spec.active_deadline_seconds is not None,
}
#: fields of the spec that follow from no other part of a class: a class has them if they are declared
IN_SPEC: Mapping[str, str] = {
    "spec_priority": "priority",
    "priority_class_name": "priority_class_name",
    "scheduler_name": "scheduler_name",
    "host_network": "host_network",
    "runtime_class_name": "runtime_class_name",
    "terminating": "active_deadline_seconds",
}


@dataclass(frozen=True, slots=True, init=False)
class Reads:
    """A declaration, of a plugin or of several together."""

    #: keys of labels, of annotations, and names from FIELDS that predicates and scores depend on
    labels: frozenset[str]
    annotations: frozenset[str]
    fields: frozenset[str]
    #: keys of annotations that are read of single pods only, such as what a pod got with its place; `PREFIX/` is all
    kept: frozenset[str]
    #: whether the plugin sees pods whole: it answers for it that what else it reads of one makes the pod vary
    whole: bool

    def __init__(
        self,
        *,
        labels: Iterable[str] = (),
        annotations: Iterable[str] = (),
        fields: Iterable[str] = (),
        kept: Iterable[str] = (),
        whole: bool = False,
    ) -> None:
        """Raises ValueError for a field that cannot be declared."""
        given = {"labels": labels, "annotations": annotations, "fields": fields, "kept": kept}
        for name, value in given.items():
            if isinstance(value, str) or not all(isinstance(key, str) for key in value):
                raise ValueError(f"{name} should be a collection of texts, such as ({value!r},), not {value!r}")
            object.__setattr__(self, name, frozenset(value))
        object.__setattr__(self, "whole", whole)
        unknown = sorted(self.fields - FIELDS.keys())
        if unknown:
            raise ValueError(f"there is no field {unknown[0]!r} to read; there are {', '.join(FIELDS)}")

    def __or__(self, other: Reads) -> Reads:
        return Reads(
            labels=self.labels | other.labels,
            annotations=self.annotations | other.annotations,
            fields=self.fields | other.fields,
            kept=self.kept | other.kept,
        )

    def __ge__(self, other: Reads) -> bool:
        """Whether this includes everything that another declares."""
        return (
            self.labels >= other.labels
            and self.annotations >= other.annotations
            and self.fields >= other.fields
            and self.kept >= other.kept
        )

    def of_class(self, pod: objects.Pod) -> ClassReads:
        """The declared data of a pod that becomes part of its class."""
        meta = pod.metadata
        return ClassReads(
            labels=_among(self.labels, meta.labels),
            annotations=_among(self.annotations, meta.annotations),
            fields={name: FIELDS[name](pod) for name in self.fields} if self.fields else _NOTHING,
        )

    def keeper(self, always: Iterable[str]) -> AnnotationKeeper:
        """Picks the annotations that are kept with a pod."""
        keys = self.annotations | self.kept | frozenset(always)
        return AnnotationKeeper(keys, tuple(key for key in keys if key.endswith("/")))


NOTHING_ELSE = Reads()
#: the most annotation keys for which the decision to keep them is cached
_MOST_KNOWN = 1_000
_NOTHING: Mapping[str, str] = {}


class ClassReads(Struct, frozen=True):
    """The values of the declared data that the pods of one class share."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    fields: Mapping[str, Hashable]


class UndeclaredReadError(StromboliError):
    """A plugin reads an undeclared field of a pod; the answer could be silently wrong."""

    def __init__(self, what: str, key: str, plugin: type | None = None) -> None:
        where = f"class {plugin.__name__}" if plugin is not None else "the plugin's class"
        declared = {"label": "labels", "annotation": "annotations", "field": "fields"}[what]
        line = f"reads = Reads({declared}=({key!r},))"
        super().__init__(f"the {what} {key!r} of pods is read but not declared: add `{line}` to {where}")


class Annotations(dict[str, str]):
    """The annotations that are kept with a pod. Asking for one that no plugin declares is an error."""

    __slots__ = ("_keeper",)
    _keeper: AnnotationKeeper

    @classmethod
    def of(cls, annotations: Mapping[str, str], keeper: AnnotationKeeper) -> Annotations:
        """The annotations that a keeper picked."""
        # One is created for each event, and an __init__ method would take longer than everything else.
        made = cls(annotations)
        made._keeper = keeper
        return made

    def __missing__(self, key: str) -> str:
        self._keeper.expect(key)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        self._keeper.expect(str(key))
        return False

    def get(self, key: str, default: Any = None) -> Any:
        found = dict.get(self, key)
        if found is None:
            self._keeper.expect(key)
            return default
        return found


class AnnotationKeeper:
    """Selection of the annotations that are kept, see `Reads.keeper`."""

    __slots__ = ("_keys", "_known", "_none", "_prefixes", "_seen")

    def __init__(self, keys: frozenset[str], prefixes: tuple[str, ...]) -> None:
        self._keys = keys
        self._prefixes = prefixes
        #: of some annotations, whether they are kept
        self._known: dict[str, bool] = {}
        self._none = Annotations.of({}, self)
        #: some that were kept: pods of a gang have the same
        self._seen: dict[tuple[tuple[str, str], ...], Annotations] = {}

    def keep(self, annotations: Mapping[str, str] | None) -> Annotations:
        """The annotations of a pod that are kept."""
        if not annotations:
            return self._none
        known = self._known
        try:
            kept = {key: value for key, value in annotations.items() if known[key]}
        except KeyError:
            if len(known) > _MOST_KNOWN:
                known.clear()
            known.update((key, self._keeps(key)) for key in annotations)
            kept = {key: value for key, value in annotations.items() if known[key]}
        return self._shared(kept) if kept else self._none

    def _shared(self, kept: dict[str, str]) -> Annotations:
        key = tuple(kept.items())
        found = self._seen.get(key)
        if found is None:
            if len(self._seen) >= _MOST_KNOWN:
                self._seen.clear()
            found = self._seen[key] = Annotations.of(kept, self)
        return found

    def expect(self, key: str) -> None:
        """Raises UndeclaredReadError when an annotation would not be kept if it was there."""
        if not self._keeps(key):
            raise UndeclaredReadError("annotation", key)

    def _keeps(self, key: str) -> bool:
        return key in self._keys or key.startswith(self._prefixes)


def _among(keys: frozenset[str], given: Mapping[str, str] | None) -> Mapping[str, str]:
    if not given or keys.isdisjoint(given):
        return _NOTHING
    return {key: given[key] for key in sorted(keys & given.keys())}

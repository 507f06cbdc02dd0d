"""The table of kinds: the package's rows, those of installed packages, and those of manifests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.metadata import entry_points

from stromboli.api.documents import read_yaml
from stromboli.api.errors import InvalidObjectError
from stromboli.api.validation import did_you_mean
from stromboli.workloads.gangs import Gang, Workload, by_paths, makes_in_order, workload
from stromboli.workloads.makers import MAKERS
from stromboli.workloads.model import Starts, WorkloadKind, row
from stromboli.workloads.paths import Object, items, mapping
from stromboli.workloads.readers import READERS, Reader

ENTRY_POINTS = "stromboli.workloads"


@dataclass(frozen=True, slots=True)
class Kind:
    """A row of the table, and what reads objects of the kind."""

    row: WorkloadKind
    reader: Reader

    @classmethod
    def of(cls, row: WorkloadKind, where: str = "") -> Kind:
        """The kind of a row. Raises InvalidObjectError for a reader that is not known."""
        if row.reader and row.reader not in READERS:
            problem = f"unknown reader {row.reader!r}{did_you_mean(row.reader, READERS)}"
            raise InvalidObjectError(where or row.kind, "spec.reader", problem)
        if row.maker and row.maker not in MAKERS:
            problem = f"unknown maker {row.maker!r}{did_you_mean(row.maker, MAKERS)}"
            raise InvalidObjectError(where or row.kind, "spec.maker", problem)
        return cls(row, READERS.get(row.reader) or by_paths)

    @property
    def name(self) -> str:
        """Kind and group, as kubectl writes them: `RayCluster.ray.io`."""
        return f"{self.row.kind}.{self.row.group}" if self.row.group else self.row.kind

    def read(self, owner: Object) -> Workload:
        """The workload that an object of the kind stands for. Raises InvalidObjectError."""
        if self.row.starts is Starts.in_parts:
            return Workload()
        if self.row.starts is Starts.one_by_one:
            roles = by_paths(owner, self.row).gangs[0].roles
            return workload(owner, self.row, Gang(roles, least=1, at_first=1 if makes_in_order(owner) else None))
        return self.reader(owner, self.row)


class Kinds:
    """Kinds by their group and name."""

    def __init__(self, kinds: Iterable[Kind] = ()) -> None:
        self._kinds = {(kind.row.group, kind.row.kind): kind for kind in kinds}

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._kinds.values())

    def get(self, api_version: str, kind: str) -> Kind | None:
        """The kind of an object or of a reference to one."""
        group, slash, _ = api_version.partition("/")
        return self._kinds.get((group if slash else "", kind))

    def of(self, manifest: Object) -> Kind | None:
        """The kind of a manifest; one without an apiVersion is of the first group with such a kind."""
        version, kind = manifest.get("apiVersion"), manifest.get("kind")
        if not isinstance(kind, str):
            return None
        if not isinstance(version, str) or not version:
            # A PodGroup is Volcano's then.
            return next((each for (_, known), each in self._kinds.items() if known == kind != "PodGroup"), None)
        return self.get(version, kind)

    def read(self, owner: Object) -> Workload:
        """Workload that an object stands for; empty where a part of what it wraps makes its pods in order.

        Raises InvalidObjectError.
        """
        kind = self.of(owner)
        if kind is None:
            return Workload()
        wraps = [part for part in kind.row.makes if part.unless]
        wrapped = (mapping(entry, part.whole) for part in wraps for _, entry in items(owner, part.each))
        return Workload() if any(map(self._comes_in_order, wrapped)) else kind.read(owner)

    def _comes_in_order(self, owner: Object) -> bool:
        kind = self.of(owner)
        return kind is not None and kind.row.starts is Starts.together and kind.read(owner).in_order

    def add(self, kind: Kind) -> None:
        """Add a kind, or put it in the place of the one with its name."""
        self._kinds[kind.row.group, kind.row.kind] = kind

    def __len__(self) -> int:
        return len(self._kinds)

    def copy(self) -> Kinds:
        """A copy, to add other kinds to."""
        return Kinds(self)


def known_kinds() -> Kinds:
    """The kinds of the package and of installed packages. Raises InvalidObjectError for one that cannot be used."""
    return _known().copy()


@cache
def _known() -> Kinds:
    text = resources.files(__package__).joinpath("kinds.yaml").read_text()
    kinds = Kinds(Kind.of(row(fields, f"kinds.yaml: {fields.get('kind')}")) for fields in next(read_yaml(text)))
    for entry in entry_points(group=ENTRY_POINTS):
        where = f"entry point {entry.name} of {entry.dist.name if entry.dist else entry.value}"
        try:
            found = entry.load()
        except Exception as error:
            raise InvalidObjectError(where, "", f"{entry.value} cannot be loaded: {error!r}") from error
        if not isinstance(found, Kind):
            raise InvalidObjectError(where, "", f"{entry.value} is no {Kind.__module__}.{Kind.__qualname__}")
        kinds.add(found)
    return kinds

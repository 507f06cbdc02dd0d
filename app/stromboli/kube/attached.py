"""VolumeAttachments: which volumes are attached to which nodes, kept from session to session.

A volume is attached before its first pod starts on a node, and stays attached for a while after its last pod has left.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import cast

import numpy as np

from stromboli.api.resources import Rows
from stromboli.kube.mounted import Numbering, Numbers
from stromboli.kube.storage import Storage, VolumeAttachment
from stromboli.state.nodes import NodeFacts
from stromboli.state.plain import NO_OBJECTS
from stromboli.state.snapshot import Snapshot

_ATTACHMENTS, _VOLUMES = "VolumeAttachment", "PersistentVolume"
#: the table is rebuilt when more rows than this are vacant, beyond the number of rows in use
_SLACK = 1_000
#: a vacant row: hash of the name, and numbers of node, volume and driver
_VACANT = (0, -1, -1, -1)


def volume_attachments(snapshot: Snapshot, storage: Storage, numbering: Numbering) -> VolumeAttachments:
    """The VolumeAttachments of a snapshot, by the numbers of their volumes and drivers."""
    known = cast("VolumeAttachments | None", snapshot.derived.get(VolumeAttachments))
    if known is None or not known.may_go_on(storage, numbering):
        known = VolumeAttachments(numbering)
    known = snapshot.derived[VolumeAttachments] = known.after(storage)
    return known


class VolumeAttachments:
    """An immutable table of VolumeAttachments; an updated copy replaces it when objects change."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._plain = dict.fromkeys((_ATTACHMENTS, _VOLUMES), NO_OBJECTS)
        #: the row of each VolumeAttachment, and the numbers of node names
        self._rows, self._nodes = Numbers(), Numbers()
        #: columns as in `_VACANT`, shape (4, rows)
        self._table = np.zeros((4, 0), np.intp)
        #: the nodes of the last query, and its answer
        self._known: tuple[NodeFacts, tuple[Rows, Rows, Rows]] | None = None

    def may_go_on(self, storage: Storage, numbering: Numbering) -> bool:
        """Whether the numbers of volumes are unchanged, and few rows are vacant."""
        return self._numbering is numbering and self._table.shape[1] <= 2 * len(storage.plain(_ATTACHMENTS)) + _SLACK

    def after(self, storage: Storage) -> VolumeAttachments:
        """The table after some objects changed."""
        plain = {kind: storage.plain(kind) for kind in self._plain}
        changed = dict.fromkeys(plain[_ATTACHMENTS].changed_since(self._plain[_ATTACHMENTS]))
        changed |= dict.fromkeys(self._naming(plain[_VOLUMES].changed_since(self._plain[_VOLUMES])))
        out = copy(self)
        out._plain = plain
        if changed:
            rows = [self._rows.of(name) for name in changed]
            more = max(0, max(rows) + 1 - self._table.shape[1])
            out._known, out._table = None, np.pad(self._table, ((0, 0), (0, more)))
            out._table[:, rows] = np.array([out._read(name, storage) for name in changed], np.intp).T
        return out

    def _naming(self, volumes: list[str]) -> Iterator[str]:
        """The rows of VolumeAttachments for any of some volumes, possibly with a few others."""
        stale = set(np.flatnonzero(np.isin(self._table[0], list(map(hash, volumes)))).tolist()) if volumes else ()
        if stale:
            yield from (cast("str", name) for name, row in self._rows.known.items() if row in stale)

    def _read(self, name: str, storage: Storage) -> tuple[int, int, int, int]:
        """The row of a VolumeAttachment."""
        if name not in self._plain[_ATTACHMENTS]:
            return _VACANT
        spec = self._plain[_ATTACHMENTS].read(name, VolumeAttachment).spec
        named = spec.source.persistent_volume_name
        if not spec.attacher or named is None:
            return _VACANT
        volume = storage.volume(named)
        if volume is None or volume.spec.csi is None:
            return hash(named), -1, -1, -1
        numbers = self._numbering
        attached = numbers.volumes.of((spec.attacher, volume.spec.csi.volume_handle))
        return hash(named), self._nodes.of(spec.node_name), attached, numbers.drivers.of(spec.attacher)

    def pairs(self, facts: NodeFacts) -> tuple[Rows, Rows, Rows]:
        """Numbers of volumes, indices of the nodes that they are attached to, and numbers of their drivers."""
        known = self._known
        if known is None or known[0] is not facts:
            index = np.full(len(self._nodes.known) + 1, -1)
            for name, number in self._nodes.known.items():
                index[number] = facts.index.get(cast("str", name), -1)
            _, node, volume, driver = self._table
            node = index[node]
            there = np.flatnonzero(node >= 0)
            known = self._known = facts, (volume[there], node[there], driver[there])
        return known[1]

"""VolumeAttachments: which volumes are attached to which nodes, kept from session to session.

A volume is attached before its first pod runs on a node, and stays so for a while after the last one has left.
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
#: rows that are out of use, beyond as many as are in use, until all is read anew
_SLACK = 1_000
#: where no volume is attached: the hash of its name, the numbers of node, volume and driver
_VACANT = (0, -1, -1, -1)


def volume_attachments(snapshot: Snapshot, storage: Storage, numbering: Numbering) -> VolumeAttachments:
    """The VolumeAttachments of a snapshot, with volumes and drivers as they are numbered."""
    known = cast("VolumeAttachments | None", snapshot.derived.get(VolumeAttachments))
    if known is None or not known.may_go_on(storage, numbering):
        known = VolumeAttachments(numbering)
    known = snapshot.derived[VolumeAttachments] = known.after(storage)
    return known


class VolumeAttachments:
    """See the module's docstring. It is not changed: the next one is made of it."""

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._plain = dict.fromkeys((_ATTACHMENTS, _VOLUMES), NO_OBJECTS)
        #: the row of each VolumeAttachment, and numbers of names of nodes
        self._rows, self._nodes = Numbers(), Numbers()
        #: see `_VACANT`, shape (4, rows)
        self._table = np.zeros((4, 0), np.intp)
        #: the nodes that were asked about last, and the answer
        self._known: tuple[NodeFacts, tuple[Rows, Rows, Rows]] | None = None

    def may_go_on(self, storage: Storage, numbering: Numbering) -> bool:
        """Whether volumes are numbered as before, and few rows are out of use."""
        return self._numbering is numbering and self._table.shape[1] <= 2 * len(storage.plain(_ATTACHMENTS)) + _SLACK

    def after(self, storage: Storage) -> VolumeAttachments:
        """What there is now that some objects changed."""
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
        """The VolumeAttachments that name any of some volumes, and maybe some others."""
        stale = set(np.flatnonzero(np.isin(self._table[0], list(map(hash, volumes)))).tolist()) if volumes else ()
        if stale:
            yield from (cast("str", name) for name, row in self._rows.known.items() if row in stale)

    def _read(self, name: str, storage: Storage) -> tuple[int, int, int, int]:
        """A row of the table."""
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
        """Numbers of volumes, the nodes to which they are attached, by index, and numbers of their drivers."""
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

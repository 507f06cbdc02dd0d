"""CSI migration: in-tree volumes of cloud providers as their CSI drivers identify them.

kube-scheduler counts such volumes against the limits of these drivers, except those of vSphere and Azure Files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from stromboli.api.objects import Disks, NodeSelectorTerm, Requirement

#: a driver, and the volume's handle
Volume: TypeAlias = tuple[str, str]

_AWS, _AZURE, _CINDER, _GCE, _PORTWORX = (
    *("ebs.csi.aws.com", "disk.csi.azure.com", "cinder.csi.openstack.org"),
    *("pd.csi.storage.gke.io", "pxd.portworx.com"),
)
_DRIVERS = {
    "kubernetes.io/aws-ebs": _AWS,
    "kubernetes.io/azure-disk": _AZURE,
    "kubernetes.io/cinder": _CINDER,
    "kubernetes.io/gce-pd": _GCE,
    "kubernetes.io/portworx-volume": _PORTWORX,
}
_OLD_ZONE, _OLD_REGION = "failure-domain.beta.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/region"
_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
_ZONES = {_OLD_ZONE, _ZONE}
#: by driver, the label with the zone of a node
_TOPOLOGIES = {
    _AWS: "topology.ebs.csi.aws.com/zone",
    _CINDER: "topology.cinder.csi.openstack.org/zone",
    _GCE: "topology.gke.io/zone",
}
_UNSPECIFIED = "UNSPECIFIED"
#: the kind of disks that Azure's driver handles; the API server has `Shared` where none is named
_MANAGED = "managed"
_AWS_URL = re.compile(r"aws://[^/]*/+(vol-[^/]*)/*")


def driver_of(provisioner: str) -> str:
    """The driver that serves a provisioner."""
    return _DRIVERS.get(provisioner, provisioner)


def migrated(disks: Disks, labels: Mapping[str, str] | None = None) -> Volume | None:
    """The driver's handle of a disk; None if the disk is not migrated. `labels` are those of its volume."""
    return next((volume for volume in _known_as(disks, labels or {}) if volume[1]), None)


def unmigrated(disks: Disks, labels: Mapping[str, str] | None = None) -> str:
    """The in-tree plugin of a disk that the driver of this plugin cannot handle; empty where there is none."""
    driver = next((driver for driver, handle in _known_as(disks, labels or {}) if not handle), "")
    return next((plugin for plugin, of in _DRIVERS.items() if of == driver), "")


def migrated_terms(
    disks: Disks, labels: Mapping[str, str], terms: Sequence[NodeSelectorTerm]
) -> tuple[str, list[NodeSelectorTerm]] | None:
    """The in-tree plugin of a volume's disk, and the node affinity terms with the driver's labels.

    None if the driver labels its nodes as the plugin did.
    """
    driver = next((driver for driver, _ in _known_as(disks, labels)), "")
    topology = _TOPOLOGIES.get(driver)
    if topology is None:
        return None
    expressions = [each for term in terms for each in term.match_expressions or ()]
    asked, valued = {each.key for each in expressions}, {each.key for each in expressions if each.values}
    zone = next((key for key in (_ZONE, _OLD_ZONE) if key in asked or (not asked & _ZONES and key in labels)), _ZONE)
    renamed = {zone: topology, **({_OLD_REGION: _REGION} if zone == _OLD_ZONE else {})}
    # A label that the terms name without a value, such as by `Exists`, stays as it is.
    renamed = {old: new for old, new in renamed.items() if old in valued}
    zones = sorted({each.strip() for each in labels.get(zone, "").split("__")} - {""})
    more = [Requirement(topology, "In", zones)] if zones and zone not in valued else []
    plugin = next(plugin for plugin, of in _DRIVERS.items() if of == driver)
    return plugin, [_renamed(term, renamed, more) for term in terms or ([NodeSelectorTerm()] if more else [])]


def _renamed(term: NodeSelectorTerm, names: Mapping[str, str], more: Sequence[Requirement]) -> NodeSelectorTerm:
    """A term with label keys replaced and with requirements added."""
    kept = [replace(each, key=names.get(each.key, each.key)) for each in term.match_expressions or ()]
    return replace(term, match_expressions=[*kept, *more])


def _known_as(disks: Disks, labels: Mapping[str, str]) -> Iterator[Volume]:
    if (gce := disks.gce_persistent_disk) is not None:
        place = _gce_place(labels)
        yield _GCE, f"projects/{_UNSPECIFIED}/{place}/disks/{gce.pd_name}" if place else ""
    if (aws := disks.aws_elastic_block_store) is not None:
        yield _AWS, _aws_id(aws.volume_id)
    if (azure := disks.azure_disk) is not None:
        managed = (azure.kind or _MANAGED).lower() == _MANAGED
        yield _AZURE, azure.disk_uri if managed else ""
    if (cinder := disks.cinder) is not None:
        yield _CINDER, cinder.volume_id
    if (portworx := disks.portworx_volume) is not None:
        yield _PORTWORX, portworx.volume_id


def _gce_place(labels: Mapping[str, str]) -> str:
    """The part of a handle that names the location of a disk, empty if its zones are in several regions."""
    zones = next(filter(None, map(labels.get, (_OLD_ZONE, _ZONE))), _UNSPECIFIED).split("__")
    if len(zones) == 1:
        return f"zones/{zones[0]}"
    regions = {zone.rpartition("-")[0] if zone.count("-") == 2 else "" for zone in zones}
    return f"regions/{regions.pop()}" if len(regions) == 1 and "" not in regions else ""


def _aws_id(volume: str) -> str:
    """The ID in `aws://ZONE/ID` or in a plain ID, empty if there is none."""
    if not volume.startswith("aws://"):
        return volume
    found = _AWS_URL.fullmatch(volume)
    return found[1] if found else ""

"""Volumes of pods."""

from __future__ import annotations

from typing import Any

from msgspec import field

from stromboli.api.objects.base import Record


class ClaimVolume(Record, frozen=True):
    claim_name: str


class ImageVolume(Record, frozen=True):
    reference: str | None = ""


class GCEDisk(Record, frozen=True):
    pd_name: str = ""
    read_only: bool | None = False


class AWSDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class ISCSIDisk(Record, frozen=True):
    iqn: str = ""
    read_only: bool | None = False


class RBDImage(Record, frozen=True):
    monitors: list[str] | None = None
    image: str = ""
    pool: str | None = "rbd"
    read_only: bool | None = False


class AzureDisk(Record, frozen=True):
    disk_uri: str = field(default="", name="diskURI")
    kind: str | None = None


class CinderDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class PortworxDisk(Record, frozen=True):
    volume_id: str = field(default="", name="volumeID")


class Disks(Record, frozen=True, kw_only=True):
    """Sources of an inline volume that attach a disk; a volume has one at most."""

    gce_persistent_disk: GCEDisk | None = None
    aws_elastic_block_store: AWSDisk | None = None
    iscsi: ISCSIDisk | None = None
    rbd: RBDImage | None = None
    azure_disk: AzureDisk | None = None
    cinder: CinderDisk | None = None
    portworx_volume: PortworxDisk | None = None

    @property
    def names_disk(self) -> bool:
        """Whether the volume attaches a disk."""
        return bool(
            self.gce_persistent_disk
            or self.aws_elastic_block_store
            or self.iscsi
            or self.rbd
            or self.azure_disk
            or self.cinder
            or self.portworx_volume
        )


class Volume(Disks, frozen=True):
    name: str
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: dict[str, Any] | None = None
    image: ImageVolume | None = None

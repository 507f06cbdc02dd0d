"""What the service can be told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FilePath, StringConstraints, model_validator

_Name: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0.001, le=86_400)]
_Pause: TypeAlias = Annotated[float, Field(ge=0, le=86_400)]
_Rate: TypeAlias = Annotated[float, Field(ge=0.01, le=1_000_000)]

#: the longest that a lease may stand unchanged until another takes it, whatever it says, in seconds
LONGEST_LEASE = 600


class Settings(BaseModel):
    """Settings of the service; times are in seconds, rates per second."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)

    kubeconfig: Path | None = None
    """A kubeconfig file; without one $KUBECONFIG, the pod's service account or ~/.kube/config is used."""
    context: str | None = None
    """The context in it, by default the current one."""
    scheduler_names: tuple[_Name, ...] = Field(default=("stromboli",), min_length=1)
    """Pods with one of these as spec.schedulerName are ours."""
    extender_scheduler_names: tuple[_Name, ...] = ()
    """Pods with one of these are decided here and bound by kube-scheduler, which asks through its extender."""
    policy: Path | None = None
    """The policy file; it is followed while the service runs. Without one the built-in policy is used."""
    state_dir: Path | None = None
    """A folder that outlives restarts: the last good policy is kept there, for a start at which the file is broken."""
    journal_memory: int = Field(default=32 << 20, ge=0, le=1 << 36)
    """Bytes of the newest sessions that are kept to be replayed; 0 keeps none. Of a large cluster more is kept: what it
    takes to write it, four times."""
    journal_dir: Path | None = None
    """A folder for them, too, in which they outlive the process."""
    journal_disk: int = Field(default=1 << 30, gt=0, le=1 << 46)
    """Bytes that they may take there."""
    default_queue: _Name = "default"
    """The queue that is created when it is absent, as `root` is."""
    listen: str = "127.0.0.1:8080"
    """Where metrics, probes and the extender are served."""
    http_max_body: int = Field(default=32 << 20, gt=0, le=1 << 30)
    """Bytes that a request may bring. kube-scheduler sends 3 KB for each node, unless it may send names only."""
    http_max_header: int = Field(default=16 << 10, gt=0, le=1 << 20)
    """Bytes of a request's headers."""
    http_timeout: _Seconds = 30.0
    """How long a request may take from its first byte to the last of its answer."""
    http_max_requests: int = Field(default=16, gt=0, le=10_000)
    """Requests that are answered at once, besides probes."""
    http_max_connections: int = Field(default=256, gt=0, le=100_000)
    """Open connections; the one that has waited longest for a request makes room for a new one."""
    tls_cert_file: FilePath | None = None
    """Certificates (PEM) with which the port is served by HTTPS, with `tls_private_key_file`."""
    tls_private_key_file: FilePath | None = None
    client_ca_file: FilePath | None = None
    """Authorities (PEM) of which the extender's clients need a certificate; probes and metrics need none."""

    debounce: _Pause = 0.005
    """How long a session waits after a change for further ones."""
    schedule_period: _Seconds = 1.0
    """The longest time between two sessions."""
    binds_per_second: _Rate = 2_000
    bind_connections: int = Field(default=32, gt=0, le=10_000)
    assume_timeout: _Seconds = 30.0
    """How long a binding may lack its watch event before it is looked up."""
    status_writes_per_second: _Rate = 500
    events_per_second: _Rate = 50
    pod_events: bool = False
    """Whether each binding is told by an Event on its pod. Otherwise one on the PodGroup tells of all that were decided
    together, and a pod has one only when it was bound alone."""
    pod_conditions_per_second: _Rate = 100
    """How many pods a second are told why they wait."""
    delete_victims: bool = False
    """Whether victims are deleted, as Volcano does. Otherwise they are evicted, which disruption budgets may refuse."""
    status_patience: _Pause = 1.0
    """How long a change of a status may wait for further ones. Phases of queues and admissions do not wait, sums of
    queues wait twice as long."""
    inherit_owner_annotations: bool = True
    """Whether the PodGroup of a bare pod takes the `volcano.sh/` annotations of the pod's owner."""

    contact_timeout: _Seconds = 30.0
    """Without an answer of the API server, or the changes of a kind that sessions need, for this long it is unready."""
    session_timeout: _Seconds = 300.0
    """A session that takes longer than this hangs, and the process is no longer alive."""

    leader_elect: bool = False
    """Whether several replicas take turns by a Lease."""
    lease_namespace: str = ""
    """Namespace of the Lease; when empty the pod's own, as $POD_NAMESPACE says, else `default`."""
    lease_name: str = "stromboli"
    lease_duration: Annotated[float, Field(ge=0.001, le=LONGEST_LEASE)] = 6.0
    """A leader that has not renewed for this long is succeeded; rounded up to whole seconds."""
    renew_deadline: _Seconds = 4.0
    """A leader that could not renew for this long writes nothing, until it finds the lease still its own."""
    retry_period: _Seconds = 1.0
    """How often the lease is renewed, or looked at by those who wait for it."""

    @model_validator(mode="after")
    def _leases_outlast_leaders(self) -> Self:
        if not self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError("retry_period < renew_deadline < lease_duration must hold")
        return self

    @model_validator(mode="after")
    def _served_by_https_or_not(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            raise ValueError("a certificate and its private key are needed both")
        if self.client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("certificates of clients are seen by HTTPS only, which needs a certificate and its key")
        return self

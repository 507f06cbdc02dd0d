"""The settings of the service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, FilePath, StringConstraints, model_validator

from stromboli.workloads import Kinds, known_kinds

_Name: TypeAlias = Annotated[str, StringConstraints(min_length=1)]
_Seconds: TypeAlias = Annotated[float, Field(ge=0.001, le=86_400)]
_Pause: TypeAlias = Annotated[float, Field(ge=0, le=86_400)]
_Rate: TypeAlias = Annotated[float, Field(ge=0.01, le=1_000_000)]

#: longest time in seconds that a foreign lease is honoured without renewal, whatever its duration says
LONGEST_LEASE = 600


class Settings(BaseModel):
    """Settings of the service; times are in seconds, rates per second."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        arbitrary_types_allowed=True,
    )

    kubeconfig: Path | None = None
    """A kubeconfig file; without one $KUBECONFIG, the pod's service account or ~/.kube/config is used."""
    context: str | None = None
    """The context of the kubeconfig, by default its current one."""
    scheduler_names: tuple[_Name, ...] = Field(default=("stromboli",), min_length=1)
    """Schedules the pods with one of these as spec.schedulerName."""
    extender_scheduler_names: tuple[_Name, ...] = ()
    """Decides pods with one of these as spec.schedulerName, which kube-scheduler binds after asking its extender."""
    policy: Path | None = None
    """The policy file, which is reloaded when it changes. Without one the built-in policy is used."""
    state_dir: Path | None = None
    """A folder that survives restarts, where the last good policy is stored for a start with a broken policy file."""
    journal_memory: int = Field(default=32 << 20, ge=0, le=1 << 36)
    """Size in bytes of the recent sessions kept in memory for replay; 0 disables them. In a large cluster more is
    used: four times the size of one snapshot as it is written."""
    journal_dir: Path | None = None
    """A folder where recorded sessions survive the process."""
    journal_disk: int = Field(default=1 << 30, gt=0, le=1 << 46)
    """Limit on its size in bytes."""
    kinds: Kinds = Field(default_factory=known_kinds)
    """The kinds of workloads whose pods are put into groups."""
    shard: str = ""
    """The NodeShard with the nodes of this service; when empty all nodes are its own."""
    shard_mode: Literal["hard", "soft"] = "hard"
    """`hard` never leaves them, `soft` takes them first."""
    stand_in: tuple[_Name, ...] = ()
    """The leases of shards, in the same namespace, for which it schedules while none of their replicas does."""
    stand_in_after: _Pause = 30.0
    """Time without a leader after which it does."""
    default_queue: _Name = "default"
    """The queue that is created, like `root`, when it is absent."""
    listen: str = "127.0.0.1:8080"
    """Address of metrics, probes and the extender."""
    http_max_body: int = Field(default=32 << 20, gt=0, le=1 << 30)
    """Limit on the body of a request in bytes. kube-scheduler sends 3 KB per node, unless it is configured to send
    names."""
    http_max_header: int = Field(default=16 << 10, gt=0, le=1 << 20)
    """Limit on the headers of a request in bytes."""
    http_timeout: _Seconds = 30.0
    """Limit on the time from the first byte of a request to the last byte of its answer."""
    http_max_requests: int = Field(default=16, gt=0, le=10_000)
    """Limit on concurrent requests, not counting probes."""
    http_max_connections: int = Field(default=256, gt=0, le=100_000)
    """Limit on open connections; the one that has been idle longest is closed for a new one."""
    tls_cert_file: FilePath | None = None
    """Certificate chain (PEM); with `tls_private_key_file` the port serves HTTPS."""
    tls_private_key_file: FilePath | None = None
    client_ca_file: FilePath | None = None
    """CA certificates (PEM) that verify the client certificates of extender requests; probes and metrics need none."""
    tls_period: _Seconds = 10.0
    """Time between looks at these files, which may be replaced."""

    debounce: _Pause = 0.005
    """Delay between a change and the session, to collect further changes."""
    schedule_period: _Seconds = 1.0
    """The longest time between two sessions."""
    binds_per_second: _Rate = 2_000
    bind_connections: int = Field(default=32, gt=0, le=10_000)
    assume_timeout: _Seconds = 30.0
    """Time that a binding may lack its watch event before the pod is read."""
    status_writes_per_second: _Rate = 500
    events_per_second: _Rate = 50
    pod_events: bool = False
    """Emits an Event on the pod for each binding. By default one Event on the PodGroup reports all bindings decided
    together, and a pod gets one only when it is bound alone."""
    pod_conditions_per_second: _Rate = 100
    """Limit on pod conditions that are written per second."""
    delete_victims: bool = False
    """Deletes victims, as Volcano does. By default they are evicted, which disruption budgets may refuse."""
    status_patience: _Pause = 1.0
    """Delay before a status is written, to collect further changes. Phases of queues and admissions are not delayed,
    amounts of queues twice as long."""
    inherit_owner_annotations: bool = True
    """Copies the `volcano.sh/` annotations of a bare pod's owner to its PodGroup."""

    contact_timeout: _Seconds = 30.0
    """Time without an answer of the API server, or without the changes of a required kind, after which the replica
    is not ready."""
    session_timeout: _Seconds = 300.0
    """Time after which a running session counts as hung, and the liveness probe fails."""

    leader_elect: bool = False
    """Elects a leader among replicas by a Lease."""
    lease_namespace: str = ""
    """Namespace of the Lease; when empty the pod's own from $POD_NAMESPACE, else `default`."""
    lease_name: _Name = "stromboli"
    lease_duration: Annotated[float, Field(ge=0.001, le=LONGEST_LEASE)] = 6.0
    """Time after which an unrenewed lease is taken over; rounded up to whole seconds."""
    renew_deadline: _Seconds = 4.0
    """Time without renewal after which a leader stops writing, until it finds the lease still its own."""
    retry_period: _Seconds = 1.0
    """Time between renewals, and between attempts to acquire the lease."""

    @property
    def session_patience(self) -> float:
        """Seconds after which the progress of a running session is reported."""
        return self.session_timeout / 10

    @property
    def own_namespace(self) -> str:
        """The namespace of the service's own objects."""
        return self.lease_namespace or os.environ.get("POD_NAMESPACE") or "default"

    @model_validator(mode="after")
    def _stands_in_for_others(self) -> Self:
        if self.stand_in and not self.shard:
            raise ValueError("only a shard stands in for others, and this service has all nodes")
        if self.lease_name in self.stand_in:
            raise ValueError(f"{self.lease_name} is the service's own lease")
        return self

    @model_validator(mode="after")
    def _leases_outlast_leaders(self) -> Self:
        if not self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError("must be retry_period < renew_deadline < lease_duration")
        return self

    @model_validator(mode="after")
    def _served_by_https_or_not(self) -> Self:
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            raise ValueError("a certificate and its private key must be given together")
        if self.client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError(
                "verifying client certificates requires HTTPS, which needs a certificate and its private key"
            )
        return self

"""What the service can be told."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Settings(BaseModel):
    """Settings of the service; times are in seconds, rates per second."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    kubeconfig: Path | None = None
    """A kubeconfig file; without one $KUBECONFIG, the pod's service account or ~/.kube/config is used."""
    context: str | None = None
    """The context in it, by default the current one."""
    scheduler_names: tuple[str, ...] = Field(default=("stromboli",), min_length=1)
    """Pods with one of these as spec.schedulerName are ours."""
    extender_scheduler_names: tuple[str, ...] = ()
    """Pods with one of these are decided here and bound by kube-scheduler, which asks through its extender."""
    policy: Path | None = None
    """The policy file; it is followed while the service runs. Without one the built-in policy is used."""
    default_queue: str = "default"
    """The queue that is created when it is absent, as `root` is."""
    listen: str = "127.0.0.1:8080"
    """Where metrics and probes are served."""

    debounce: float = Field(default=0.005, ge=0)
    """How long a session waits after a change for further ones."""
    schedule_period: float = Field(default=1.0, gt=0)
    """The longest time between two sessions."""
    binds_per_second: float = Field(default=2_000, gt=0)
    bind_connections: int = Field(default=32, gt=0)
    assume_timeout: float = Field(default=30.0, gt=0)
    """How long a binding may lack its watch event before it is looked up."""
    status_writes_per_second: float = Field(default=500, gt=0)
    events_per_second: float = Field(default=50, gt=0)
    pod_events: bool = False
    """Whether each binding is told by an Event on its pod. Otherwise one on the PodGroup tells of all that were decided
    together, and a pod has one only when it was bound alone."""
    pod_conditions_per_second: float = Field(default=100, gt=0)
    """How many pods a second are told why they wait."""
    status_patience: float = Field(default=1.0, ge=0)
    """How long a change of a status may wait for further ones. Phases of queues and admissions do not wait."""
    reconcile_period: float = Field(default=60.0, gt=0)
    """How often Queues, PodGroups and HyperNodes are listed, beside being watched."""
    inherit_owner_annotations: bool = True
    """Whether the PodGroup of a bare pod takes the `volcano.sh/` annotations of the pod's owner."""

    leader_elect: bool = False
    """Whether several replicas take turns by a Lease."""
    lease_namespace: str = ""
    """Namespace of the Lease; when empty the pod's own, as $POD_NAMESPACE says, else `default`."""
    lease_name: str = "stromboli"
    lease_duration: float = Field(default=15.0, gt=0)
    """A leader that has not renewed for this long is succeeded."""
    renew_deadline: float = Field(default=10.0, gt=0)
    """A leader that could not renew for this long gives up."""
    retry_period: float = Field(default=2.0, gt=0)

"""Jobs given by a number of processors, as in models and logs of parallel machines, as gangs of pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from stromboli.lab.workload import Gang, Task


@dataclass(slots=True)
class Processors:
    """Turns processors into gangs: as few equal pods as possible, with a maximum number of processors each."""

    #: the processors of the largest pods
    per_pod: int = 32
    #: bytes for each processor of jobs without a memory request
    memory: int = 2 << 30
    _made: dict[tuple[int, int], Gang] = field(default_factory=dict, repr=False, compare=False)

    def gang(self, processors: int, memory: int = 0) -> Gang:
        """The gang of a job; `memory` is in bytes for each processor, 0 if it is not known."""
        key = processors, memory or self.memory
        if key not in self._made:
            pods = -(-processors // self.per_pod)
            # In thousandths, rounded up, as Kubernetes counts cpus.
            cpu, memory = (-(-amount * processors // pods) for amount in (1000, key[1]))
            requests: dict[str, str | int | float] = {"cpu": f"{cpu}m", "memory": memory}
            self._made[key] = Gang.of(Task.requesting(pods, requests))
        return self._made[key]

"""Jobs of so many processors, as models and logs of parallel machines have them, as gangs of pods."""

from __future__ import annotations

from dataclasses import dataclass, field

from stromboli.lab.workload import Gang, Task


@dataclass(slots=True)
class Processors:
    """Makes gangs of processors: pods of as many as a node has, and one with what is left over."""

    #: the processors of the largest pods
    per_pod: int = 32
    #: bytes for each processor of jobs that do not say how much they need
    memory: int = 2 << 30
    _made: dict[tuple[int, int], Gang] = field(default_factory=dict)

    def gang(self, processors: int, memory: int = 0) -> Gang:
        """The gang of a job; `memory` is in bytes for each processor, 0 if it is not known."""
        key = processors, memory or self.memory
        if key not in self._made:
            full, rest = divmod(processors, self.per_pod)
            parts = [(full, self.per_pod), (1, rest)]
            tasks = [self._task(count, each, key[1]) for count, each in parts if count and each]
            self._made[key] = Gang.of(*tasks)
        return self._made[key]

    @staticmethod
    def _task(count: int, processors: int, memory: int) -> Task:
        return Task.requesting(count, {"cpu": processors, "memory": processors * memory})

"""The roles of a job, as annotations of its PodGroup group and order them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from stromboli.api.crds import PodGroup
from stromboli.api.resources import Mask
from stromboli.framework.cluster.job import Job

_AFFINITY = "volcano.sh/task-topology-affinity"
_ANTI_AFFINITY = "volcano.sh/task-topology-anti-affinity"
_ORDER = "volcano.sh/task-topology-task-order"
#: weight of a role's placement, by its kind of group; the largest counts
_APART_FROM_ITSELF, _TOGETHER_WITH_OTHERS, _TOGETHER_WITH_ITSELF, _APART_FROM_OTHERS = 4, 3, 2, 1


class Roles:
    """Affinities and order of a job's roles, which are numbered: matrices of shape (roles, roles)."""

    def __init__(self, together: list[list[str]], apart: list[list[str]], order: list[str]) -> None:
        named = dict.fromkeys(role for group in (*together, *apart, order) for role in group)
        #: all named roles, by number
        self.number: Mapping[str, int] = {role: at for at, role in enumerate(named)}
        #: weight of a role's placement; roles in no group are not in it
        self.weight: dict[str, int] = {}
        #: position in the order that the job names, the first is the largest; 0 for others
        self._position = {role: len(order) - at for at, role in enumerate(order)}
        attracted = self._pairs(together, _TOGETHER_WITH_ITSELF, _TOGETHER_WITH_OTHERS)
        #: whether roles repel each other
        self.apart = self._pairs(apart, _APART_FROM_ITSELF, _APART_FROM_OTHERS)
        #: 1 where roles attract each other, -1 where they repel each other
        self.attraction = attracted.astype(np.int8) - self.apart

    def rank(self, role: str) -> tuple[int, int]:
        """Roles of a smaller rank are placed first."""
        return -self._position.get(role, 0), -self.weight.get(role, 0)

    def _pairs(self, groups: list[list[str]], alone: int, with_others: int) -> Mask:
        """Mask of pairs of roles that share a group; a group of one role is about its pods among themselves."""
        pairs = np.zeros((len(self.number), len(self.number)), np.bool_)
        for group in groups:
            rows = np.array([self.number[role] for role in group])
            of_itself = pairs[rows, rows]
            pairs[np.ix_(rows, rows)] = True
            pairs[rows, rows] = of_itself | (len(group) == 1)
            weight = alone if len(group) == 1 else with_others
            self.weight.update({role: max(self.weight.get(role, 0), weight) for role in group})
        return pairs


def read_roles(job: Job) -> Roles | None:
    """The rules in a job's annotations; None if they are invalid or name roles that the job does not have."""
    roles = _roles(*_written(job.pod_group))
    known = {pod.role for pod in job.view.members(job)} if roles is not None else ()
    return roles if roles is not None and roles.number.keys() <= set(known) else None


def names_roles(pod_group: PodGroup) -> bool:
    """Whether a PodGroup has an annotation about roles."""
    return any(annotation is not None for annotation in _written(pod_group))


def _written(pod_group: PodGroup) -> tuple[str | None, str | None, str | None]:
    """The annotations about roles."""
    annotations = pod_group.metadata.annotations
    return annotations.get(_AFFINITY), annotations.get(_ANTI_AFFINITY), annotations.get(_ORDER)


@lru_cache(maxsize=64)
def _roles(affinity: str | None, anti_affinity: str | None, listed: str | None) -> Roles | None:
    """The rules in annotations; None if they name a role twice in a group."""
    together, apart = _groups(affinity), _groups(anti_affinity)
    order = [role for role in (listed or "").split(",") if role]
    unique = all(len(set(group)) == len(group) for group in (*together, *apart, order))
    return Roles(together, apart, order) if unique else None


def _groups(annotation: str | None) -> list[list[str]]:
    """Groups of roles: `a,b;c` is [[a, b], [c]]."""
    groups = [[role for role in group.split(",") if role] for group in (annotation or "").split(";")]
    return [group for group in groups if group]

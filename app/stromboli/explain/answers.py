"""What an answer consists of. Amounts are written as Kubernetes writes them; nothing stands for nothing to say."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

#: amounts by resource name
Amounts: TypeAlias = dict[str, str]


class Part(Struct, frozen=True, rename="camel"):
    """Base of the parts of answers: camelCase in JSON."""


class Step(Part, frozen=True, kw_only=True):
    """One stage on the way to a node."""

    #: Admission, QueueShare, Gang, Placement, Preemption or Binding
    stage: str
    #: passed, blocks, or open when what comes before it has to pass first
    verdict: str
    text: str


class NodeCause(Part, frozen=True, kw_only=True):
    """Why some nodes do not take a pod."""

    cause: str
    nodes: int


class Holding(Part, frozen=True, kw_only=True):
    """A job that holds some of what is missing, or is ahead and asks for it."""

    namespace: str
    name: str
    queue: str
    pods: int
    amounts: Amounts


class Remedy(Part, frozen=True, kw_only=True):
    """The smallest change of its kind that helps; it was tried on a fork of the cluster's state."""

    change: str
    #: wait, user or admin
    who: str
    effect: str
    #: the jobs that it names, `NAMESPACE/NAME`
    jobs: list[str] = field(default_factory=list)


class Answer(Part, frozen=True, kw_only=True):
    """Why a job, or one of its pods, waits."""

    #: Job or Pod
    kind: str
    namespace: str
    name: str
    #: the PodGroup of a pod
    group: str = ""
    queue: str = ""
    phase: str = ""
    #: all pods, those that have a place, and how many start together
    pods: int = 0
    placed: int = 0
    min_member: int = 0
    #: how many of the pods that wait would find room on nodes now
    would_fit: int = 0
    #: what a pod that waits asks for
    request: Amounts = field(default_factory=dict)
    #: the first stage that blocks, empty when nothing does
    stage: str = ""
    reason: str = ""
    message: str = ""
    detail: str = ""
    #: who can change it: wait, user or admin
    who: str = ""
    steps: list[Step] = field(default_factory=list)
    nodes: list[NodeCause] = field(default_factory=list)
    #: the node that comes closest, and what it lacks
    nearest: str = ""
    #: jobs that are served before it, the first of them, and how many there are
    ahead: list[Holding] = field(default_factory=list)
    ahead_count: int = 0
    #: jobs that hold what is missing, the largest first
    holders: list[Holding] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)


class Level(Part, frozen=True, kw_only=True):
    """A queue, or an ancestor of one, in one resource; an absent amount is unlimited or not known."""

    queue: str
    resource: str
    requested: str
    held: str
    #: claimed by jobs that were admitted and hold nothing yet
    inqueue: str
    deserved: str
    guarantee: str
    limit: str


class Round(Part, frozen=True, kw_only=True):
    """What a queue had after a step of the division."""

    step: str
    amounts: Amounts


class QueueAnswer(Part, frozen=True, kw_only=True):
    """How a queue stands."""

    kind: str = "Queue"
    name: str
    state: str
    parent: str
    #: the plugin that divides
    divided_by: str
    weight: int
    share: float | None
    #: whether it gets nothing more for now
    overused: bool
    words: list[str]
    levels: list[Level]
    rounds: list[Round]
    #: fields of the spec that the policy does not heed, and why
    ignored: dict[str, str]
    #: jobs by phase, and the reasons of those that wait
    jobs: dict[str, int]
    waiting: dict[str, int]
    holders: list[Holding]

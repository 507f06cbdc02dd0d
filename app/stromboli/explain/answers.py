"""The parts of an answer. Amounts are written as Kubernetes quantities; empty fields mean nothing to say."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct, field

from stromboli.api.reasons import Passage

#: amounts by resource name
Amounts: TypeAlias = dict[str, str]


class Part(Struct, frozen=True, rename="camel"):
    """Base of the parts of answers: camelCase in JSON."""


class Step(Part, frozen=True, kw_only=True):
    """One stage on the way to a node."""

    #: Admission, QueueShare, Gang, Placement, Preemption or Binding
    stage: str
    #: passed, blocks, or open while an earlier stage has to pass first
    verdict: str
    #: the numbers that were compared
    text: str


class NodeCause(Part, frozen=True, kw_only=True):
    """Why some nodes do not take a pod."""

    cause: str
    #: number of nodes that it rules out, each counted under its first cause
    nodes: int
    #: other causes that rule out some of these nodes, with numbers
    also: dict[str, int] = field(default_factory=dict)

    @property
    def all_of_it(self) -> str:
        """The cause, with further causes."""
        others = [each if number == self.nodes else f"{each} on {number}" for each, number in self.also.items()]
        return f"{self.cause}; also {', '.join(others)}" if others else self.cause


class Holding(Part, frozen=True, kw_only=True):
    """A job that holds some of the missing resources, or is ahead and requests them."""

    namespace: str
    name: str
    queue: str
    #: number of its pods that hold it or ask for it
    pods: int
    amounts: Amounts
    #: its name for users, if that is another one
    called: str = ""


class Remedy(Part, frozen=True, kw_only=True):
    """The smallest change of its kind that helps; it was tried on a fork of the cluster's state."""

    #: the change, in a sentence
    change: str
    #: who can make it: wait, user or admin
    who: str
    #: its effect when it was tried
    effect: str
    #: the jobs that it names, `NAMESPACE/NAME`
    jobs: list[str] = field(default_factory=list)


class Eviction(Part, frozen=True, kw_only=True):
    """Why an action of the policy evicts no pod for a job."""

    action: str
    #: why, in one word
    reason: str
    #: why, without numbers that change by themselves
    message: str
    #: the numbers that were compared
    detail: str = ""
    #: more of the detail, as of the answer
    passages: list[Passage] = field(default_factory=list)
    #: who can change it: wait, user or admin
    who: str


class NodeScore(Part, frozen=True, kw_only=True):
    """The verdict on a node when a place for a pod was chosen."""

    node: str
    #: the plugin that ruled it out, empty where none did
    plugin: str = ""
    #: why it was ruled out, or what it lacked; empty where the pod could have been placed there
    cause: str = ""
    #: scores by plugin, weights included
    scores: dict[str, float] = field(default_factory=dict)
    #: their sum; the highest wins
    total: float = 0.0


class Happening(Part, frozen=True, kw_only=True):
    """One thing that happened to a pod in a session."""

    #: the action that ran
    action: str
    #: assumed, promised, given back, bound, evicted, restored, refused, or job refused
    what: str
    #: the node that it got or lost
    node: str = ""
    #: why, where it was refused
    reason: str = ""
    #: all nodes or, if they are many, the chosen one, the named ones and those that came closest
    nodes: list[NodeScore] = field(default_factory=list)
    #: number of nodes
    node_count: int = 0


class Start(Part, frozen=True, kw_only=True):
    """Expected start of a job, in seconds from now: the queue was run forward several times."""

    #: the median, None where it was not reached
    expected: float | None = None
    #: the predicted range: the simulated one, widened by how far earlier predictions missed
    earliest: float | None = None
    #: None where some did not start
    latest: float | None = None
    #: the earliest and the latest start that was simulated
    first: float | None = None
    last: float | None = None
    #: the share of jobs that started within their range: of earlier predictions, or as measured, see docs/concepts.md
    within: float | None = None
    #: the number of earlier predictions that count, 0 where it was measured
    within_of: int = 0
    #: number of simulations that it started in, and of all
    started: int = 0
    simulated: int = 0
    #: why no start is predicted, empty if one is
    why: str = ""
    #: jobs that hold what it needs and whose run time is unknown, `NAMESPACE/NAME`
    unknown: list[str] = field(default_factory=list)
    #: number of jobs with an unknown run time
    unknown_count: int = 0
    #: jobs that hold what it needs and run for longer than declared, `NAMESPACE/NAME`
    overdue: list[str] = field(default_factory=list)
    #: number of overdue jobs
    overdue_count: int = 0


class SizedStart(Part, frozen=True, kw_only=True):
    """Start of a gang of a given size if it were submitted now, and nothing else."""

    #: number of pods that start together
    size: int
    start: Start


class Starts(Part, frozen=True, kw_only=True):
    """Starts of gangs of some sizes if they were submitted now."""

    namespace: str
    queue: str
    #: request of each of their pods
    request: Amounts
    sizes: list[SizedStart]


class Answer(Part, frozen=True, kw_only=True):
    """Why a job, or one of its pods, waits."""

    #: Job or Pod
    kind: str
    namespace: str
    name: str
    #: the PodGroup of a pod
    group: str = ""
    #: its name for users, by kind and name; empty for a single pod
    part_of: str = ""
    #: the workload that a job is for, as KIND/NAME; empty for a single pod
    workload: str = ""
    queue: str = ""
    #: the phase of the PodGroup, or the state of the pod
    phase: str = ""
    #: number of pods
    pods: int = 0
    #: number of pods that have a place
    placed: int = 0
    #: number of pods that start together
    min_member: int = 0
    #: maximum run time of its pods in seconds, 0 where none is set
    run_time: float = 0.0
    #: number of waiting pods that fit on nodes now
    would_fit: int = 0
    #: request of a waiting pod
    request: Amounts = field(default_factory=dict)
    #: the first stage that blocks, empty when nothing does
    stage: str = ""
    #: why, in one word
    reason: str = ""
    #: why, without numbers that change by themselves
    message: str = ""
    #: the numbers that were compared
    detail: str = ""
    #: more of the detail, about other namespaces; empty in answers over HTTP, whose detail has what the reader may know
    passages: list[Passage] = field(default_factory=list)
    #: who can change it: wait, user or admin
    who: str = ""
    #: the stages in their order
    steps: list[Step] = field(default_factory=list)
    #: causes that keep it off nodes
    nodes: list[NodeCause] = field(default_factory=list)
    #: the node that comes closest, and what it lacks
    nearest: str = ""
    #: the first of the jobs that are served before it
    ahead: list[Holding] = field(default_factory=list)
    #: number of all jobs that are served before it
    ahead_count: int = 0
    #: jobs that hold what is missing, the largest first
    holders: list[Holding] = field(default_factory=list)
    #: why nothing is evicted for it, by the actions of the policy that evict
    evictions: list[Eviction] = field(default_factory=list)
    #: fields of the PodGroup's spec that the policy does not read, and what would
    ignored: dict[str, str] = field(default_factory=dict)
    #: trace of a pod in a session, in order, where that was asked for
    history: list[Happening] = field(default_factory=list)
    #: whether the pod has a place, and the history is of a session in which it had none
    hypothetical: bool = False
    #: when a job that waits is expected to start, where that was asked for
    start: Start | None = None
    #: changes that would help
    remedies: list[Remedy] = field(default_factory=list)
    #: whether changes were tried
    tried: bool = False
    #: whether some were left untried, as it would take too long
    unfinished: bool = False


class Level(Part, frozen=True, kw_only=True):
    """A queue, or an ancestor of one, in one resource; an absent amount is unlimited or not known."""

    queue: str
    resource: str
    #: the node pool that the amounts refer to; empty for the whole cluster
    pool: str = ""
    #: amount that its pods hold and ask for; not known of a node pool
    requested: str
    #: amount that its pods hold, without terminating ones
    held: str
    #: amount that terminating pods hold; empty for nothing
    terminating: str = ""
    #: claimed by jobs that were admitted and hold nothing yet
    inqueue: str
    deserved: str
    guarantee: str
    #: the most that it may hold
    limit: str


class Round(Part, frozen=True, kw_only=True):
    """The amount of a queue after a step of the division."""

    #: name of the step: guarantees, a round, ...
    step: str
    amounts: Amounts


class QueueAnswer(Part, frozen=True, kw_only=True):
    """Answer about a queue."""

    kind: str = "Queue"
    name: str
    state: str
    parent: str
    #: the plugin that divides
    divided_by: str
    weight: int
    #: the largest fraction of its deserved amount that it holds, over all resources
    share: float | None
    #: whether it gets nothing more for now
    overused: bool
    #: its state, in sentences
    words: list[str]
    #: its amounts, and those of its ancestors
    levels: list[Level]
    #: derivation of its share
    rounds: list[Round]
    #: fields of the spec that the policy does not read, and what would
    ignored: dict[str, str]
    #: jobs by phase
    jobs: dict[str, int]
    #: jobs with pods that wait, by reason
    waiting: dict[str, int]
    #: jobs that hold most of it
    holders: list[Holding]

"""The overview of the cluster for the page.

Amounts are plain numbers: cpu in cores, memory in bytes, everything else in its own unit.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import field

from stromboli.explain.answers import Part

#: amounts by the names of resources
Amounts: TypeAlias = dict[str, float]


class Pending(Part, frozen=True, kw_only=True):
    """The jobs and pods that wait for one reason."""

    stage: str
    reason: str
    #: who can change it: wait, user or admin
    who: str
    #: jobs that it keeps from going on, and their pods without a place; pods in no job are counted as well
    jobs: int
    pods: int


class Overview(Part, frozen=True, kw_only=True):
    """The cluster in the last session."""

    #: when that was, in seconds since the epoch
    at: float
    #: its duration, in seconds
    seconds: float
    nodes: int
    queues: int
    #: amounts of all nodes, and those held by pods with a place
    total: Amounts
    used: Amounts
    #: pods by state, jobs by phase
    pods: dict[str, int]
    jobs: dict[str, int]
    #: the most pods first
    pending: list[Pending]


class Page(Part, frozen=True, kw_only=True):
    """A page of a longer list."""

    #: length of the whole list
    total: int
    #: number of entries before this page
    offset: int


class QueueRow(Part, frozen=True, kw_only=True):
    """A queue, its descendants included. An absent amount is unlimited or not known."""

    name: str
    parent: str
    #: number of queues above it
    depth: int
    state: str
    weight: int
    share: float | None
    #: whether it gets nothing more for now
    overused: bool
    held: Amounts
    requested: Amounts
    deserved: Amounts
    guarantee: Amounts
    limit: Amounts
    #: jobs by phase
    jobs: dict[str, int]
    #: jobs that wait
    waiting: int
    #: fields of the spec that the policy does not read, and what would
    ignored: dict[str, str] = field(default_factory=dict)


class QueuePage(Page, frozen=True, kw_only=True):
    """Some queues, each after its parent."""

    items: list[QueueRow]


class JobRow(Part, frozen=True, kw_only=True):
    """A job and, where it waits, why."""

    namespace: str
    name: str
    queue: str
    phase: str
    priority: int
    #: seconds since the epoch
    created: float
    #: numbers of all pods, of those with a place, and of those that start together
    pods: int
    placed: int
    min_member: int
    stage: str
    reason: str
    message: str
    who: str
    #: since when it waits, in seconds since the epoch; 0 where it does not
    since: float = 0.0
    #: its place in the order of the jobs of its queue that only wait for capacity; 0 for none
    position: int = 0
    #: resources besides cpu, memory and storage that its pods ask for
    cards: Amounts = field(default_factory=dict)
    #: the workload that it is for, as KIND/NAME; empty for a single pod
    workload: str = ""
    #: its name for users, if that is another one: `why job` and the page accept it, too
    called: str = ""


class JobPage(Page, frozen=True, kw_only=True):
    """Some jobs, those that wait first."""

    items: list[JobRow]
    #: number of waiting jobs by reason, whatever reason is asked for
    reasons: dict[str, int] = field(default_factory=dict)
    #: kinds of cards that jobs ask for
    cards: list[str] = field(default_factory=list)


class PodRow(Part, frozen=True, kw_only=True):
    """A pod, where it is and, where it waits, why."""

    namespace: str
    name: str
    #: the PodGroup
    group: str
    state: str
    node: str
    reason: str
    message: str
    priority: int = 0
    #: seconds since the epoch
    created: float = 0.0
    #: resources besides cpu, memory and storage that it asks for
    cards: Amounts = field(default_factory=dict)


class PodPage(Page, frozen=True, kw_only=True):
    """Some pods."""

    items: list[PodRow]
    #: number of waiting pods by reason, whatever reason is asked for
    reasons: dict[str, int] = field(default_factory=dict)


class NodePage(Part, frozen=True, kw_only=True):
    """A node."""

    name: str
    #: the status of its condition Ready; empty where it says nothing
    ready: str
    #: whether it takes no new pods
    cordoned: bool
    labels: dict[str, str]
    #: as KEY=VALUE:EFFECT
    taints: list[str]
    #: its amounts, and those held by pods with a place
    allocatable: Amounts
    used: Amounts


class Nodes(Page, frozen=True, kw_only=True):
    """Nodes in columns: the n-th entry of each list is about the n-th node."""

    #: the resource of the amounts, and the nodes' total
    resource: str
    resources: list[str]
    names: list[str]
    allocatable: list[float]
    used: list[float]
    #: pods on them, and those of the job that was asked about
    pods: list[int]
    of_job: list[int] = field(default_factory=list)
    #: the free cards, and the part of these that a typical pod cannot use; empty where no node has cards
    free_cards: list[float] = field(default_factory=list)
    fragments: list[float] = field(default_factory=list)
    #: those that take no new pods, by their place in these lists
    cordoned: list[int] = field(default_factory=list)


class Shares(Part, frozen=True, kw_only=True):
    """The amounts of one resource that queues held and deserved over time: the n-th number is for the n-th moment."""

    resource: str
    resources: list[str]
    #: the time span covered, in seconds since the epoch; nothing is known before the first moment
    since: float
    until: float
    #: seconds since the epoch; the last state lasts until the end
    at: list[float]
    #: by queue; None where a queue was not there or deserved nothing that is known
    held: dict[str, list[float | None]]
    deserved: dict[str, list[float | None]]
    requested: dict[str, list[float | None]]
    #: the queue below which these are
    parent: str
    #: the number of queues; those with the most are shown
    queues: int
    #: those of them that have queues below
    inner: list[str]


class SessionRow(Part, frozen=True, kw_only=True):
    """The duration of a session, in seconds, and what it did."""

    #: counted from the start of the replica, as in its log
    number: int = 0
    at: float
    seconds: float = 0.0
    snapshot: float = 0.0
    #: in their order
    actions: dict[str, float] = field(default_factory=dict)
    #: opening and closing of all plugins
    plugins: float = 0.0
    bound: int = 0
    evicted: int = 0
    #: pods that it looked for a place for and found none
    unplaced: int = 0
    #: why it failed, empty when it did not
    error: str = ""


class Sessions(Part, frozen=True, kw_only=True):
    """The last sessions."""

    #: the newest first
    items: list[SessionRow]


class Moment(Part, frozen=True, kw_only=True):
    """A decision of a session about a job, or an earlier event of the job."""

    #: seconds since the epoch
    at: float
    #: the session; 0 for none
    session: int = 0
    namespace: str
    #: the PodGroup; of a pod without one the pod
    name: str
    #: submitted, admitted, waits, goes on, promised, bound, evicted, runs, completed or stopped
    what: str
    #: number of pods that it is about
    pods: int = 0
    text: str = ""


class Story(Part, frozen=True, kw_only=True):
    """The events of a job, the earliest first, as far as this replica remembers."""

    items: list[Moment]


class SessionPage(Page, frozen=True, kw_only=True):
    """A session and what it decided, job by job."""

    row: SessionRow
    items: list[Moment]
    #: whether its decisions are still known
    known: bool = True


class Freshness(Part, frozen=True, kw_only=True):
    """Time of the data."""

    #: when the last session began, in seconds since the epoch; 0 without any
    at: float
    #: why it may be out of date, a line for each problem of the service
    problems: list[str]


class PluginRow(Part, frozen=True, kw_only=True):
    """A plugin as the policy uses it."""

    name: str
    #: as they are in force, defaults included; what may be a secret is left out
    arguments: dict[str, str]
    #: extension points that the policy takes it out of
    disabled: list[str]
    hierarchy: bool


class PolicyInForce(Part, frozen=True, kw_only=True):
    """The policy by which the last session decided."""

    actions: list[str]
    tiers: list[list[PluginRow]]
    #: arguments of actions
    arguments: dict[str, dict[str, str]]
    #: each rule with whose behaviour it is: volcano or strict
    rules: dict[str, str]
    metrics: dict[str, str]
    #: why the file was refused, if it differs from the policy in force
    problem: str
    #: failures of plugins in the last session, a line for each point of one
    failing: list[str] = field(default_factory=list)

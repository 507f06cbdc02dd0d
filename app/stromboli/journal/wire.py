"""The format of journals: what is written, how it is compressed, and how far a file is trusted.

A journal is a sequence of segments, so concatenated files are a journal again. A segment begins with a line of text
that names the format, and continues with frames: the length of a frame, and its items, deflated. An item is its length
and a message in MessagePack. The first item of a segment says who records, the second what its sessions know from
before; the parts of the cluster as it was then follow, and then its sessions in order.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, TypeAlias

import msgspec
from msgspec import Struct

from stromboli.api import objects
from stromboli.api.crds import KubeModel
from stromboli.api.errors import StromboliError
from stromboli.api.reasons import Reason
from stromboli.framework.cluster.churn import History
from stromboli.framework.cluster.environment import Admission, NodeUsage, Sharding
from stromboli.framework.cluster.reservation import Reservation
from stromboli.state.refusals import Refusal

#: changes when a journal can no longer be read by those who read the one before
FORMAT = 5
_NAME = b"stromboli journal "
#: bytes of a frame as it is and deflated, and of all frames of a journal together
_LARGEST_FRAME = 64 << 20
_LARGEST_JOURNAL = 4 << 30
#: before that many bytes are together, a frame is not worth its while
FULL = 1 << 18
_LENGTH = 4
#: instead of the number of a reason
GONE = -1
#: the most characters shown of an error message
_LONGEST = 300
#: fast: a journal repeats itself so much that more effort saves little
_LEVEL = 1


class JournalError(StromboliError):
    """A journal that cannot be read."""


# -- changes of the cluster ------------------------------------------------------------------------------------------


Condition: TypeAlias = tuple[str, str, str | None, str | None, str | None]
"""The fields of a pod's condition: its type, status, reason, message and time of the last transition."""


class Item(Struct, array_like=True, tag=True, gc=False):
    """The base of types that are distinguished by name when they are read."""


class Class(Item, tag="class"):
    """Properties shared by pods of one class; `number` may be reused when no pod has it any longer."""

    number: int
    spec: objects.PodSpec


class PodStatus(Item, tag="pod status"):
    """A pod goes on; `state` is a PodState that the API server shows. Times are in seconds since the epoch."""

    row: int
    state: int
    node: str
    nominated: str
    #: 0 when it has not
    started: float
    conditions: Sequence[Condition]
    #: the resource claims that were made for it from templates, by the pod's name for each; empty where it needs none
    claims: Mapping[str, str]


class Pod(PodStatus, tag="pod"):
    """A pod is new, or changed."""

    namespace: str
    name: str
    uid: str
    #: of its class
    number: int
    created: float
    priority: int | None
    scheduler: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class PodGone(Item, tag="pod gone"):
    """A pod is not there any longer."""

    row: int


class Assumed(Item, tag="assumed"):
    """A binding was decided and counts."""

    row: int
    node: str


class Forgotten(Item, tag="forgotten"):
    """A binding that was decided does not count any longer."""

    row: int


class Node(Item, tag="node"):
    """A node is new or changed."""

    node: objects.Node


class Object(Item, tag="object"):
    """Any other object is new or changed."""

    kind: str
    manifest: dict[str, Any]


class Gone(Item, tag="gone"):
    """A node or another object was deleted."""

    kind: str
    key: str


class GroupStatus(Item, tag="group status"):
    """A PodGroup has another status and is otherwise unchanged."""

    key: str
    generation: int
    status: dict[str, Any]


#: a change as it is told, or its tag and its fields, which costs half of that
Written: TypeAlias = "Change | tuple[Any, ...]"
Change: TypeAlias = Class | Pod | PodStatus | PodGone | Assumed | Forgotten | Node | Object | GroupStatus | Gone

# -- inputs and decisions of sessions --------------------------------------------------------------------------------


class Eviction(Struct, array_like=True):
    """Record of evictions of a job for a queue."""

    job: str
    queue: str
    history: History


class Remembered(Struct):
    """Knowledge of a session from earlier sessions and from outside the cluster."""

    node_usage: dict[str, NodeUsage] = {}
    queue_usage: dict[str, dict[str, float]] = {}
    sharding: Sharding | None = None
    nominated_hyper_nodes: dict[str, str] = {}
    #: None where phases are believed
    admitted: list[Admission] | None = None
    reservations: dict[str, Reservation] = {}
    #: None where evictions are not watched
    churn: list[Eviction] | None = None
    #: state left by plugins and actions, by name, see `plain`
    left: dict[str, Any] = {}
    #: whose could not be kept
    lost: list[str] = []


class Answer(Struct, array_like=True):
    """An answer of an HTTP extender to a request for a path, or why there is none."""

    path: str
    answer: dict[str, Any] | None
    error: str = ""


class Reasons(Struct, array_like=True):
    """Why jobs and pods wait that did not wait before, or for another reason, and which wait no longer."""

    given: list[Reason]
    #: the numbers of entries by key, and by row; GONE for pods that wait no longer
    jobs: dict[str, int]
    pods: dict[int, int]


class Began(Item, tag="began"):
    """The recorder of a segment, and since when it records."""

    #: of the process
    run: str
    #: of the segment
    number: int
    at: float
    version: str
    scheduler_names: list[str]
    extender_scheduler_names: list[str]
    #: `volcano` or `strict`, where it outweighs policies
    compatibility: str | None


class Layout(Item, tag="layout"):
    """Numbering of objects in a state; the pods follow in order of their rows."""

    resources: list[str]
    #: key of the PodGroup of each row, empty for a row that is free
    jobs: list[str]
    #: rows of pods and numbers of classes that are free and lower than one that is not
    free_pods: list[int]
    free_classes: list[int]
    remembered: Remembered


class Part(Item, tag="part"):
    """Changes that make a part of the cluster as it was when the segment began."""

    changes: list[Change]


class Session(Item, tag="session"):
    """One session: the changes since the one before, its inputs, and its outcome."""

    now: float
    changes: list[Change]
    #: the policy from this session on; empty when it is the one before
    policy: str
    #: inputs of the session, where they are not what the session before left
    remembered: Remembered | None
    node_usage: dict[str, NodeUsage] | None
    queue_usage: dict[str, dict[str, float]] | None
    #: pods whose eviction was refused a moment ago, by uid; None when they are the same
    refused: dict[str, Refusal] | None
    answers: list[Answer]
    #: the decisions, see `outcome`
    decisions: bytes
    #: why jobs and pods wait; None when that is unchanged
    reasons: Reasons | None
    #: its error; then it decided nothing
    failed: str
    #: seconds that it took
    took: float


Entry: TypeAlias = Began | Layout | Part | Session


def _fields(value: Any) -> Any:
    if isinstance(value, KubeModel):
        # All in the order of their class, with unset ones too, and by our names: to dump them takes three times as
        # long.
        return value.__dict__
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(type(value).__name__)


_encoder = msgspec.msgpack.Encoder(enc_hook=_fields)
_entries: msgspec.msgpack.Decoder[Entry] = msgspec.msgpack.Decoder(Entry)


def told(error: BaseException) -> str:
    """The message of an error, cut to fit in a line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def heading() -> bytes:
    """The first line of a segment."""
    return _NAME + str(FORMAT).encode() + b"\n"


encoded = _encoder.encode


def tag(item: type[Item]) -> str:
    """Tag that items of a kind begin with when written; the fields follow."""
    return str(item.__struct_config__.tag)


def together(changes: Sequence[Written]) -> list[Change]:
    """Changes for an entry, encoded now: whatever they are made of may go."""
    return msgspec.Raw(encoded(changes))  # type: ignore[return-value]


def apart(written: list[Change]) -> list[Written]:
    """Changes that were encoded, to encode them with others."""
    return [tuple(each) for each in msgspec.msgpack.decode(written)]  # type: ignore[call-overload]


def item(entry: Entry) -> bytes:
    """An item of a frame."""
    content = encoded(entry)
    return len(content).to_bytes(_LENGTH) + content


def frame(items: Iterable[bytes]) -> bytes:
    """Items, deflated together."""
    deflated = zlib.compress(b"".join(items), _LEVEL)
    return len(deflated).to_bytes(_LENGTH) + deflated


def read(
    source: str,
    file: BinaryIO,
    remark: Callable[[str], None] = lambda text: None,
    progress: Callable[[int], None] = lambda size: None,
) -> Iterator[Entry]:
    """The items of a journal; of a truncated one, those that are complete. Raises JournalError.

    `source` is the file; `remark` is called with a line of text if it is truncated; `progress` is called with the size
    in bytes of each part of the file before it is decompressed.
    """
    left = _LARGEST_JOURNAL
    try:
        for content in _frames(source, file, remark, progress):
            left -= len(content)
            if left < 0:
                raise JournalError(f"{source}: holds more than {_LARGEST_JOURNAL >> 30} GiB")
            yield from _items(content)
    except (msgspec.MsgspecError, RecursionError, zlib.error, ValueError, OverflowError) as error:
        raise JournalError(f"{source}: is damaged: {told(error)}") from None


def _frames(
    source: str, file: BinaryIO, remark: Callable[[str], None], progress: Callable[[int], None]
) -> Iterator[bytes]:
    begun = False
    while start := file.read(_LENGTH):
        if start == _NAME[:_LENGTH]:
            _check_heading(source, start + file.readline(len(_NAME) + 16))
            begun = True
            continue
        if not begun:
            raise JournalError(f"{source}: is not a journal of stromboli")
        length = int.from_bytes(start)
        if len(start) < _LENGTH or length > _LARGEST_FRAME:
            raise JournalError(f"{source}: is damaged: no frame begins where one should")
        deflated = file.read(length)
        if len(deflated) < length:
            # Its writer was ended in the middle.
            remark(f"{source}: is cut off: what is whole counts")
            return
        progress(length)
        inflater = zlib.decompressobj()
        content = inflater.decompress(deflated, _LARGEST_FRAME)
        if inflater.unconsumed_tail or not inflater.eof:
            raise JournalError(f"{source}: is damaged: a frame has no end")
        yield content
    if not begun:
        raise JournalError(f"{source}: is empty")


def _check_heading(source: str, line: bytes) -> None:
    version = line.removeprefix(_NAME).removesuffix(b"\n")
    if not line.startswith(_NAME) or not line.endswith(b"\n") or not version.isdigit():
        raise JournalError(f"{source}: is not a journal of stromboli")
    if int(version) != FORMAT:
        raise JournalError(f"{source}: has format {int(version)}, and only {FORMAT} is read here")


def _items(content: bytes) -> Iterator[Entry]:
    at, view = 0, memoryview(content)
    while at < len(content):
        length = int.from_bytes(view[at : at + _LENGTH])
        at += _LENGTH
        if at + length > len(content):
            raise ValueError("an item is cut off")
        yield _entries.decode(view[at : at + length])
        at += length

"""Errors of pydantic in one line: the field, what was expected and what was found."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from pydantic_core import ErrorDetails

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_SHOWN = 60
#: names; only those that may be nearer than the nearest so far are compared to the end
_MANY = 1_000
_LONGEST_NAME = 120
_LISTED = 8


def field_path(keys: Iterable[int | str], prefix: str = "") -> str:
    """Keys and indexes as Kubernetes writes them: `spec.members[0].type`, `spec.deserved[nvidia.com/gpu]`."""
    path = prefix
    for key in keys:
        if isinstance(key, str) and _NAME.fullmatch(key):
            path += f".{key}" if path else key
        else:
            path += f"[{readable(key)}]"
    return path


def readable(name: object) -> str:
    """A name for a message, shortened, and quoted if it contains line breaks."""
    if not (isinstance(name, str) and name.isprintable()):
        return shown(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def describe(kind: str, manifest: Mapping[str, Any]) -> str:
    """Kind and key of an object, for messages."""
    metadata = manifest.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    key = "/".join(readable(metadata[k]) for k in ("namespace", "name") if metadata.get(k))
    return " ".join([readable(kind), key]).strip()


def listed(names: Collection[object]) -> str:
    """The first few names, and the number of the others."""
    shown_names, more = ", ".join(map(readable, islice(names, _LISTED))), len(names) - _LISTED
    return f"{shown_names} and {more} more" if more > 0 else shown_names


class _Quoting(reprlib.Repr):
    """A bounded repr of a value, which reads no more of it than a message can quote."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 3, 2 * _SHOWN, 2 * _SHOWN
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 8

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < 4 * _SHOWN else f"a number of {x.bit_length()} bits"

    def repr_instance(self, x: object, level: int) -> str:
        # The memory address in the repr of an object means nothing to a reader, and changes each time.
        return super().repr_instance(x, level) if type(x).__repr__ is not object.__repr__ else "<object>"


_QUOTING = _Quoting()


def shown(value: object) -> str:
    """The repr of a value in one line, shortened for an error message.

    However large the value is, a bounded part of it is read.
    """
    text = _QUOTING.repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def problem(error: ErrorDetails) -> str:
    """The problem that a validation error describes."""
    kind, message, found = error["type"], error["msg"], error["input"]
    if kind == "missing":
        return "is required"
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    if kind == "model_type":
        message = "Input should be a mapping"
    return f"{message[:1].lower()}{message[1:]}, not {shown(found)}"


def problem_of_key(error: ErrorDetails, known: Collection[str]) -> str:
    """The problem that a validation error describes, where a key that is not allowed may be meant for a known one."""
    if error["type"] != "extra_forbidden":
        return problem(error)
    return f"unknown key{did_you_mean(error['loc'][-1], known)}"


def did_you_mean(found: object, known: Collection[str]) -> str:
    """`, did you mean 'minMember'?`, or nothing without a similar name."""
    near = nearest(found, known)
    return f", did you mean {near!r}?" if near else ""


def nearest(found: object, known: Collection[str], least: float = 0.6) -> str:
    """The known name that is most similar to an unknown one, empty if none is at `least` so similar, of 1."""
    if not isinstance(found, str):
        return ""
    folded, word = {name.casefold(): name for name in known}, found[:_SHOWN].casefold()
    if word in folded:
        return folded[word]
    likeness, near = 0.0, ""
    if len(folded) > _MANY:
        matcher = difflib.SequenceMatcher(b=word)
        for name in sorted(folded, key=lambda name: abs(len(name) - len(word))):
            matcher.set_seq1(name)
            if _reaches(matcher, max(least, likeness)):
                likeness, near = max((likeness, near), (matcher.ratio(), name))
    else:
        likeness, near = max(((_likeness(word, name, least), name) for name in folded), default=(0.0, ""))
    return folded[near] if likeness else ""


@lru_cache(maxsize=32_768)
def _likeness(word: str, name: str, least: float) -> float:
    """Similarity of two names, 0 below `least`; cached, as names are compared again whenever one is added."""
    matcher = difflib.SequenceMatcher(a=name, b=word)
    return matcher.ratio() if _reaches(matcher, least) else 0.0


def _reaches(matcher: difflib.SequenceMatcher[str], least: float) -> bool:
    bounds = (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio)
    return all(bound() >= least for bound in bounds)

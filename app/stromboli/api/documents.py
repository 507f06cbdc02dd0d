"""YAML and JSON text as plain data: mappings with text keys, lists, text, numbers, booleans and nulls.

Everything that a few bytes can inflate is bounded while reading: nesting, aliases and numbers. YAML is built from the
parser's events with an explicit stack, so nested text does not nest calls; aliases share their value and count as
copies, because consumers traverse them as copies.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, TypeAlias

import msgspec
import yaml
from yaml import events

from stromboli.api.errors import DocumentError
from stromboli.api.validation import describe, field_path, readable, shown

Scalar: TypeAlias = str | int | float | bool | None

#: limit on nested containers
_DEEPEST = 100
#: limit on the nodes that all aliases of one document stand for
_MOST_ALIASED = 100_000
#: limit on the digits of a number
_LONGEST_NUMBER = 64

_FLOW_STYLE = re.compile(r"\s*[{\[]")
#: prefixes that are JSON in practice
_QUOTED_KEY = re.compile(r'[\s\[]*{\s*"')

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE_KEY = "<<"
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{form: True for word in ("yes", "true", "on") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("no", "false", "off") for form in (word, word.capitalize(), word.upper())},
}
_INTEGER = re.compile(r"[-+]?(?:0b(?P<binary>[01_]+)|0x(?P<hex>[0-9a-fA-F_]+)|0(?P<octal>[0-7_]*)|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_ENDLESS = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_TAG = "tag:yaml.org,2002:"
#: explicit tags of scalars other than text, and their types
_TAGGED: Mapping[str, tuple[type, ...]] = {
    f"{_TAG}int": (int,),
    f"{_TAG}float": (float, int),
    f"{_TAG}bool": (bool,),
    f"{_TAG}null": (NoneType,),
}


def decoded(data: bytes) -> str:
    """The text of a file: UTF-8, or UTF-16 with a byte order mark. Raises DocumentError."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if utf16 else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not text: byte {error.start} is not {'UTF-16' if utf16 else 'UTF-8'}") from None


def read_json(text: str) -> Any:
    """The value of a JSON text. Raises DocumentError."""
    try:
        if "\\ud" in text or "\\uD" in text:
            msgspec.json.decode(text)  # # the other decoder accepts lone surrogates
        return _JSON.decode(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not valid JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise DocumentError("not valid JSON: nested too deeply") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise DocumentError(f"not valid JSON: {error}") from None


def read_value(text: str) -> Any:
    """The value of a JSON text; errors about numbers are those of the YAML reader, with their position.

    Raises DocumentError.
    """
    try:
        return read_json(text)
    except DocumentError as error:
        if error.line:
            raise
        return next(read_yaml(text), None)


def read_yaml(text: str) -> Iterator[Any]:
    """The documents of a YAML stream, one by one; None for an empty one. Raises DocumentError.

    Scalars are read as by Kubernetes' tools: YAML 1.1 without dates and without sexagesimal numbers.
    """
    loader = _LOADER(text)
    try:
        while not isinstance(event := loader.get_event(), events.StreamEndEvent):
            if isinstance(event, events.DocumentStartEvent):
                yield _Document(loader).value()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentError(f"not valid YAML: {error.problem or error.context}", *_place(mark)) from None
    except yaml.YAMLError as error:
        raise DocumentError(f"not valid YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


def read_either(text: str, *, json: bool = False, of_json: Callable[[str], Any] = read_value) -> Iterator[Any]:
    """The documents of a text: `of_json` of a JSON document, or those of a YAML stream.

    Text in YAML's flow style may be either, unless `json` says so. Raises DocumentError.
    """
    if not (json or _FLOW_STYLE.match(text)):
        yield from read_yaml(text)
        return
    try:
        yield of_json(text)
    except DocumentError as error:
        if json:
            raise
        if "\n---" in text or not _QUOTED_KEY.match(text):
            yield from read_yaml(text)
            return
        try:
            documents = list(read_yaml(text))
        except DocumentError:
            raise error from None
        yield from documents


class _Node:
    """A mapping or list that is being read."""

    __slots__ = ("anchor", "at", "begun", "height", "key", "merged", "value")

    def __init__(self, value: dict[str, Any] | list[Any], at: int | str | None, anchor: str | None, begun: int) -> None:
        self.value = value
        #: its key or index in the enclosing container
        self.at = at
        self.anchor = anchor
        #: number of nodes of the document before this one
        self.begun = begun
        #: height of the tree of containers below this one
        self.height = 0
        #: in a mapping: the key of the next value
        self.key: str | None = None
        #: in a mapping: the mappings to merge by `<<`
        self.merged: list[Any] = []


class _Document:
    """One document while it is built from events."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._event: Any = None
        self._stack: list[_Node] = []
        #: anchor -> value, number of nodes and height; None while the node is being read
        self._anchors: dict[str, tuple[Any, int, int] | None] = {}
        self._nodes = 0
        self._aliased = 0
        self._root: Any = None

    def value(self) -> Any:
        """The data of the complete document."""
        get_event = self._loader.get_event
        while True:
            event = self._event = get_event()
            kind = type(event)
            if kind is events.ScalarEvent:
                self._scalar(event)
            elif kind is events.MappingStartEvent:
                self._open({}, event)
            elif kind is events.SequenceStartEvent:
                self._open([], event)
            elif kind is events.AliasEvent:
                self._alias(event.anchor)
            elif kind is events.DocumentEndEvent:
                return self._root
            else:
                self._close()

    def _scalar(self, event: Any) -> None:
        self._nodes += 1
        node = self._stack[-1] if self._stack else None
        if node is not None and node.key is None and type(node.value) is dict:
            self._set_key(node, event.value)
            value: Scalar = event.value
        else:
            value = self._meaning(event)
            self._add(value)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, 1, 0

    def _meaning(self, event: Any) -> Scalar:
        """The value of a scalar: text if it is quoted, else determined by its spelling."""
        tag, text = event.tag, event.value
        if tag in ("!", f"{_TAG}str") or (tag is None and not event.implicit[0]):
            return str(text)
        if tag is not None and tag not in _TAGGED:
            raise self._error(f"unknown tag {shown(tag)}")
        try:
            value = plain(text)
        except ValueError as error:
            raise self._error(str(error)) from None
        if tag is not None and type(value) not in _TAGGED[tag]:
            raise self._error(f"{shown(text)} is not a valid {tag.removeprefix(_TAG)}")
        return value

    def _open(self, value: dict[str, Any] | list[Any], event: Any) -> None:
        at = self._position()
        if event.tag not in (None, "!", f"{_TAG}map" if type(value) is dict else f"{_TAG}seq"):
            raise self._error(f"unknown tag {shown(event.tag)}")
        if len(self._stack) == _DEEPEST:
            raise self._error(f"nested more than {_DEEPEST} deep")
        self._add(value)
        self._stack.append(_Node(value, at, event.anchor, self._nodes))
        self._nodes += 1
        if event.anchor is not None:
            self._anchors[event.anchor] = None

    def _close(self) -> None:
        node = self._stack.pop()
        if node.merged:
            self._merge(node)
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, node.height + 1)
        if node.anchor is not None:
            self._anchors[node.anchor] = node.value, self._nodes - node.begun, node.height + 1

    def _alias(self, anchor: str) -> None:
        if anchor not in self._anchors:
            raise self._error(f"unknown alias {shown(anchor)}")
        target = self._anchors[anchor]
        if target is None:
            raise self._error(f"{shown(anchor)} contains itself")
        value, nodes, height = target
        self._aliased += nodes
        self._nodes += nodes
        if self._aliased > _MOST_ALIASED:
            raise self._error(f"aliases expand to more than {_MOST_ALIASED:,} nodes")
        if len(self._stack) + height > _DEEPEST:
            raise self._error(f"nested more than {_DEEPEST} deep")
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, height)
        self._add(value)

    def _add(self, value: Any) -> None:
        """Put a value into the innermost container, under the current key."""
        if not self._stack:
            self._root = value
            return
        node = self._stack[-1]
        if type(node.value) is list:
            node.value.append(value)
        elif node.key is None:
            self._set_key(node, value)
        elif node.key == _MERGE_KEY:
            node.merged.append(value)
            node.key = None
        else:
            node.value[node.key] = value  # type: ignore[call-overload]
            node.key = None

    def _set_key(self, node: _Node, key: Any) -> None:
        if not isinstance(key, str):
            raise self._error(f"a key should be a string, not {shown(key)}")
        if key in node.value:
            raise self._error(f"duplicate key {shown(key)}")
        node.key = key

    def _merge(self, node: _Node) -> None:
        """Merge the mappings of `<<` without replacing existing keys."""
        for source in node.merged:
            for mapping in source if isinstance(source, list) else [source]:
                if not isinstance(mapping, dict):
                    raise self._error(f"<< should name mappings, not {shown(mapping)}")
                for key, value in mapping.items():
                    node.value.setdefault(key, value)  # type: ignore[union-attr]

    def _object(self) -> str:
        """Kind and key of the object being read, as far as known, for messages; empty for lists."""
        for node in self._stack:
            value = node.value
            if isinstance(value, dict) and isinstance(value.get("kind"), str) and not value["kind"].endswith("List"):
                return describe(value["kind"], value)
        return ""

    def _position(self) -> int | str | None:
        """The key or index of the next value in the innermost container; None where a key comes next."""
        node = self._stack[-1] if self._stack else None
        if node is None:
            return None
        return len(node.value) if isinstance(node.value, list) else node.key

    def _error(self, problem: str) -> DocumentError:
        """An error at the last event, with the current path."""
        keys = (*(node.at for node in self._stack[1:]), self._position())
        path = readable(field_path(key for key in keys if key is not None))
        parts = (self._object(), path, problem)
        return DocumentError(": ".join(part for part in parts if part), *_place(self._event.start_mark))


@lru_cache(maxsize=1 << 14)
def plain(text: str) -> Scalar:
    """The value of a plain scalar. Raises ValueError for numbers that are too large."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in "+-.0123456789":
        return text
    integer = _INTEGER.fullmatch(text)
    if integer:
        return _integer(text, integer)
    if _FLOAT.fullmatch(text):
        return _finite(text)
    if _ENDLESS.fullmatch(text):
        raise ValueError(f"{text} is out of the range of numbers")
    return text


def _integer(text: str, match: re.Match[str] | None = None) -> int | float:
    """An integer; beyond 64 bits a float, which integer fields reject and amounts accept."""
    base, digits = 10, text
    if match:
        for name, of in (("binary", 2), ("hex", 16), ("octal", 8)):
            if match[name]:
                base, digits = of, ("-" if text[0] == "-" else "") + match[name]
    digits = digits.replace("_", "")
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"{shown(text)} is too long for a number")
    number = int(digits or "0", base)
    return number if -(2**63) <= number < 2**63 else float(number)


def _finite(text: str) -> float:
    number = float(text.replace("_", ""))
    if not math.isfinite(number):
        raise ValueError(f"{shown(text)} is too large for a number")
    return number


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen = set[str]()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"duplicate key {shown(twice)}")
    return found


def _endless(text: str) -> float:
    raise ValueError(f"{text} is out of the range of numbers")


_JSON = json.JSONDecoder(object_pairs_hook=_distinct, parse_int=_integer, parse_float=_finite, parse_constant=_endless)


def _place(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (0, 0)

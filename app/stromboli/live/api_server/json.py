"""JSON of any depth: objects may be nested deeper than the decoder's limit, in fields that are never read."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: all fields that are read lie above this depth
_DEEPEST = 64
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


class Decoder(Generic[T]):
    """Decodes a type; values below the depth limit become null."""

    def __init__(self, type: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type)

    def decode(self, content: bytes | msgspec.Raw) -> T:
        """Raises MsgspecError."""
        try:
            return self._decoder.decode(content)
        except RecursionError:
            return self._decoder.decode(shallow(bytes(content)))


def shallow(content: bytes) -> bytes:
    """JSON with null in place of values that are deeper than any field that is read."""
    kept, depth, end = [], 0, 0
    for token in _TOKENS.finditer(content):
        match token.group()[:1]:
            case b"[" | b"{":
                depth += 1
                if depth == _DEEPEST:
                    kept += [content[end : token.start()], b"null"]
            case b"]" | b"}":
                if depth == _DEEPEST:
                    end = token.end()
                depth -= 1
    return b"".join([*kept, content[end:]])

"""JSON of any depth: a tenant's object may be nested deeper than a decoder can follow, if only where nobody reads."""

from __future__ import annotations

import re
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

#: whatever is read lies above this depth
_DEEPEST = 64
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]')


class Decoder(Generic[T]):
    """Decodes a type; what lies too deep for the decoder is null."""

    def __init__(self, type: type[T]) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(type)

    def decode(self, content: bytes | msgspec.Raw) -> T:
        """Raises MsgspecError."""
        try:
            return self._decoder.decode(content)
        except RecursionError:
            return self._decoder.decode(shallow(bytes(content)))


def shallow(content: bytes) -> bytes:
    """The same JSON with null for what lies deeper than anything that is read."""
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

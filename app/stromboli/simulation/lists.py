"""Lists of objects as kubectl prints them: of any kind, or of one that the list names."""

from __future__ import annotations

from typing import Any

import msgspec

from stromboli.api.documents import read_value


def is_list(document: Any) -> bool:
    """Whether a document is a list of objects: of any, or of those of its kind, as a PodList."""
    kind = document.get("kind") if isinstance(document, dict) else None
    return isinstance(kind, str) and (kind == "List" or (kind.endswith("List") and "items" in document))


def of_list(kind: str, item: Any) -> Any:
    """An item with its kind, which that of its list says where it says none itself: a PodList has Pods."""
    named = not isinstance(item, dict) or "kind" in item or kind == "List"
    return item if named else {"kind": kind.removesuffix("List"), **item}


class RawList(msgspec.Struct):
    """A list of kubectl, its items not yet decoded."""

    kind: str
    items: list[msgspec.Raw] | None = None


def read_json(text: str) -> Any:
    """The document of a JSON text, item by item where it is a list: items take ten times the memory of their text."""
    try:
        found = msgspec.json.decode(text, type=RawList)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return read_value(text)
    return found if found.kind.endswith("List") and found.items is not None else read_value(text)

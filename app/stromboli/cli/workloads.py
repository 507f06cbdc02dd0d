"""Files with kinds of workloads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from stromboli.api.documents import read_either
from stromboli.api.errors import DocumentError, InvalidObjectError, MistakesError, StromboliError
from stromboli.api.validation import describe, shown
from stromboli.simulation.files import LARGEST_POLICY, UnreadableFileError, read_text
from stromboli.workloads import Kind, Kinds, known_kinds
from stromboli.workloads.model import KIND, is_workload_kind, parse


def kinds_with(paths: Iterable[Path]) -> Kinds:
    """The kinds that are known, and those in some files. Raises MistakesError with a line for each mistake."""
    kinds, problems = known_kinds(), []
    for path in paths:
        try:
            documents = list(enumerate(read_either(read_text(path, LARGEST_POLICY), json=path.suffix == ".json"), 1))
        except (UnreadableFileError, DocumentError) as error:
            problems.append(str(error) if isinstance(error, UnreadableFileError) else f"{path}: {error}")
            continue
        for found in _kinds(path, documents):
            if isinstance(found, Kind):
                kinds.add(found)
            else:
                problems.append(str(found))
    if problems:
        raise MistakesError(problems)
    return kinds


def holds_kinds(text: str) -> bool:
    """Whether the text of a file is one of kinds of workloads rather than a policy."""
    try:
        return is_workload_kind(next(iter(read_either(text, json=False)), None))
    except StromboliError:
        return False


def _kinds(path: Path, documents: Iterable[tuple[int, Any]]) -> Iterator[Kind | InvalidObjectError]:
    for number, document in documents:
        where = f"{path}: document {number}"
        try:
            if document is None:
                continue
            if not is_workload_kind(document):
                raise InvalidObjectError(where, "kind", f"should be {KIND}, not {shown(_kind(document))}")
            where = f"{where}: {describe(KIND, document)}"
            yield Kind.of(parse(document, where), where)
        except InvalidObjectError as error:
            yield error


def _kind(document: object) -> object:
    return document.get("kind") if isinstance(document, dict) else document

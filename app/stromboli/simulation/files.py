"""Files on their way to text: each mistake is reported in one line, and none is read beyond a limit."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stromboli.api.documents import decoded
from stromboli.api.errors import DocumentError, StromboliError

#: the most bytes of a file with objects, by default
LARGEST_FILE = 256 << 20
#: bytes of a policy: a ConfigMap holds no more
LARGEST_POLICY = 1 << 20
_SUFFIXES = frozenset((".yaml", ".yml", ".json"))


class UnreadableFileError(StromboliError):
    """A file that is not there, may not be read, is too large or is no text."""


def read_text(path: Path, largest: int = LARGEST_FILE) -> str:
    """The text of a file of at most `largest` bytes. Raises UnreadableFileError."""
    try:
        with path.open("rb") as file:
            return bounded_text(str(path), file, largest)
    except OSError as error:
        raise UnreadableFileError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:  # a name with a null byte
        raise UnreadableFileError(f"{str(path)!r}: {error}") from None


def bounded_text(source: str, file: BinaryIO, largest: int) -> str:
    """The rest of an open file. Raises UnreadableFileError."""
    data = file.read(largest + 1)
    if len(data) > largest:
        raise UnreadableFileError(f"{source}: larger than {largest:,} bytes")
    try:
        return decoded(data)
    except DocumentError as error:
        raise UnreadableFileError(f"{source}: {error}") from None


def files(path: Path) -> Iterator[Path]:
    """The manifests in a folder and in those below it, in order of path, or the file itself.

    Hidden folders are passed over. Raises UnreadableFileError.
    """
    try:
        if not path.is_dir():
            yield path
            return
        found = sorted(_within(path))
    except (OSError, ValueError) as error:
        raise UnreadableFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise UnreadableFileError(f"{path}: no .yaml, .yml or .json files in this folder")
    yield from found


def _within(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path, hidden = Path(entry.path), entry.name.startswith(".")
            if entry.is_dir(follow_symlinks=False):
                yield from () if hidden else _within(path)
            # A link to a folder may lead around in circles: it is read as a file, and told to be none.
            elif path.suffix in _SUFFIXES or (entry.is_dir() and not hidden):
                yield path

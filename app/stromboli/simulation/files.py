"""Files on their way to text: whatever is wrong with one is said in one line, and none is read beyond a limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from stromboli.api.documents import decoded
from stromboli.api.errors import DocumentError, StromboliError

#: bytes of a file with objects, if nothing else is said
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
    """What is left of an open file. Raises UnreadableFileError."""
    data = file.read(largest + 1)
    if len(data) > largest:
        raise UnreadableFileError(f"{source}: larger than {largest:,} bytes")
    try:
        return decoded(data)
    except DocumentError as error:
        raise UnreadableFileError(f"{source}: {error}") from None


def files(path: Path) -> Iterator[Path]:
    """The manifests in a folder in order of name, or the file itself. Raises UnreadableFileError."""
    try:
        if not path.is_dir():
            yield path
            return
        found = sorted(each for each in path.iterdir() if each.suffix in _SUFFIXES)
    except (OSError, ValueError) as error:
        raise UnreadableFileError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not found:
        raise UnreadableFileError(f"{path}: no .yaml, .yml or .json files in this folder")
    yield from found

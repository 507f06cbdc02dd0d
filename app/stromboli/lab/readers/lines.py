"""Lines of text from plain files, or from files compressed by gzip, bzip2 or xz, as archives publish them.

The compression is recognised by the first bytes. A small file may decompress to any size, so the total and the length
of a line are bounded.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from io import BufferedReader
from typing import BinaryIO

from stromboli.api.errors import StromboliError

#: bytes of all lines, and of one
_MOST, _LONGEST = 2 << 30, 1 << 16
_GZIP, _BZIP2, _XZ, _ZSTANDARD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"
#: the longest of these
_MAGIC = 6


class UnreadableLinesError(StromboliError):
    """The rest of a file, after the lines that were read, cannot be read."""


def lines_of(file: BinaryIO) -> Iterator[str]:
    """The lines of a file, of one that is cut off or damaged what is before.

    Raises UnreadableLinesError then, and OSError where the file itself cannot be read.
    """
    left, content, first = _MOST, _unpacked(file), True
    while True:
        try:
            line = content.readline(_LONGEST + 1)
        except EOFError:
            raise UnreadableLinesError("the file is cut off") from None
        except (zlib.error, lzma.LZMAError) as error:
            raise UnreadableLinesError(f"the file is damaged: {error}") from None
        except OSError as error:
            # That is how gzip and bzip2 report damaged data.
            if error.errno is not None:
                raise
            raise UnreadableLinesError(f"the file is damaged: {error}") from None
        if not line:
            return
        left -= len(line)
        if len(line) > _LONGEST:
            raise UnreadableLinesError(f"a line is longer than {_LONGEST >> 10} KiB")
        if left < 0:
            raise UnreadableLinesError(f"the file holds more than {_MOST >> 30} GiB")
        text = line.decode(errors="replace")
        # Editors on Windows begin a file with it.
        yield text.removeprefix("\ufeff") if first else text
        first = False


def _unpacked(file: BinaryIO) -> BinaryIO | gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile:
    """Decompressed content of a file. Raises UnreadableLinesError."""
    if not isinstance(file, BufferedReader):
        return file
    first = file.peek(_MAGIC)
    if first.startswith(_ZSTANDARD):
        raise UnreadableLinesError("the file is packed by Zstandard, which is not read here: unpack it first")
    if first.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if first.startswith(_BZIP2):
        return bz2.BZ2File(file)
    return lzma.LZMAFile(file) if first.startswith(_XZ) else file

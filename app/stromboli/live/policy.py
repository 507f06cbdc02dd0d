"""Follows the policy file. A file that cannot be used is reported, and the policy before it stays in force."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

from stromboli.api.errors import PolicyError
from stromboli.live.logs import Logger

log = Logger(__name__)


class PolicyFile:
    """Looks at a file each second, by content: a mounted ConfigMap changes by moving symbolic links."""

    def __init__(
        self,
        path: Path,
        load: Callable[[str], None],
        report: Callable[[str | None], None],
        period: float = 1.0,
    ) -> None:
        """`load` takes up a text or raises PolicyError; `report` is told the problem, or None when it is mended."""
        self._path = path
        self._load = load
        self._report = report
        self._period = period
        self._signature: tuple[int, int, int] | None = None
        self._digest = b""
        self._problem: str | None = None

    def read(self) -> str:
        """The text that to begin with. Raises PolicyError or OSError."""
        self._signature, content = self._stat(), self._path.read_bytes()
        self._digest = _digest(content)
        return _decoded(content)

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            self.check()

    def check(self) -> None:
        """Take the file up if it changed."""
        try:
            signature = self._stat()
            if signature == self._signature:
                return
            content = self._path.read_bytes()
        except OSError as error:
            self._signature = None
            self._tell(f"cannot be read: {error.strerror}")
            return
        self._signature = signature
        digest = _digest(content)
        if digest == self._digest and self._problem is None:
            return
        self._digest = digest
        try:
            self._load(_decoded(content))
        except PolicyError as error:
            self._tell(str(error))
        else:
            self._tell(None)

    def _stat(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size

    def _tell(self, problem: str | None) -> None:
        if problem is not None and problem == self._problem:
            return
        self._problem = problem
        if problem is None:
            log.info("policy loaded", path=self._path)
        else:
            log.error("policy refused, the one before stays in force", path=self._path, problem=problem)
        self._report(problem)


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PolicyError([f"is not UTF-8: {error}"]) from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()

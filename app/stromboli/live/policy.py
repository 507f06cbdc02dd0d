"""Follows the policy file. A file that cannot be used is reported, and the previous policy stays in force."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from pathlib import Path

from stromboli.api.errors import PolicyError
from stromboli.live.process.logs import Logger

log = Logger(__name__)


class PolicyFile:
    """Compares the file's content every second: a mounted ConfigMap changes by replacing symbolic links.

    The last good policy is stored in another file, which replaces a broken policy file after a restart.
    """

    def __init__(
        self,
        path: Path,
        load: Callable[[str], None],
        report: Callable[[str | None], None],
        kept: Path | None = None,
        period: float = 1.0,
    ) -> None:
        """`load` applies a policy or raises PolicyError; `report` gets the problem, or None once it is solved.

        `kept` is the path where the last good policy is stored, None for no such file.
        """
        self._path = path
        self._load = load
        self._report = report
        self._kept = kept
        self._period = period
        self._signature: tuple[int, int, int] | None = None
        self._digest = b""
        #: the problem of the file
        self.problem: str | None = "has not been read yet"
        #: whether a policy is in force
        self.loaded = False

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(self._period)

    def check(self) -> None:
        """Load the file if it has changed."""
        try:
            signature = self._stat()
            if signature == self._signature:
                return
            content = self._path.read_bytes()
        except OSError as error:
            self._signature = None
            self._refuse(f"cannot be read: {error.strerror}")
            return
        self._signature = signature
        digest = _digest(content)
        if digest == self._digest and self.problem is None:
            return
        self._digest = digest
        problem = self._attempt(content)
        if problem:
            self._refuse(problem)
            return
        self.problem = None
        log.info("policy loaded", path=self._path)
        self._report(None)
        self._keep(content)

    def _attempt(self, content: bytes) -> str:
        """Apply a policy; returns its problem, empty for none."""
        try:
            self._load(_decoded(content))
        except PolicyError as error:
            return str(error)
        except Exception as error:
            # An exception of a plugin that the policy names: the previous policy stays in force.
            log.exception("policy not loaded", error, path=self._path)
            return repr(error)
        self.loaded = True
        return ""

    def _refuse(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if not self.loaded:
            self._load_kept()
        in_force = "the previous one stays in force" if self.loaded else "nothing is scheduled until it is fixed"
        log.error(f"policy refused, {in_force}", path=self._path, problem=problem)
        self._report(problem)

    def _load_kept(self) -> None:
        if self._kept is None:
            return
        try:
            problem = self._attempt(self._kept.read_bytes())
        except OSError as error:
            problem = str(error)
        log.info("kept policy not loaded" if problem else "kept policy loaded", path=self._kept, problem=problem)

    def _keep(self, content: bytes) -> None:
        if self._kept is None:
            return
        new = self._kept.with_suffix(".new")
        try:
            self._kept.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(content)
            new.replace(self._kept)
        except OSError as error:
            log.warning("policy not kept", path=self._kept, error=error)

    def _stat(self) -> tuple[int, int, int]:
        stat = self._path.stat()
        return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise PolicyError([f"is not UTF-8: {error}"]) from error


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()

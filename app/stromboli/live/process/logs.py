"""Structured log lines, an event and its fields: `binding refused pod=default/a node=n1`, or a JSON object.

Fields have the same name everywhere: `session` (counted since the start), `job`, `queue`, `pod`, `node`.

While the API server is away the same failure occurs many times a second. Such warnings go through `recurring`: the
first of a cause is logged at once, those that follow are counted and logged with their number, at growing intervals.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pythonjsonlogger.json import JsonFormatter

from stromboli.api.errors import in_words

_PLAIN = re.compile(r"[^\s\"=]+")
#: seconds between two lines of one cause: at first, and at most
_INTERVALS = (10.0, 640.0)
#: number of causes that are remembered
_CAUSES = 1_000


class LogFormat(StrEnum):
    """The format of lines."""

    text = "text"
    json = "json"


def configure(level: str, form: LogFormat = LogFormat.text) -> None:
    """Log records of a level and above to standard error."""
    handler = logging.StreamHandler()
    if form is LogFormat.json:
        handler.setFormatter(_Json(("levelname", "name", "message"), timestamp="time", json_default=str))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    # kopf logs every event; its errors are reported by a line of ours.
    logging.getLogger("kopf").setLevel(logging.CRITICAL)


class _Json(JsonFormatter):
    """A JSON object per line: time, level, logger, event, and the fields under their own names."""

    def process_log_record(self, log_data: dict[str, Any]) -> dict[str, Any]:
        """The text of a record. Records of other libraries are events without fields."""
        line = {
            "time": log_data["time"],
            "level": str(log_data["levelname"]).lower(),
            "logger": log_data["name"],
            "event": log_data.get("event", log_data["message"]),
        }
        line |= log_data.get("fields", {})
        if "exc_info" in log_data:
            line["traceback"] = log_data["exc_info"]
        return line


class Logger:
    """A logger whose methods take an event and fields."""

    __slots__ = ("_logger", "_recurrences")

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logging.getLogger(name)
        self._recurrences = _Recurrences(clock)

    @property
    def tells_all(self) -> bool:
        """Whether lines of level debug are logged."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def recurring(self, event: str, error: object, *, traced: bool = False, **fields: object) -> None:
        """Log a warning that may recur: one line per event and error, with the number of occurrences.

        `traced` adds the traceback of an unexpected error.
        """
        cause = in_words(error)
        count = self._recurrences.due((event, cause))
        if count:
            repeated = {"repeated": count} if count > 1 else {}
            trace = error if traced and isinstance(error, BaseException) else None
            self._log(logging.WARNING, event, {**fields, "error": cause, **repeated}, trace)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, **fields: object) -> None:
        """Log an unexpected error with its traceback."""
        self._log(logging.ERROR, event, {**fields, "error": error}, error)

    def _log(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            text = " ".join([event, *(f"{key}={_shown(value)}" for key, value in fields.items())])
            extra = {"event": event, "fields": fields}
            self._logger.log(level, "%s", text, exc_info=error, extra=extra, stacklevel=3)


@dataclass(slots=True)
class _Recurrence:
    """Occurrences of one cause since its last line."""

    count: int
    #: when the next line is due
    due: float
    #: seconds between this line and the next
    interval: float


class _Recurrences:
    """Counts recurring causes."""

    __slots__ = ("_by_cause", "_clock")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._by_cause: dict[tuple[str, str], _Recurrence] = {}

    def due(self, cause: tuple[str, str]) -> int:
        """Count an occurrence; returns the number to log now, 0 for none. A cause that was absent for long is new."""
        now, (first, longest) = self._clock(), _INTERVALS
        found = self._by_cause.get(cause)
        if found is None or now - found.due > longest:
            if len(self._by_cause) >= _CAUSES:
                self._by_cause.clear()
            self._by_cause[cause] = _Recurrence(0, now + first, first)
            return 1
        found.count += 1
        if now < found.due:
            return 0
        count, found.count = found.count, 0
        found.interval = min(longest, 2 * found.interval)
        found.due = now + found.interval
        return count


def _shown(value: object) -> str:
    text = str(value) or ""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)

"""Log lines of one event and its fields: `binding refused pod=default/a node=n1`.

The fields are also on the record, as `fields`, for formatters that write something else than text.
"""

from __future__ import annotations

import json
import logging
import re

_PLAIN = re.compile(r"[^\s\"=]+")


class Logger:
    """A logger whose methods take an event and fields."""

    __slots__ = ("_logger",)

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._log(logging.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, **fields: object) -> None:
        """An error that nobody foresaw, with its traceback."""
        self._log(logging.ERROR, event, {**fields, "error": error}, error)

    def _log(self, level: int, event: str, fields: dict[str, object], error: BaseException | None = None) -> None:
        if self._logger.isEnabledFor(level):
            text = " ".join([event, *(f"{key}={_shown(value)}" for key, value in fields.items())])
            extra = {"event": event, "fields": fields}
            self._logger.log(level, "%s", text, exc_info=error, extra=extra, stacklevel=3)


def _shown(value: object) -> str:
    text = str(value) or ""
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)

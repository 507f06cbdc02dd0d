"""Patterns that users write: regular expressions in RE2, as in Kubernetes, which match in time linear in the text, and
names with wildcards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import re2

from stromboli.api.validation import shown

#: memory of a compiled pattern in bytes, which bounds its size and compile time
_MEMORY = 1 << 16


def compiled(text: str) -> Any:
    """A pattern with `search` and `fullmatch`. Raises ValueError if it is invalid or too large."""
    options = re2.Options()
    options.log_errors, options.never_capture, options.max_mem = False, True, _MEMORY
    try:
        return re2.compile(text, options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
    except UnicodeError as error:
        problem = str(error)
    raise ValueError(f"the pattern {shown(text)} is not valid: {shown(problem)}")


def any_matches(patterns: Iterable[str], names: Sequence[str]) -> bool:
    """Whether one of some names matches one of some patterns such as `team-*`."""
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)

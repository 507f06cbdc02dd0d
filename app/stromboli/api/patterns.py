"""Regular expressions of users in RE2, as in Kubernetes, which match in time linear in the text."""

from __future__ import annotations

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

"""Removes passwords, tokens and keys from texts that leave the process: logs, errors and policies.

A secret is recognised by its form or by its name: `token: ...`, `"clientSecret": "..."`, `AWS_SECRET_ACCESS_KEY=...`,
even in text that was quoted again, such as JSON within a line of JSON.
"""

from __future__ import annotations

import re

LEFT_OUT = "[left out]"

#: names of secrets, at the end of a longer name, too
_NAME = (
    r"(?:pass(?:word|wd|phrase)|pwd|token|credentials?|cookie|secret(?:[-_]?(?:access)?[-_]?key)?"
    r"|(?:api|access|account|private|signing|encryption)[-_]?key)"
)
_CALLED = re.compile(rf".*(?:{_NAME}|authorization)s?", re.IGNORECASE | re.DOTALL)
#: the separator of a name and its value; either may be quoted, and the quotes quoted again
_IS = r"\\*+[\"']?+\s*+[:=]\s*+"
_KEY = r"PRIVATE KEY-----"
_PATTERNS = tuple(
    (re.compile(pattern, re.IGNORECASE | re.MULTILINE), instead)
    for pattern, instead in (
        # User and password of a URL, which may themselves have an @.
        (r"(?<=://)[^/\s\"'\\]+@", ""),
        (rf"-----BEGIN [A-Z ]*{_KEY}(?:[\s\S]*?-----END [A-Z ]*{_KEY}|[\w\s+/=\\-]*)", LEFT_OUT),
        (r"\beyJ[\w-]+\.[\w-]+\.[\w-]*", LEFT_OUT),
        # A quoted value ends with the quote that it began with, behind as many backslashes.
        (
            rf"((?:{_NAME}|authorization){_IS}(?P<escape>\\*)(?P<quote>[\"'])).*?(?=(?<!\\)(?P=escape)(?P=quote)|$)",
            rf"\1{LEFT_OUT}",
        ),
        # A header has a scheme and what belongs to it, up to its end or that of the text it is quoted in.
        (rf"(authorization{_IS})(?!\\*[\"']).+?(?=\\*[\"']\s*(?:\}}|,\s*\\*[\"'])|$)", rf"\1{LEFT_OUT}"),
        (r"\b(bearer|basic) +[\w.~+/=-]+", rf"\1 {LEFT_OUT}"),
        (rf"({_NAME}{_IS})(?!\\*[\"'])[^\s\"',;&}}\\]+", rf"\1{LEFT_OUT}"),
        # Options of commands, in one text or in a list.
        (rf"(--[\w-]{{0,40}}{_NAME}(?:\\*[\"'],)? +\\*[\"']?)[^\s\"'\\]+", rf"\1{LEFT_OUT}"),
    )
)


def without_secrets(text: str) -> str:
    """A text without the secrets in it."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def names_secret(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return _CALLED.fullmatch(name) is not None

"""docs/reasons.md names the reasons that the code gives, and no others."""

from __future__ import annotations

import re
from pathlib import Path

#: the stage and the word of a reason that is made
_GIVEN = re.compile(r'\bReason\(\s*[^,()]+,\s*"(\w+)"')


def test_every_reason_is_documented(repository: Path) -> None:
    code = "\n".join(path.read_text() for path in (repository / "app").rglob("*.py"))
    given = set(_GIVEN.findall(code))
    listed = set(re.findall(r"^\| `(\w+)`", (repository / "docs" / "reasons.md").read_text(), re.MULTILINE))
    assert len(given) > 25
    assert given <= listed
    assert [word for word in sorted(listed) if f'"{word}"' not in code] == []

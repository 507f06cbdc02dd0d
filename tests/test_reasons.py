"""docs/reasons.md names the reasons that the code gives, and no others."""

from __future__ import annotations

import ast
import re

from tests.test_structure import ROOT, modules

PAGE = ROOT.parent / "docs" / "reasons.md"


def test_every_reason_is_documented() -> None:
    given, strings = set(), set()
    for node in (node for nodes in modules().values() for node in nodes):
        match node:
            case ast.Call(func=ast.Name(id="Reason"), args=[_, ast.Constant(value=str(word)), *_]):
                given.add(word)
            case ast.Constant(value=str(text)):
                strings.add(text)
    listed = set(re.findall(r"^\| `(\w+)`", PAGE.read_text(), re.MULTILINE))
    assert len(given) > 25
    assert given <= listed
    assert listed <= strings

"""YAML and JSON as plain data: what scalars mean, and that a few bytes stay small."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from stromboli.api.documents import decoded, read_json, read_yaml
from stromboli.api.errors import DocumentError
from stromboli.api.validation import field_path, shown


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[5, +5, -5, 0, 0x1F, 010, 0b11, 1_000]", [5, 5, -5, 0, 31, 8, 3, 1000]),
        ("[1.5, -.5, 1.5e+3, 1e3, 5.]", [1.5, -0.5, 1500.0, "1e3", 5.0]),
        ("[yes, No, ON, false, y]", [True, False, True, False, "y"]),
        ("[~, null, '', 'null', !!str 5, !!float 5, !!int '5']", [None, None, "", "null", "5", 5, 5]),
        ("[2024-01-31, 2024-13-45, 12:30, 08, '5', ½]", ["2024-01-31", "2024-13-45", "12:30", "08", "5", "½"]),
        ("{1: a, yes: b, null: c}", {"1": "a", "yes": "b", "null": "c"}),
        ("[99999999999999999999, 9223372036854775807]", [1e20, 2**63 - 1]),
        (
            "- &a {x: 1, y: 2}\n- {<<: *a, y: 3}\n- {<<: [*a, {z: 1}]}",
            [{"x": 1, "y": 2}, {"y": 3, "x": 1}, {"x": 1, "y": 2, "z": 1}],
        ),
    ],
)
def test_scalars_mean_what_they_mean_to_kubernetes(text: str, value: Any) -> None:
    assert list(read_yaml(text)) == [value]


def test_a_stream_has_documents() -> None:
    assert list(read_yaml("---\n---\na: 1\n...\n---\n- b\n")) == [None, {"a": 1}, ["b"]]
    assert list(read_yaml("# nothing\n")) == []


BOMB = "a: &a [x, x]\n" + "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in pairwise("abcdefghijklmnopqrstuvwxyz"))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [b, {c: &x [*x]}]", "line 1, column 16: a[1].c[0]: 'x' contains itself"),
        (BOMB, "line 15, column 12: o[1]: aliases expand to more than 100,000 nodes"),
        ("[" * 101, "nested more than 100 deep"),
        ("a: &a " + "[" * 60 + "]" * 60 + "\nb: " + "[" * 60 + "*a" + "]" * 60, "nested more than 100 deep"),
        ("{a: 1, b: {c: 1, c: 2}}", "line 1, column 18: b: duplicate key 'c'"),
        ("a:\n  b: " + "9" * 5000, "line 2, column 6: a.b: '9999"),
        ("a: .inf", "line 1, column 4: a: .inf is out of the range of numbers"),
        ("a: 1.5e+999", "is too large for a number"),
        ("? [a]\n: b", "a key should be a string, not []"),
        ("a: *x", "line 1, column 4: a: unknown alias 'x'"),
        ("a: !!binary eA==", "a: unknown tag 'tag:yaml.org,2002:binary'"),
        ("a: !!int x", "a: 'x' is not a valid int"),
        ("a: {<<: 5}", "<< should name mappings, not 5"),
        ("a: \0", "not valid YAML: unacceptable character"),
        ("\ta: b", "line 1, column 1: not valid YAML: found character that cannot start any token"),
        ('"\\ud800"', "not valid YAML: found invalid Unicode character escape code"),
    ],
)
def test_what_is_wrong_in_yaml_is_named_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as error:
        list(read_yaml(text))
    assert problem in str(error.value)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[" * 20_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "duplicate key 'a'"),
        ('{"a": NaN}', "NaN is out of the range of numbers"),
        (f'{{"a": {"9" * 5000}}}', "is too long for a number"),
        ('{"a": 1e999}', "is too large for a number"),
        ('{"a": "\\ud800"}', "not valid JSON"),
        ('{"a"\n}', "line 2, column 1: not valid JSON: Expecting ':' delimiter"),
    ],
)
def test_what_is_wrong_in_json_is_named(text: str, problem: str) -> None:
    with pytest.raises(DocumentError) as error:
        read_json(text)
    assert problem in str(error.value)
    assert len(str(error.value)) < 300


def test_files_are_utf_8_or_utf_16() -> None:
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        assert decoded("größe: 1".encode(encoding)) == "größe: 1"
    with pytest.raises(DocumentError, match="not text: byte 1 is not UTF-8"):
        decoded(b"a\xff")


class Endless:
    """A list of which nobody may ask for more than a message shows."""

    asked = 0

    def __repr__(self) -> str:
        Endless.asked += 1
        return "x" * 10_000


def test_a_message_looks_at_a_bounded_part_of_a_value() -> None:
    value: Any = [Endless()] * 1000
    for _ in range(20):
        value = [value] * 1000
    assert len(shown(value)) <= 60
    assert len(shown([Endless()] * 1000)) <= 60
    assert Endless.asked < 20
    assert shown(10**5000) == "a number of 16610 bits"
    assert field_path(["a", "b c\n", 0]) == "a['b c\\n'][0]"

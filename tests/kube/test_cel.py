"""Selectors of devices: what they mean, and that none costs more than it may."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stromboli.kube.dra.cel import CelError, CostError, Run, compiled
from stromboli.kube.dra.cel.run import MAX_COST
from stromboli.kube.dra.cel.values import Domains, Quantity, Version
from tests.fuzz import tried

DRIVER = "gpu.example.com"
A, C = f'device.attributes["{DRIVER}"]', f'device.capacity["{DRIVER}"]'
VARIABLES: dict[str, Any] = {
    "device": {
        "driver": DRIVER,
        "allowMultipleAllocations": False,
        "attributes": Domains(
            {
                DRIVER: {
                    "model": "h100",
                    "index": 3,
                    "healthy": True,
                    "runtime": Version("12.2.0"),
                    "name": "NVIDIA A100-SXM4-40GB",
                }
            }
        ),
        "capacity": Domains({DRIVER: {"memory": Quantity(Fraction(80 * 1024**3))}}),
    }
}


def value(expression: str) -> Any:
    return ran(expression)[0]


def ran(expression: str) -> tuple[Any, int]:
    """The value and what it cost."""
    run = Run(VARIABLES, MAX_COST)
    return compiled(expression).evaluate(run), MAX_COST - run.left


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'device.driver == "{DRIVER}"', True),
        (f"device.driver != '{DRIVER}'", False),
        (f'{A}.model == "h100"', True),
        (f'{A}["model"] in ["a100", "h100"]', True),
        (f'!({A}.model in ["a100"])', True),
        (f"{A}.index >= 2 && {A}.index < 4", True),
        (f"{A}.index == 2 || {A}.healthy", True),
        (f"{A}.index == -3", False),
        (f"{A}.healthy == 1", False),
        (f'{C}.memory.compareTo(quantity("60Gi")) >= 0', True),
        (f'{C}.memory.isLessThan(quantity("80Gi"))', False),
        (f'{C}.memory == quantity("81920Mi")', True),
        (f'{C}.memory.sub(quantity("16Gi")).isGreaterThan(quantity("63Gi"))', True),
        (f'{C}.memory.asInteger() / 1073741824 == 80 && quantity("1").add(2).sign() == 1', True),
        (f'{A}.runtime.isGreaterThan(semver("12.1.9"))', True),
        (f'{A}.runtime.isLessThan(semver("12.2.0-rc.1"))', False),
        (f'{A}.runtime.major() == 12 && isSemver("1.2.3") && !isQuantity("lots")', True),
        (f'{A}.name.lowerAscii().matches("^.*a100.*$")', True),
        (rf'{A}.name.matches(r"(?i)\bsxm\d+\b")', True),
        (f'{A}.name.matches("^A10" + "0")', False),
        (f'{A}.name.startsWith("NVIDIA") && {A}.name.contains("SXM4")', True),
        (f'{A}.name.split(" ")[1].substring(0, 4).upperAscii().replace("A", "H") == "H100"', True),
        (f'has({A}.model) && !has({A}.serial) && !has(device.attributes["other"].model)', True),
        (f'"model" in {A} ? {A}.model == "h100" : false', True),
        (f'cel.bind(own, {A}, own.model == "h100" && own.index == 3)', True),
        (f'{A}.serial == "x" || {A}.index == 3', True),
        (f'{A}.index == 0 && {A}.serial == "x"', False),
        ("device.allowMultipleAllocations", False),
        ("1 + 2 * 3 - 7 % 4 == 4 && -7 / 2 == -3 && -7 % 3 == -1", True),
        ("1.5 + 0.5 == 2 && 1.0 / 0.0 > 1e300 && !(0.0 / 0.0 == 0.0)", True),
        ("0x10 == 16 && - -1 == 1 && !!true && int('12') == int(12.9)", True),
        ('["a"] + ["b"] == ["a", "b"] && {"a": [1]} == {"a": [1.0]} && {"a": 1}.a == 1', True),
        (f'["a100", "h100"].exists(m, m == {A}.model) && {A}.all(key, size(key) > 3)', True),
        ("[1, 2, 3].map(x, x > 1, x * 2) == [4, 6] && [1, 2].exists_one(x, x == 1)", True),
        ("[1, 2, 3].filter(x, x != 2).map(x, string(x)).join('-') == '1-3'", True),
        (f'{A}.?model.orValue("") == "h100" && {A}.?serial.orValue("none") == "none"', True),
        (f'{A}[?"index"].value() == 3 && !{A}.?serial.hasValue() && {A}.?model.hasValue()', True),
        (f'device.?attributes["other"].?model.hasValue() || {C}.?memory.value() < quantity("1Gi")', False),
        (f'{A}.?serial.or({A}.?name).orValue("").startsWith("NVIDIA") && {A}.?model.orValue(1 / 0) == "h100"', True),
        (f"{A}.?serial.length.first.orValue(7) == 7 && [4, 5][?1].value() == 5 && ![4][?1].hasValue()", True),
        ("optional.of(3).value() == 3 && optional.none().orValue(4) == 4 && optional.none() == optional.none()", True),
        (f"{A}.?healthy == optional.of(true) ? {A}.?index.value() == 3 : false", True),
        ("[0, 1].exists(x, 1 / x == 1) && [3, 1, 2].max() == 3 && [1, 2].isSorted() && [1, 2].sum() == 3", True),
    ],
)
def test_expressions(expression: str, expected: bool) -> None:
    assert value(expression) is expected


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (f'{A}.serial == "x"', "no such key: serial"),
        (f"{A}.model < {C}.memory", "< does not compare string with quantity"),
        (f'{A}.model.compareTo(quantity("1"))', "compareTo does not take string, quantity"),
        (f'{A}.runtime.compareTo(quantity("1"))', "compareTo does not take semver, quantity"),
        (f'{A}.name.matches("[" + "[")', "is not valid"),
        (f'{A}.name.matches("x" + ".{{1000}}")', "is not valid"),
        (f'{A}.runtime == semver("1.2")', "'1.2' is not a semantic version"),
        (f'{A}.runtime == semver("1.2.{"3" * 5000}")', "is not a semantic version"),
        ('quantity("lots")', "is not a Kubernetes quantity"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        ("-(-9223372036854775807 - 1) > 0", "integer overflow"),
        ("int(1e300) > 0", "integer overflow"),
        ("1 / 0 == 1", "division by zero"),
        ("1 + 1.0 == 2", "[+] does not take int and double"),
        ("'a' * 3 == 'aaa'", "[*] does not take string and int"),
        ("[1, true].max() == 1", "cannot be compared"),
        ("'abc'.substring(2, 9) == ''", "out of range"),
        ("true.all(x, x)", "bool has no elements"),
        ("other.driver == 'x'", "undeclared reference to other"),
        ("device.driver && true", "string is not a bool"),
        (f'{A}.?serial.value() == "x"', "the optional value is missing"),
        (f'{A}.model.orValue("") == "x"', "string is not optional"),
        (f"{A}.model.?first == optional.none()", "string has no entries"),
        (f"true && {A}.?model", "optional_type is not a bool"),
    ],
)
def test_expressions_without_an_answer(expression: str, problem: str) -> None:
    program = compiled(expression)
    with pytest.raises(CelError, match=problem):
        program.evaluate(Run(VARIABLES, MAX_COST))


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("device.driver ==", "'the end' is not supported here"),
        ("device.driver = 'x'", "is not supported"),
        ("[1, 2].exists(x, y, x == 1)", "exists with 3 arguments is not supported"),
        ("url('x')", "the function 'url' is not supported"),
        ("timestamp('2024-01-01T00:00:00Z') < now", "the function 'timestamp' is not supported"),
        ("9" * 5000, "is too large"),
        ("9223372036854775808 > 0", "is too large"),
        ("(" * 500 + "true" + ")" * 500, "nested too deeply"),
        ("device" + ".a" * 500, "too many steps"),
        ("'a'.startsWith()", "startsWith with 1 arguments"),
        ("device.?driver.orValue()", "orValue with 0 arguments"),
        ("optional.maybe(1) == 1", "optional.maybe with 1 arguments"),
        ("'a'.matches('(a')", "the pattern '[(]a' is not valid"),
        ("'a'.matches('((a{100}){100}){100}')", "is not valid"),
        (" || ".join(["'a'.matches('a')"] * 17), "more than 16 patterns"),
        ("'" + "x" * 10_240 + "' == ''", "it has 10248 characters, more than 10240"),
        ("", "is not supported here"),
    ],
)
def test_unsupported_expressions(expression: str, problem: str) -> None:
    with pytest.raises(CelError, match=problem):
        compiled(expression)


def test_a_long_chain_of_terms_is_no_problem() -> None:
    assert value(" && ".join([f'{A}.model == "h100"'] * 150)) is True
    assert value("+".join(["1"] * 5_000) + " == 5000") is True


def binds(first: str, step: str, last: str, times: int = 17) -> str:
    """Each name stands for what a step makes of the name before."""
    steps = "".join(f"cel.bind(a{i + 1}, {step.replace('$', f'a{i}')}, " for i in range(times))
    return f"cel.bind(a0, {first}, {steps}{last.replace('$', f'a{times}')}{')' * (times + 1)}"


NUMBERS = str(list(range(1_000)))


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param(f"cel.bind(n, {NUMBERS}, n.all(x, n.all(y, n.all(z, true))))", id="nested macros"),
        pytest.param(f"cel.bind(n, {NUMBERS}, n.map(x, n.map(y, n)).size() > 0)", id="lists of lists"),
        pytest.param(binds("'aaaaaaaaaaaaaaaa'", "$ + $ + $ + $", "$ == $"), id="doubled strings"),
        pytest.param(binds("['a']", "$ + $ + $", "$ == $"), id="doubled lists"),
        pytest.param(binds("['a']", "[$, $, $, $]", "$ == $"), id="lists of the same lists, compared"),
        pytest.param(binds("'aaaa'", "$.replace('a', 'aaaa')", "$ == $"), id="replacements"),
        pytest.param(binds("'a,a'", "$.split('').map(x, $).join()", "$ == $"), id="joins of splits"),
        pytest.param(f"'{'a' * 5_000}'.matches('(a{{0,30}}){{0,30}}x')", id="a pattern that unfolds"),
        pytest.param(
            f"cel.bind(n, {NUMBERS}, n.all(x, !'a'.matches('b' + string(x))))",
            id="patterns that are computed",
        ),
        pytest.param(f"cel.bind(t, '{'a' * 4_000}', (t + t + t).contains('{'a' * 4_000}b'))", id="needles"),
    ],
)
def test_what_costs_too_much_is_stopped(expression: str) -> None:
    with pytest.raises(CostError, match="it exceeds the cost limit"):
        ran(expression)


def test_a_pattern_is_matched_in_time_linear_in_the_text() -> None:
    costs = [ran(f"'{'a' * size}'.matches('a*a*a*b')")[1] for size in (1_000, 2_000, 4_000)]
    assert costs[2] - costs[1] == 2 * (costs[1] - costs[0])


NUMBERS_AND_TEXTS = ["1", "-1", "0", "2.5", "9223372036854775807", "''", "'aaaa'", "'a,b'", "'1Gi'", "'1.2.3'"]
OTHERS = ["true", "null", "[]", "{}", "x", "y", "device"]
PATHS = ["device.driver", A, C, f"{A}.model", f"{A}.index", f"{A}.runtime", f"{C}.memory"]
LEAVES = st.sampled_from([*NUMBERS_AND_TEXTS, *OTHERS, *PATHS, NUMBERS])
BINARY = ["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "in", "&&", "||"]
METHODS = [
    "orValue",
    "or",
    "matches",
    "contains",
    "split",
    "join",
    "add",
    "compareTo",
    "indexOf",
    "substring",
    "charAt",
    "startsWith",
]
PLAIN = ["hasValue", "value", "size", "lowerAscii", "trim", "max", "sum", "isSorted", "asInteger", "major", "join"]


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Larger expressions of smaller ones, sensible or not."""
    name = st.sampled_from(["x", "y"])
    return st.one_of(
        st.builds(lambda a, o, b: f"({a} {o} {b})", inner, st.sampled_from(BINARY), inner),
        st.builds(lambda a, m, b: f"({a}).{m}({b})", inner, st.sampled_from(METHODS), inner),
        st.builds(lambda a, m: f"({a}).{m}()", inner, st.sampled_from(PLAIN)),
        st.builds(
            lambda a, m, x, b: f"({a}).{m}({x}, {b})",
            inner,
            st.sampled_from(["all", "exists", "exists_one", "map", "filter"]),
            name,
            inner,
        ),
        st.builds(lambda x, a, b: f"cel.bind({x}, {a}, {b})", name, inner, inner),
        st.builds(lambda a, b, c: f"({a} ? {b} : {c})", inner, inner, inner),
        st.builds(lambda a, b: f"[{a}, {b}]", inner, inner),
        st.builds(lambda a, b: f"({a}).replace('a', {b})", inner, inner),
        st.builds(lambda f, a: f"{f}({a})", st.sampled_from(["size", "int", "double", "string", "quantity"]), inner),
        st.builds(lambda a: f"-({a})", inner),
        st.builds(lambda a, b: f"({a})[{b}]", inner, inner),
        st.builds(lambda a, b: f"({a})[?{b}].x", inner, inner),
    )


def cost(expression: str) -> int:
    """What it costs to understand and run; nothing when there is an error of a type that is expected."""
    try:
        return ran(expression)[1]
    except (CelError, CostError):
        return 0


@tried(75)
@given(st.recursive(LEAVES, grown, max_leaves=12))
def test_no_expression_raises_anything_else_or_costs_more(expression: str) -> None:
    assert 0 <= cost(expression) <= MAX_COST


@tried(75)
@given(st.text(alphabet="abx01.,'\"\\()[]{}&|!?:<>=+-*/% \n\u00e9\u0000", max_size=60))
def test_no_text_raises_anything_else(text: str) -> None:
    assert 0 <= cost(text) <= MAX_COST

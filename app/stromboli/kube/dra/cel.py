"""Selectors of devices: the part of CEL that they are written in.

An expression is parsed once into nested functions and then asked about one device after the other. There are literals,
lists, `device.driver`, `device.attributes["DOMAIN"].NAME`, `device.capacity["DOMAIN"].NAME`, the operators
`! - == != < <= > >= in && || ?:`, `has`, `cel.bind`, and the functions of strings, quantities and versions that
`operations` lists. What else there is in CEL is refused by name. Nothing here can loop: the time that an expression
takes is bounded by its length.
"""

from __future__ import annotations

import re
from typing import Any

from stromboli.kube.dra import operations
from stromboli.kube.dra.operations import CelError, Evaluate, Variables

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[0-9]{1,18}(?:\.[0-9]{1,18})?)
      | (?P<name>[A-Za-z_]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<operator>&&|\|\||[=!<>]=|[-!<>?:.,()\[\]])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "t": "\t", "`": "`", "?": "?"}
_CONSTANTS = {"true": True, "false": False, "null": None}
#: how deep expressions may be nested, and how many steps may follow each other in `a.b.c`
_DEEPEST, _LONGEST_CHAIN = 20, 10


def parse(text: str) -> Evaluate:
    """Understand an expression. Raises CelError, which says what in it is not supported."""
    return _Parser(text).parse()


def _tokens(text: str) -> list[tuple[str, str]]:
    out, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"{text[at:].split()[0]!r} is not supported")
        out.append((str(match.lastgroup), match[str(match.lastgroup)]))
        at = match.end()
    return [*out, ("end", "")]


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def parse(self) -> Evaluate:
        out = self._expression()
        if self._tokens[self._at][0] != "end":
            raise CelError(f"{self._tokens[self._at][1]!r} is not supported here")
        return out

    def _accept(self, *texts: str) -> str | None:
        kind, text = self._tokens[self._at]
        if kind in ("operator", "name") and text in texts:
            self._at += 1
            return text
        return None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            raise CelError(f"{text!r} is expected where {self._tokens[self._at][1] or 'the end'!r} is")

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise CelError(f"a name is expected where {text or 'the end'!r} is")
        self._at += 1
        return text

    def _expression(self) -> Evaluate:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError("it is nested too deeply")
        condition = self._or()
        if self._accept("?"):
            chosen = self._or()
            self._expect(":")
            condition = self._conditional(condition, chosen, self._expression())
        self._depth -= 1
        return condition

    @staticmethod
    def _conditional(condition: Evaluate, chosen: Evaluate, other: Evaluate) -> Evaluate:
        return lambda variables: chosen(variables) if operations.truth(condition(variables)) else other(variables)

    def _or(self) -> Evaluate:
        terms = [self._and()]
        while self._accept("||"):
            terms.append(self._and())
        return operations.combined(terms, decisive=True)

    def _and(self) -> Evaluate:
        terms = [self._relation()]
        while self._accept("&&"):
            terms.append(self._relation())
        return operations.combined(terms, decisive=False)

    def _relation(self) -> Evaluate:
        left = self._unary()
        operator = self._accept(*operations.RELATIONS)
        return left if operator is None else operations.relation(operator, left, self._unary())

    def _unary(self) -> Evaluate:
        negations = 0
        while self._accept("!"):
            negations += 1
        if negations:
            operand = self._member()
            return lambda variables: operations.truth(operand(variables)) ^ bool(negations % 2)
        if self._accept("-"):
            kind, text = self._tokens[self._at]
            if kind != "number":
                raise CelError("- is supported in front of numbers only")
            self._at += 1
            number = -_number(text)
            return lambda _: number
        return self._member()

    def _member(self) -> Evaluate:
        value = self._primary()
        for _ in range(_LONGEST_CHAIN):
            if self._accept("."):
                name = self._name()
                value = self._method(value, name) if self._accept("(") else operations.select(value, name)
            elif self._accept("["):
                key = self._expression()
                self._expect("]")
                value = operations.index(value, key)
            else:
                return value
        raise CelError("it has too many steps in a row")

    def _method(self, of: Evaluate, name: str) -> Evaluate:
        if name not in operations.METHODS:
            raise CelError(f"the function {name} is not supported")
        return operations.call(name, *operations.METHODS[name], [of, *self._arguments(")")])

    def _arguments(self, end: str) -> list[Evaluate]:
        out: list[Evaluate] = []
        while not self._accept(end):
            if out:
                self._expect(",")
            out.append(self._expression())
        return out

    def _primary(self) -> Evaluate:
        if self._accept("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._accept("["):
            return operations.listed(self._arguments("]"))
        kind, text = self._tokens[self._at]
        if kind == "name":
            self._at += 1
            return self._named(text)
        if kind in ("number", "string"):
            self._at += 1
            value = _number(text) if kind == "number" else _string(text)
            return lambda _: value
        raise CelError(f"{text or 'the end'!r} is not supported here")

    def _named(self, name: str) -> Evaluate:
        if name in _CONSTANTS:
            constant = _CONSTANTS[name]
            return lambda _: constant
        if name == "cel":
            return self._bind()
        if not self._accept("("):
            return lambda variables: _variable(variables, name)
        if name == "has":
            return self._presence()
        if name not in operations.GLOBALS:
            raise CelError(f"the function {name} is not supported")
        return operations.call(name, *operations.GLOBALS[name], self._arguments(")"))

    def _presence(self) -> Evaluate:
        """`has(VALUE.NAME)`: the last step is asked for instead of taken."""
        of = self._primary()
        for _ in range(_LONGEST_CHAIN):
            if self._accept("["):
                key = self._expression()
                self._expect("]")
                of = operations.index(of, key)
                continue
            self._expect(".")
            name = self._name()
            if self._accept(")"):
                return operations.has(of, name)
            of = operations.select(of, name)
        raise CelError("it has too many steps in a row")

    def _bind(self) -> Evaluate:
        """`cel.bind(NAME, VALUE, EXPRESSION)`: the expression may use the value by name."""
        for expected in (".", "bind", "("):
            self._expect(expected)
        name = self._name()
        self._expect(",")
        value = self._expression()
        self._expect(",")
        body = self._expression()
        self._expect(")")
        return lambda variables: body({**variables, name: value(variables)})


def _variable(variables: Variables, name: str) -> Any:
    if name not in variables:
        raise CelError(f"there is no {name}")
    return variables[name]


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def _string(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        if match[1] not in _ESCAPES:
            raise CelError(f"the escape {match[0]} is not supported")
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", escape, text[1:-1])

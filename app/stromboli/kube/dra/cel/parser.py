"""The parser: compiles an expression into nested functions."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from stromboli.kube.dra.cel import operations, optionals
from stromboli.kube.dra.cel.functions import GLOBALS, INT_MAX, METHODS, call
from stromboli.kube.dra.cel.operations import Constant
from stromboli.kube.dra.cel.run import Evaluate
from stromboli.kube.dra.cel.values import CelError, shown

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>0x[0-9a-fA-F]{1,16}|[0-9]{1,19}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?)
      | (?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
      | (?P<name>[A-Za-z_]\w*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<operator>&&|\|\||[=!<>]=|[-+*/%!<>?:.,()\[\]{}])
    )""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t", "`": "`", "?": "?"}
_CONSTANTS = {"true": True, "false": False, "null": None}
#: limits on nesting, and on the length of a chain `a.b.c`
_DEEPEST, _LONGEST_CHAIN = 20, 12
#: limit on patterns in an expression, since each takes milliseconds to compile
_MOST_PATTERNS = 16


def parse(text: str) -> Evaluate:
    """Compile an expression. Raises CelError, which names the unsupported part."""
    return _Parser(text).parse()


def _tokens(text: str) -> list[tuple[str, str]]:
    out, at = [], 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CelError(f"{shown(text[at:].split()[0])} is not supported")
        out.append((str(match.lastgroup), match[str(match.lastgroup)]))
        at = match.end()
    return [*out, ("end", "")]


class _Parser:
    """Recursive descent, one method for each level of precedence."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0
        self._patterns = 0

    def parse(self) -> Evaluate:
        out = self._expression()
        if self._tokens[self._at][0] != "end":
            raise CelError(f"{shown(self._tokens[self._at][1])} is not supported here")
        return out

    # -- tokens --------------------------------------------------------------------------------------------------

    def _accept(self, *texts: str) -> str | None:
        kind, text = self._tokens[self._at]
        if kind in ("operator", "name") and text in texts:
            self._at += 1
            return text
        return None

    def _expect(self, text: str) -> None:
        if self._accept(text) is None:
            raise CelError(f"{text!r} is expected where {shown(self._tokens[self._at][1] or 'the end')} is")

    def _name(self) -> str:
        kind, text = self._tokens[self._at]
        if kind != "name":
            raise CelError(f"a name is expected where {shown(text or 'the end')} is")
        self._at += 1
        return text

    # -- operators -----------------------------------------------------------------------------------------------

    def _expression(self) -> Evaluate:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise CelError("it is nested too deeply")
        condition = self._or()
        if self._accept("?"):
            chosen = self._or()
            self._expect(":")
            condition = operations.conditional(condition, chosen, self._expression())
        self._depth -= 1
        return condition

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
        left = self._sum()
        operator = self._accept(*operations.RELATIONS)
        return left if operator is None else operations.relation(operator, left, self._sum())

    def _sum(self) -> Evaluate:
        first, rest = self._product(), []
        while operator := self._accept("+", "-"):
            rest.append((operator, self._product()))
        return operations.arithmetic(first, rest)

    def _product(self) -> Evaluate:
        first, rest = self._unary(), []
        while operator := self._accept("*", "/", "%"):
            rest.append((operator, self._unary()))
        return operations.arithmetic(first, rest)

    def _unary(self) -> Evaluate:
        sign = self._accept("!", "-")
        if sign is None:
            return self._member()
        times = 1
        while self._accept(sign):
            times += 1
        if sign == "-" and self._tokens[self._at][0] == "number":
            self._at += 1
            operand: Evaluate = Constant(_number(self._tokens[self._at - 1][1], negative=times % 2 == 1))
            return self._steps(operand)
        apply = operations.negated if sign == "!" else operations.minus
        operand = self._member()
        # An odd number of signs is one sign, an even number two, which still check the operand's type.
        return apply(operand) if times % 2 else apply(apply(operand))

    # -- members -------------------------------------------------------------------------------------------------

    def _member(self) -> Evaluate:
        return self._steps(self._primary())

    def _steps(self, value: Evaluate) -> Evaluate:
        optional = False
        for _ in range(_LONGEST_CHAIN):
            step: Callable[[Evaluate], Evaluate]
            if self._accept("."):
                if self._accept("?"):
                    value, optional = optionals.entry(value, Constant(self._name())), True
                    continue
                name = self._name()
                if self._accept("("):
                    value, optional = self._method(value, name), False
                    continue
                step = partial(operations.select, name=name)
            elif self._accept("["):
                if self._accept("?"):
                    value, optional = optionals.entry(value, self._key()), True
                    continue
                step = partial(operations.index, key=self._key())
            else:
                return value
            value = optionals.followed(value, step) if optional else step(value)
        raise CelError("it has too many steps in a row")

    def _key(self) -> Evaluate:
        key = self._expression()
        self._expect("]")
        return key

    def _method(self, of: Evaluate, name: str) -> Evaluate:
        if name in operations.MACROS:
            return self._macro(of, name)
        if name in optionals.METHODS:
            return optionals.method(name, of, self._arguments(")"))
        arguments = [of, *self._arguments(")")]
        if name == "matches" and len(arguments) == 2:
            self._patterns += 1
            if self._patterns > _MOST_PATTERNS:
                raise CelError(f"it has more than {_MOST_PATTERNS} patterns")
            return operations.matches(*arguments)
        if name not in METHODS:
            raise CelError(f"the function {shown(name)} is not supported")
        return call(name, METHODS[name], arguments)

    def _macro(self, of: Evaluate, name: str) -> Evaluate:
        make, counts = operations.MACROS[name]
        variable = self._name()
        self._expect(",")
        bodies = self._arguments(")")
        if len(bodies) not in counts:
            raise CelError(f"{name} with {1 + len(bodies)} arguments is not supported")
        return make(of, variable, *bodies)

    def _arguments(self, end: str) -> list[Evaluate]:
        out: list[Evaluate] = []
        while not self._accept(end):
            if out:
                self._expect(",")
            out.append(self._expression())
        return out

    def _entries(self) -> list[tuple[Evaluate, Evaluate]]:
        out: list[tuple[Evaluate, Evaluate]] = []
        while not self._accept("}"):
            if out:
                self._expect(",")
            key = self._expression()
            self._expect(":")
            out.append((key, self._expression()))
        return out

    def _primary(self) -> Evaluate:
        if self._accept("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._accept("["):
            return operations.listed(self._arguments("]"))
        if self._accept("{"):
            return operations.mapped(self._entries())
        kind, text = self._tokens[self._at]
        if kind in ("operator", "end"):
            raise CelError(f"{shown(text or 'the end')} is not supported here")
        self._at += 1
        if kind == "name":
            return self._named(text)
        return Constant(_LITERALS[kind](text))

    def _named(self, name: str) -> Evaluate:
        if name in _CONSTANTS:
            return Constant(_CONSTANTS[name])
        if name == "cel" and self._accept("."):
            return self._bind()
        if name == "optional" and self._accept("."):
            which = self._name()
            self._expect("(")
            return optionals.made(which, self._arguments(")"))
        if not self._accept("("):
            return operations.variable(name)
        if name == "has":
            return self._presence()
        if name not in GLOBALS:
            raise CelError(f"the function {shown(name)} is not supported")
        return call(name, GLOBALS[name], self._arguments(")"))

    def _presence(self) -> Evaluate:
        """`has(VALUE.NAME)`: tests the last selection instead of evaluating it."""
        of = self._primary()
        for _ in range(_LONGEST_CHAIN):
            if self._accept("["):
                of = operations.index(of, self._key())
                continue
            self._expect(".")
            name = self._name()
            if self._accept(")"):
                return operations.has(of, name)
            of = operations.select(of, name)
        raise CelError("it has too many steps in a row")

    def _bind(self) -> Evaluate:
        for expected in ("bind", "("):
            self._expect(expected)
        name = self._name()
        self._expect(",")
        value = self._expression()
        self._expect(",")
        body = self._expression()
        self._expect(")")
        return operations.bind(name, value, body)


def _number(text: str, *, negative: bool = False) -> int | float:
    sign = -1 if negative else 1
    if not text.startswith("0x") and not text.isdigit():
        return sign * float(text)
    value = sign * int(text, 0 if text.startswith("0x") else 10)
    if not -INT_MAX - 1 <= value <= INT_MAX:
        raise CelError(f"the number {text} is too large")
    return value


def _string(text: str) -> str:
    def escape(match: re.Match[str]) -> str:
        written = match[1]
        if len(written) > 1:
            code = int(written[1:], 16)
            if not 0xD800 <= code < 0xE000:
                return chr(code)
        elif written in _ESCAPES:
            return _ESCAPES[written]
        raise CelError(f"the escape {match[0]} is not supported")

    return _ESCAPE.sub(escape, text[1:-1])


_LITERALS: dict[str, Callable[[str], Any]] = {"number": _number, "string": _string, "raw": lambda text: text[2:-1]}

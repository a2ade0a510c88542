"""From text to a tree: the tokens of CEL, and a parser by precedence that is bounded in length and depth.

Macros are calls here. Each part knows its place in the text. Source: cel-go v0.29.2
`parser/gen/CEL.g4`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gangsched.model.cel.values import INT_MAX, INT_MIN, UINT_MAX, SelectorError, Uint, Value

MAX_LENGTH = 10 * 1024
"""Kubernetes' limit for a selector, in bytes."""
MAX_DEPTH = 120
"""Levels of an expression. Each takes a few of Python's 1,000 frames; cel-go allows 250, people write ten."""


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an expression: its offset in characters, and how many levels it has with what is below it."""

    position: int
    depth: int = 1


class Literal(Part, frozen=True):
    """A constant."""

    value: Value


class Name(Part, frozen=True):
    """A name. is_absolute: it is written with a dot before it, and no variable of a macro."""

    text: str
    is_absolute: bool = False


class Member(Part, frozen=True):
    """`holder.name`, `holder[key]`; optional: `holder.?name`, `holder[?key]`. is_name: written as a name."""

    holder: Part
    key: Part
    is_optional: bool
    is_name: bool


class Invocation(Part, frozen=True):
    """A function, an operator or a macro, with the receiver if it has one."""

    function: str
    arguments: tuple[Part, ...]
    receiver: Part | None = None


class Items(Part, frozen=True):
    """A list; `optional` has the places of items that may be missing."""

    items: tuple[Part, ...]
    optional: frozenset[int]


class Entries(Part, frozen=True):
    """A map; `optional` has the places of entries that may be missing."""

    keys: tuple[Part, ...]
    values: tuple[Part, ...]
    optional: frozenset[int]


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[xX][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2})"
_STRING = (
    r"[rR](?:\"\"\"[\s\S]*?\"\"\"|'''[\s\S]*?'''|\"[^\"\n\r]*\"|'[^'\n\r]*')"
    rf"|\"\"\"(?:{_ESCAPE}|[^\\])*?\"\"\"|'''(?:{_ESCAPE}|[^\\])*?'''"
    rf"|\"(?:{_ESCAPE}|[^\\\"\n\r])*\"|'(?:{_ESCAPE}|[^\\'\n\r])*'"
)
_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n\f]+|//[^\n]*)"
    rf"|(?P<bytes>[bB](?:{_STRING}))|(?P<string>{_STRING})"
    r"|(?P<double>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<uint>(?:0x[0-9A-Fa-f]+|[0-9]+)[uU])|(?P<int>0x[0-9A-Fa-f]+|[0-9]+)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<quoted>`[A-Za-z0-9_.\-/ ]+`)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>\[\]{}().,\-!?:+*/%])",
    re.ASCII,
)
_NEWLINE = re.compile(r"\r\n?")
_ESCAPES = re.compile(_ESCAPE)
_PLAIN_ESCAPES = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))
_CONSTANTS: dict[str, Value] = {"true": True, "false": False, "null": None}
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
_LEVELS = {
    "||": 1, "&&": 2,
    "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "in": 3,
    "+": 4, "-": 4, "*": 5, "/": 5, "%": 5,
}  # fmt: skip
_TOO_DEEP = f"the expression is nested deeper than {MAX_DEPTH} levels"
# More digits than this are no number of 64 bits.
_MAX_DIGITS = 100


def parse(expression: str) -> Part:
    """Parses an expression. Raises: SelectorError."""
    n_bytes = len(expression.encode("utf-8", "surrogatepass"))
    if n_bytes > MAX_LENGTH:
        raise SelectorError(f"the expression has {n_bytes} bytes, at most {MAX_LENGTH}")
    return _Parser(expression).parse()


class _Parser:
    def __init__(self, expression: str) -> None:
        self._expression = expression
        self._tokens = self._read_tokens()
        self._at = 0
        self._nesting = 0

    def parse(self) -> Part:
        tree = self._whole()
        if self._next.kind != "end":
            raise self._unexpected()
        return tree

    def _read_tokens(self) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while at < len(self._expression):
            found = _TOKEN.match(self._expression, at)
            if found is None:
                raise self._error("this is no part of CEL", at)
            kind = found.lastgroup or ""
            if kind != "space":
                text = found.group()
                tokens.append(_Token("sign" if text == "in" else kind, text, at))
            at = found.end()
        tokens.append(_Token("end", "", at))
        return tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _takes(self, sign: str) -> bool:
        """Takes the sign if it is next."""
        if self._next.kind == "sign" and self._next.text == sign:
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected(f"{sign!r} is missing")

    def _unexpected(self, what: str = "") -> SelectorError:
        token = self._next
        is_end = token.kind == "end"
        return self._error(
            what or ("the expression ends too early" if is_end else "this is not expected here"),
            token.position,
        )

    def _error(self, reason: str, position: int) -> SelectorError:
        return SelectorError(reason, expression=self._expression, position=position)

    def _depth(self, position: int, *below: Part) -> int:
        depth = 1 + max((node.depth for node in below), default=0)
        if depth > MAX_DEPTH:
            raise self._error(_TOO_DEEP, position)
        return depth

    def _call(
        self, position: int, function: str, *arguments: Part, receiver: Part | None = None
    ) -> Invocation:
        below = arguments if receiver is None else (receiver, *arguments)
        depth = self._depth(position, *below)
        return Invocation(
            position=position, depth=depth, function=function, arguments=arguments, receiver=receiver
        )

    def _whole(self) -> Part:
        """condition ? value : value, or anything of a higher level."""
        self._nesting += 1
        if self._nesting > MAX_DEPTH:
            raise self._error(_TOO_DEEP, self._next.position)
        found = self._binary(1)
        position = self._next.position
        if self._takes("?"):
            value = self._binary(1)
            self._expect(":")
            found = self._call(position, "?:", found, value, self._whole())
        self._nesting -= 1
        return found

    def _binary(self, lowest: int) -> Part:
        """Operators of this level and higher ones; those of one level from left to right."""
        found = self._unary()
        while True:
            token = self._next
            level = _LEVELS.get(token.text, 0) if token.kind == "sign" else 0
            if level < lowest or level == 0:
                return found
            operands = [found]
            while self._takes(token.text):
                operands.append(self._binary(level + 1))
                if token.text not in ("&&", "||"):
                    break
            found = self._call(token.position, token.text, *operands)

    def _unary(self) -> Part:
        sign = self._next
        n_signs = 0
        while sign.text in ("!", "-") and sign.kind == "sign" and self._takes(sign.text):
            n_signs += 1
        if sign.text == "-" and n_signs == 1 and self._next.kind in ("int", "double"):
            return self._members(self._number(self._take(), is_negative=True))
        found = self._members(self._primary())
        return self._call(sign.position, sign.text, found) if n_signs % 2 else found

    def _members(self, found: Part) -> Part:
        """What follows a value: members, calls of its functions."""
        while True:
            position = self._next.position
            if self._takes("."):
                is_optional = self._takes("?")
                name = self._take()
                if name.kind not in ("name", "quoted") or name.text in _CONSTANTS:
                    raise self._error("a name is missing", name.position)
                if name.kind == "name" and not is_optional and self._takes("("):
                    found = self._call(name.position, name.text, *self._arguments(), receiver=found)
                else:
                    text = Literal(position=name.position, value=name.text.strip("`"))
                    found = self._member(name.position, found, text, is_optional, is_name=True)
            elif self._takes("["):
                is_optional = self._takes("?")
                key = self._whole()
                self._expect("]")
                found = self._member(position, found, key, is_optional, is_name=False)
            elif self._next.text == "{" and isinstance(found, (Name, Member)):
                raise self._error("messages of protobuf are not evaluated here", position)
            else:
                return found

    def _member(self, position: int, holder: Part, key: Part, is_optional: bool, *, is_name: bool) -> Member:
        depth = self._depth(position, holder, key)
        return Member(
            position=position, depth=depth, holder=holder, key=key, is_optional=is_optional, is_name=is_name
        )

    def _primary(self) -> Part:
        token = self._take()
        match token.kind:
            case "string":
                return Literal(position=token.position, value=self._string(token.text, token.position))
            case "bytes":
                return Literal(position=token.position, value=self._bytes(token.text[1:], token.position))
            case "int" | "uint" | "double":
                return self._number(token, is_negative=False)
            case "name":
                return self._name(token, is_absolute=False)
            case "sign":
                if token.text == "(":
                    found = self._whole()
                    self._expect(")")
                    return found
                if token.text == "[":
                    return self._items(token.position)
                if token.text == "{":
                    return self._entries(token.position)
                if token.text == "." and self._next.kind == "name":
                    return self._name(self._take(), is_absolute=True)
        self._at -= 1
        raise self._unexpected()

    def _name(self, token: _Token, *, is_absolute: bool) -> Part:
        if token.text in _CONSTANTS and not is_absolute:
            return Literal(position=token.position, value=_CONSTANTS[token.text])
        if token.text in _RESERVED or token.text in _CONSTANTS:
            raise self._error(f"{token.text!r} is a reserved word", token.position)
        if self._takes("("):
            return self._call(token.position, token.text, *self._arguments())
        return Name(position=token.position, text=token.text, is_absolute=is_absolute)

    def _arguments(self) -> list[Part]:
        found: list[Part] = []
        if self._takes(")"):
            return found
        while True:
            found.append(self._whole())
            if self._takes(")"):
                return found
            self._expect(",")

    def _until(self, end: str) -> Iterator[None]:
        """Goes from one item to the next, up to the bracket that ends them; the last may have a comma too."""
        if self._takes(","):
            self._expect(end)
            return
        while not self._takes(end):
            yield
            if not self._takes(","):
                self._expect(end)
                return

    def _items(self, position: int) -> Part:
        items: list[Part] = []
        optional: set[int] = set()
        for _ in self._until("]"):
            if self._takes("?"):
                optional.add(len(items))
            items.append(self._whole())
        depth = self._depth(position, *items)
        return Items(position=position, depth=depth, items=tuple(items), optional=frozenset(optional))

    def _entries(self, position: int) -> Part:
        keys: list[Part] = []
        values: list[Part] = []
        optional: set[int] = set()
        for _ in self._until("}"):
            if self._takes("?"):
                optional.add(len(keys))
            keys.append(self._whole())
            self._expect(":")
            values.append(self._whole())
        depth = self._depth(position, *keys, *values)
        return Entries(
            position=position,
            depth=depth,
            keys=tuple(keys),
            values=tuple(values),
            optional=frozenset(optional),
        )

    def _number(self, token: _Token, *, is_negative: bool) -> Literal:
        value: int | float
        text = token.text
        if token.kind == "double":
            value = float(text)
            is_right = not math.isinf(value)
        else:
            digits = text.rstrip("uU")
            is_right = len(digits) <= _MAX_DIGITS
            value = int(digits, 16 if digits.startswith("0x") else 10) if is_right else 0
        if is_negative:
            value = -value
        if token.kind == "uint":
            is_right = is_right and value <= UINT_MAX
            value = Uint(value)
        elif token.kind == "int":
            is_right = is_right and INT_MIN <= value <= INT_MAX
        if not is_right:
            raise self._error(f"{text[:40]} is too large for a number of 64 bits", token.position)
        return Literal(position=token.position, value=value)

    def _string(self, text: str, position: int) -> str:
        body, is_raw = _body(text)
        return body if is_raw else _ESCAPES.sub(lambda found: self._char(found.group(), position), body)

    def _char(self, escape: str, position: int) -> str:
        code = _code(escape)
        if 0xD800 <= code < 0xE000 or code > 0x10FFFF:
            raise self._error(f"{escape} is no character", position)
        return chr(code)

    def _bytes(self, text: str, position: int) -> bytes:
        body, is_raw = _body(text)
        made = bytearray()
        end = 0
        for found in () if is_raw else _ESCAPES.finditer(body):
            escape = found.group()
            if escape[1] in "uU":
                raise self._error(f"bytes have no {escape}", position)
            made += self._utf8(body[end : found.start()], position)
            made.append(_code(escape) & 0xFF)
            end = found.end()
        return bytes(made + self._utf8(body[end:], position))

    def _utf8(self, text: str, position: int) -> bytes:
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise self._error("there is half a character", position) from None


def _body(text: str) -> tuple[str, bool]:
    """Returns what is between the quotes, and whether escapes stay as they are."""
    is_raw = text[0] in "rR"
    text = _NEWLINE.sub("\n", text[1:] if is_raw else text)
    n_quotes = 3 if len(text) >= 6 and text.startswith(('"""', "'''")) else 1
    return text[n_quotes:-n_quotes], is_raw


def _code(escape: str) -> int:
    mark = escape[1]
    if mark in "xXuU":
        return int(escape[2:], 16)
    if mark in "0123":
        return int(escape[1:], 8)
    return ord(_PLAIN_ESCAPES.get(mark, mark))

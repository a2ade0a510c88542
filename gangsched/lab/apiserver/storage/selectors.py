"""Label and field selectors of lists and watches.

Lives here: parsing, with the real server's error texts, and matching of fields. Not here: matching of labels
(api_rules.selectors), which fields a kind offers (its strategy). Called by the HTTP face (to parse) and by
the store and the watchers (to match). Source of grammar and wording: k8s.io/apimachinery
pkg/labels/selector.go and pkg/fields/selector.go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Self

import msgspec

from gangsched.api_rules.names import label_value_problem
from gangsched.api_rules.selectors import LabelSelector, Requirement, is_integer
from gangsched.api_rules.status import StatusError, bad_request, quoted

_SPECIAL = "=!(),<>"
_TOKENS = (")", ",", "!", "==", "=", ">", "<", "!=", "(")
_BLANK = " \t\r\n"
_END = ""
_BINARY = {"in": "in", "notin": "notin", "=": "=", "==": "=", "!=": "!=", ">": "gt", "<": "lt"}
_LIMIT_BYTES = 63
_PREFIX_LIMIT_BYTES = 253
_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def label_selector(text: str) -> LabelSelector:
    """From a query's `labelSelector`. Raises: StatusError 400."""
    return LabelSelector(tuple(_Parser(text).requirements()))


class FieldSelector(msgspec.Struct, frozen=True):
    """Fields that must equal, or differ from, a value; an absent field counts as empty."""

    terms: tuple[tuple[str, bool, str], ...] = ()
    """(field, equal, value)."""

    @classmethod
    def parse(cls, text: str, supported: Collection[str] | None = None) -> Self:
        """From a query's `fieldSelector`; `supported` are the fields that the kind offers.

        Raises: StatusError 400.
        """
        terms = []
        for part in sorted(_split(text)):
            if not part:
                continue
            found = re.search(r"!=|==|=", part)
            if found is None:
                raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
            value = _unescaped(part[found.end() :])
            terms.append((part[: found.start()], found.group() != "!=", value))
        for field, _, _ in terms:
            if supported is not None and field not in supported:
                raise bad_request(f"field label not supported: {field}")
        return cls(tuple(terms))

    @property
    def everything(self) -> bool:
        return not self.terms

    def exact(self, field: str) -> str | None:
        """The only value of `field` that matches, if the selector names one (then an index can be used)."""
        return next((value for name, equal, value in self.terms if equal and name == field), None)

    def matches(self, fields: Mapping[str, str]) -> bool:
        return all((fields.get(field, "") == value) is equal for field, equal, value in self.terms)


class _Parser:
    """Parses the grammar with a look-ahead of one token."""

    def __init__(self, text: str) -> None:
        self._tokens = [*_lexed(text), (_END, False)]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        while True:
            token, special = self._look()
            if token == _END:
                return
            if special and token != "!":
                raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
            yield self._requirement()
            token, _ = self._take()
            if token == _END:
                return
            if token != ",":
                raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
            token, special = self._look()
            if token == _END or (special and token != "!"):
                raise bad_request(f"found '{token}', expected: identifier after ','")

    def _look(self) -> tuple[str, bool]:
        return self._tokens[self._at]

    def _take(self) -> tuple[str, bool]:
        found = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return found

    def _requirement(self) -> Requirement:
        token, special = self._take()
        absent = token == "!" and special
        if absent:
            token, special = self._take()
        if token == _END or special:
            raise _unparsable(f"found '{token}', expected: identifier")
        if wrong := label_key_problem(token):
            raise _unparsable(f"<nil>: Invalid value: {quoted(token)}: {wrong}")
        key = token
        if absent:
            return Requirement(key, "!")
        if self._look() in ((_END, False), (",", True)):
            return Requirement(key, "exists")
        token, _ = self._take()
        operator = _BINARY.get(token)
        if operator is None:
            raise _unparsable(f"found '{token}', expected: in, notin, =, ==, !=, gt, lt")
        values = self._values() if operator in ("in", "notin") else {self._value()}
        return _checked(key, operator, values)

    def _value(self) -> str:
        if self._look() in ((_END, False), (",", True)):
            return ""
        token, special = self._take()
        if special:
            raise _unparsable(f"found '{token}', expected: identifier")
        return token

    def _values(self) -> set[str]:
        token, special = self._take()
        if token != "(" or not special:
            raise _unparsable(f"found '{token}' expected: '('")
        token, special = self._look()
        if token == ")" and special:
            self._take()
            return {""}
        if token == _END or (special and token != ","):
            raise _unparsable(f"found '{token}', expected: ',', ')' or identifier")
        values: set[str] = set()
        empty = True
        while True:
            token, special = self._take()
            if special and token in ",)":
                if empty:
                    values.add("")
                if token == ")":
                    return values
                empty = True
            elif token == _END or special:
                raise _unparsable(f"found '{token}', expected: ',', or identifier")
            else:
                values.add(token)
                empty = False
                after, special = self._look()
                if not special or after not in ",)":
                    raise _unparsable(f"found '{after}', expected: ',' or ')'")


def _lexed(text: str) -> Iterator[tuple[str, bool]]:
    """Tokens, and whether each is a symbol rather than a word."""
    at = 0
    while at < len(text):
        if text[at] in _BLANK:
            at += 1
        elif text[at] in _SPECIAL:
            length = 2 if text[at : at + 2] in _TOKENS else 1
            yield text[at : at + length], True
            at += length
        else:
            end = at
            while end < len(text) and text[end] not in _SPECIAL and text[end] not in _BLANK:
                end += 1
            yield text[at:end], False
            at = end


def _checked(key: str, operator: str, values: set[str]) -> Requirement:
    for position, value in enumerate(sorted(values)):
        if operator in ("gt", "lt") and not is_integer(value):
            raise _unparsable(
                f"values[{position}]: Invalid value: {quoted(value)}: "
                "for 'Gt', 'Lt' operators, the value must be an integer"
            )
        if wrong := label_value_problem(value):
            raise _unparsable(f"values[{position}][{key}]: Invalid value: {quoted(value)}: {wrong}")
    return Requirement(key, operator, frozenset(values))


def label_key_problem(key: str) -> str:
    """Returns what is wrong with a label's or annotation's key, in the server's words; empty if nothing."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            "a valid label key "
            + _NAME_RULE
            + " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        )
    if slash and not prefix:
        return "prefix part must be non-empty"
    if len(prefix.encode()) > _PREFIX_LIMIT_BYTES:
        return f"prefix part must be no more than {_PREFIX_LIMIT_BYTES} bytes"
    if prefix and not _SUBDOMAIN.fullmatch(prefix):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if not name:
        return f"name part must be non-empty; name part {_NAME_RULE}"
    if len(name.encode()) > _LIMIT_BYTES:
        return f"name part must be no more than {_LIMIT_BYTES} bytes"
    return "" if _NAME.fullmatch(name) else f"name part {_NAME_RULE}"


def _unparsable(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _split(text: str) -> list[str]:
    """Splits the text at commas that have no backslash before them."""
    return [part for part in re.split(r"((?:\\.|[^\\,])*\\?)(?:,|$)", text, flags=re.DOTALL) if part]


def _unescaped(text: str) -> str:
    found = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            after = text[at + 1 : at + 2]
            if after not in ("\\", ",", "="):
                raise bad_request(f"invalid field selector: invalid escape sequence: \\{after}")
            char = after
            at += 1
        elif char in ",=":
            raise bad_request(f"invalid field selector: unescaped character in value: {ord(char)}")
        found.append(char)
        at += 1
    return "".join(found)

"""Strings: searching and cutting them, regular expressions, and `format`.

Regular expressions are RE2's, which takes time in proportion to the text and the pattern; Python's own could
be made to run for ever by anybody who may write a claim. Positions count characters. Source: cel-go v0.29.2
`ext/strings.go` and `ext/formatting.go` (version 2 of the library), k8s.io/apiserver v0.37.1
`pkg/cel/library/regex.go`.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import Any

import re2

from gangsched.model.cel.library.functions import FUNCTIONS, overloads, text_of_double, utf8
from gangsched.model.cel.values import (
    ABSENT,
    CHARS_PER_STEP,
    DeviceMap,
    Duration,
    Fault,
    Run,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    a_type,
    plain_key,
)

_UPPER, _LOWER = "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"
_TO_LOWER, _TO_UPPER = str.maketrans(_UPPER, _LOWER), str.maketrans(_LOWER, _UPPER)
# Unicode's white space; Python's own strip takes four control characters more.
_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
# The memory of one compiled pattern. It bounds the program, and so what a character of the text may cost.
_PATTERN_BYTES = 2**20
_INSTRUCTIONS_PER_STEP = 50
# Finding out that a pattern is too large takes ten milliseconds.
_FAILED_STEPS = 100_000
_STEPS_PER_MATCH = 2
_CLAUSE = re.compile(r"%(?:%|(?:\.([0-9]{1,9}))?([sdfebxXo]))", re.ASCII)
_DEFAULT_PRECISION = 6
_MAX_PRECISION = 10_000
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "+")
_SPECIAL_DOUBLES = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip
_TO_ESCAPES = str.maketrans(_ESCAPES)


def _options() -> re2.Options:
    options = re2.Options()
    options.max_mem = _PATTERN_BYTES
    options.log_errors = False
    return options


_OPTIONS = _options()


@lru_cache(maxsize=64)
def _compiled(expression: str) -> Any:
    """Returns the compiled pattern, or why it is none."""
    try:
        return re2.compile(expression, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else b""
        return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


def _pattern(run: Run, text: str, expression: str) -> Any:
    """Compiles a pattern, and charges for that and for one search through the text. Raises: Fault."""
    utf8(text)
    compiled = _compiled(utf8(expression).decode())
    if isinstance(compiled, str):
        run.spend(_FAILED_STEPS)
        raise Fault(f"{expression[:40]!r} is not a regular expression: {compiled}")
    if expression not in run.patterns:
        run.patterns.add(expression)
        run.spend(len(expression) // CHARS_PER_STEP + compiled.programsize // _INSTRUCTIONS_PER_STEP)
    run.spend((1 + len(text) // CHARS_PER_STEP) * (1 + compiled.programsize // _INSTRUCTIONS_PER_STEP))
    return compiled


def _matches(run: Run, text: str, expression: str) -> bool:
    return _pattern(run, text, expression).search(text) is not None


def _find(run: Run, text: str, expression: str) -> str:
    found = _pattern(run, text, expression).search(text)
    return str(found.group()) if found else ""


def _find_all(run: Run, text: str, expression: str, limit: int = -1) -> list[str]:
    compiled = _pattern(run, text, expression)
    found: list[str] = []
    end = -1
    if limit == 0:
        return found
    for match in compiled.finditer(text):
        start, stop = match.span()
        # As in Go, a match of nothing right behind another one does not count.
        if start == stop == end:
            continue
        run.spend(_STEPS_PER_MATCH)
        found.append(text[start:stop])
        end = stop
        if len(found) == limit:
            break
    return found


overloads("matches", {(str, str): _matches}, charging=True)
overloads("find", {(str, str): _find}, charging=True)
overloads("findAll", {(str, str): _find_all, (str, str, int): _find_all}, charging=True)


def _char_at(text: str, at: int) -> str:
    if not 0 <= at <= len(text):
        raise Fault(f"index out of range: {at}")
    return text[at : at + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise Fault(f"index out of range: {offset}")
    if part == "":
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str) -> int:
    return text.rfind(part)


def _last_index_of_before(text: str, part: str, offset: int) -> int:
    if offset < 0:
        raise Fault(f"index out of range: {offset}")
    if part == "":
        return min(offset, len(text))
    return -1 if offset >= len(text) else text.rfind(part, 0, offset + len(part))


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if not 0 <= start <= last <= len(text):
        raise Fault(f"{start} to {last} is not a range within {len(text)} characters")
    return text[start:last]


def _replace(run: Run, text: str, old: str, new: str, limit: int = -1) -> str:
    run.spend((len(text) + len(old)) // CHARS_PER_STEP)
    found = text.count(old) if limit < 0 else min(text.count(old), limit)
    run.spend((len(text) + found * len(new)) // CHARS_PER_STEP)
    return text.replace(old, new, found)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _join(run: Run, texts: list[Value], separator: str = "") -> str:
    for one in texts:
        if type(one) is not str:
            raise Fault(f"join takes strings, not {a_type(one)}")
        run.spend(1 + (len(one) + len(separator)) // CHARS_PER_STEP)
    return separator.join(texts)


overloads("contains", {(str, str): lambda text, part: part in text})
overloads("startsWith", {(str, str): lambda text, part: text.startswith(part)})
overloads("endsWith", {(str, str): lambda text, part: text.endswith(part)})
overloads("charAt", {(str, int): _char_at})
overloads("indexOf", {(str, str): _index_of, (str, str, int): _index_of})
overloads("lastIndexOf", {(str, str): _last_index_of, (str, str, int): _last_index_of_before})
overloads("lowerAscii", {(str,): lambda text: text.translate(_TO_LOWER)})
overloads("upperAscii", {(str,): lambda text: text.translate(_TO_UPPER)})
overloads("trim", {(str,): lambda text: text.strip(_SPACE)})
overloads("substring", {(str, int): _substring, (str, int, int): _substring})
overloads("replace", {(str, str, str): _replace, (str, str, str, int): _replace}, charging=True)
overloads("split", {(str, str): _split, (str, str, int): _split})
overloads("join", {(list,): _join, (list, str): _join}, charging=True)
overloads("strings.quote", {(str,): lambda text: f'"{text.translate(_TO_ESCAPES)}"'})


def _quoted(text: str) -> str:
    """Quotes as Go's %q does."""
    chars = (char if char.isprintable() else _escaped(char) for char in text.translate(_TO_ESCAPES))
    return '"' + "".join(chars) + '"'


def _escaped(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _text(value: Value, run: Run) -> str:
    """What %s writes."""
    kind = type(value)
    if kind is list:
        return f"[{', '.join([_item(one, run) for one in value])}]"
    if kind is dict or kind is DeviceMap:
        items = [(_key(plain_key(key), run), _item(one, run)) for key, one in value.items()]
        return f"{{{', '.join(f'{key}:{one}' for key, one in sorted(items, key=lambda item: item[0]))}}}"
    if value is None:
        return "null"
    if kind is TypeValue:
        return str(value.name)
    if kind not in _WRITTEN:
        raise Fault(f"%s does not write {a_type(value)}")
    return str(FUNCTIONS["string"].overload((kind,))(run, value))


_WRITTEN = frozenset({bool, int, Uint, float, str, bytes, Duration, Timestamp})


def _item(value: Value, run: Run) -> str:
    """What %s writes of an item of a list or map."""
    kind = type(value)
    if kind is float:
        text = f"{value:.6f}" if math.isfinite(value) else f'"{text_of_double(value)}"'
    else:
        text = _text(value, run)
        if kind is str:
            text = _quoted(text)
        elif kind is bytes:
            text = f"b{_quoted(text)}"
        elif kind is Timestamp:
            text = f'timestamp("{text}")'
        elif kind is Duration:
            text = f'duration("{text}")'
    # Values may hold others many times over: writing them may take far longer than making them.
    run.spend(1 + len(text) // CHARS_PER_STEP)
    return text


def _key(key: Value, run: Run) -> str:
    if type(key) not in (str, bool, int, Uint):
        raise Fault(f"%s does not write a map with {a_type(key)} as key")
    return _item(key, run)


def _decimal(value: Value, clause: str, *kinds: type) -> int:
    if type(value) not in kinds:
        raise Fault(f"%{clause} does not write {a_type(value)}")
    return int(value)


def _double(value: Value, clause: str) -> float:
    if type(value) is str and value in _SPECIAL_DOUBLES:
        return _SPECIAL_DOUBLES[value]
    if type(value) is not float:
        raise Fault(f"%{clause} does not write {a_type(value)}")
    return float(value)


def _fixed(value: Value, precision: int | None) -> str:
    number = _double(value, "f")
    if not math.isfinite(number):
        return "NaN" if math.isnan(number) else "∞" if number > 0 else "-∞"
    return f"{number or 0.0:,.{_DEFAULT_PRECISION if precision is None else precision}f}"


def _scientific(value: Value, precision: int | None) -> str:
    # The library takes the precision for a width.
    number = _double(value, "e")
    if math.isfinite(number):
        mantissa, power = f"{number or 0.0:.6e}".split("e")
        text = f"{mantissa}×10{power.translate(_SUPERSCRIPT)}"
    else:
        text = _fixed(value, None)
    return text.rjust(_DEFAULT_PRECISION if precision is None else precision)


def _hexadecimal(value: Value, clause: str) -> str:
    kind = type(value)
    if kind is str or kind is bytes:
        text = (utf8(value) if kind is str else value).hex()
    else:
        text = f"{_decimal(value, clause, int, Uint):x}"
    return text.upper() if clause == "X" else text


def _clause(value: Value, clause: str, precision: int | None, run: Run) -> str:
    match clause:
        case "s":
            return _text(value, run)
        case "d":
            return str(_decimal(value, clause, int, Uint))
        case "f":
            return _fixed(value, precision)
        case "e":
            return _scientific(value, precision)
        case "b":
            return f"{_decimal(value, clause, int, Uint, bool):b}"
        case "o":
            return f"{_decimal(value, clause, int, Uint):o}"
    return _hexadecimal(value, clause)


def _format(run: Run, form: str, values: list[Value]) -> str:
    made: list[str] = []
    rest = iter(values)
    end = 0
    while (at := form.find("%", end)) >= 0:
        made.append(form[end:at])
        found = _CLAUSE.match(form, at)
        if found is None:
            raise Fault(f"{form[at : at + 10]!r} is not a clause of format")
        end = found.end()
        if found[2] is None:
            made.append("%")
            continue
        precision = int(found[1]) if found[1] else None
        if precision is not None and precision > _MAX_PRECISION:
            raise Fault(f"a precision of {precision} digits is too much, at most {_MAX_PRECISION}")
        value = next(rest, ABSENT)
        if value is ABSENT:
            raise Fault(f"format has more clauses than the {len(values)} values")
        made.append(_clause(value, found[2], precision, run))
        run.spend(1 + len(made[-1]) // CHARS_PER_STEP)
    made.append(form[end:])
    run.spend(len(form) // CHARS_PER_STEP)
    return "".join(made)


overloads("format", {(str, list): _format}, charging=True)

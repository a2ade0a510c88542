"""Reads YAML strictly into Structs: every mistake is a ConfigError with its path and the nearest name.

Lives here: the YAML reader that refuses duplicate keys, and `decode`, which looks for unknown fields along a
type before msgspec checks the values. Not here: what any field means. Called by config, and by
whatever else reads files or names what is nearest.
"""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s
from gangsched.reading.yaml_bounds import check_yaml

T = TypeVar("T")
# A configuration is a few kB. The limit keeps a wrong file (an image, a core dump) from being parsed.
MAX_CHARACTERS = 1_000_000
# An Args class's own check may begin its message with the place: `a.b[0]: what is wrong`.
_PLACE = re.compile(r"(?s)([a-z]\w*(?:\[\d+\]|\.\w+)*): (.*)")
_WRONG_TYPE = re.compile(r"Expected `([a-z]+(?: \| [a-z]+)*)`, got `[a-z]+`")
_STEP = re.compile(r"\.([^.\[\]]+)|\[([0-9]+|\.\.\.)\]")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?")
_TRUE_OR_FALSE = "true or false"
_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "bool": _TRUE_OR_FALSE,
    "str": "text",
    "array": "a list",
    "object": "a mapping",
}
_UNKNOWN = object()
_MAX_SHOWN = 80
_MSGSPEC_PATH = re.compile(r"(?s)(.*?)(?: - at `(?:key in )?\$(.*)`)?")


class _Loader(yaml.CSafeLoader):
    """Safe YAML whose mappings have string keys, each once (PyYAML lets the last one win)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is not text", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        """Returns a whole number that every reader of a configuration accepts."""
        value: int = self.construct_yaml_int(node)
        if not -(2**63) <= value < 2**63:
            raise yaml.constructor.ConstructorError(
                None, None, f"the number {node.value[:20]}… needs more than 64 bits", node.start_mark
            )
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_whole)


def read_text(path: str) -> str:
    """Reads text for read_documents, up to its limit, as a device has no end. Raises: ConfigError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"cannot be read: {why}", source=path) from None


def read_documents(text: str) -> list[dict[str, Any]]:
    """Returns the YAML documents of a file, without empty ones. Raises: ConfigError."""
    if len(text) > MAX_CHARACTERS:
        raise ConfigError(f"more than {MAX_CHARACTERS} characters are no configuration")
    try:
        check_yaml(text)
        documents = [document for document in yaml.load_all(text, _Loader) if document is not None]
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise ConfigError(f"is not YAML: {_one_line(error)}") from None
    for i, document in enumerate(documents):
        if not isinstance(document, dict):
            raise ConfigError(f"document {i + 1} is a {type(document).__name__}, not a mapping")
    return documents


def _one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        return f"line {mark.line + 1}, column {mark.column + 1}: {error.problem}"
    return " ".join(str(error).split()) or type(error).__name__


def decode(kind: type[T], value: object, path: str) -> T:
    """Makes a Struct from plain YAML data; null counts as not given. Raises: ConfigError."""
    clean = _cleaned(kind, value, path)
    try:
        return msgspec.convert(clean, kind)
    except msgspec.ValidationError as error:
        match = _MSGSPEC_PATH.fullmatch(str(error))
        message, place = match.groups() if match else (str(error), "")
        where = join(path, (place or "").lstrip("."))
        inner = _PLACE.fullmatch(message) if isinstance(error.__cause__, ValueError) else None
        if inner:
            where, message = join(where, inner[1]), inner[2]
        elif (wrong := _WRONG_TYPE.fullmatch(message)) is not None:
            message = _wrong_type(wrong[1], _at(clean, place or ""), where)
        raise ConfigError(_lower_first(message), path=where) from None
    except UnicodeEncodeError:  # JSON can contain a lone surrogate: "\\ud800"
        raise ConfigError("a text in it has half of a character", path=path) from None


def _at(value: object, place: str) -> object:
    """Returns the value at a place such as `.a[0].b`; `place` itself where it names no single value."""
    for name, index in _STEP.findall(place):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and index and int(index) < len(value):
            value = value[int(index)]
        else:
            return _UNKNOWN
    return value


def _wrong_type(wanted: str, value: object, where: str) -> str:
    """Says what the value is not, and what to write where that is plain."""
    kinds = [_KINDS.get(one, one) for one in wanted.replace("`", "").split(" | ") if one != "null"]
    kind = " or ".join(dict.fromkeys(kinds))
    if value is _UNKNOWN:
        return f"is not {kind}"
    if isinstance(value, dict | list):
        return f"is {'a mapping' if isinstance(value, dict) else 'a list'}, not {kind}"
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else f"{value!r}"
    shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
    return f"{shown} is not {kind}{_meant(kinds, value, where)}"


def _meant(kinds: list[str], value: object, where: str) -> str:
    """Returns `; write x`: the same as a number, or as text."""
    if "text" in kinds:
        return f'; write "{value}", in quotes' if isinstance(value, int | float) else ""
    if not isinstance(value, str) or len(value) > _MAX_SHOWN:
        return ""
    text = value.strip()
    if _TRUE_OR_FALSE in kinds:
        return f"; write {text.lower()}, without quotes" if text.lower() in ("true", "false") else ""
    if _NUMBER.fullmatch(text):
        return f"; write {text}, without quotes"
    if not where.endswith("Seconds"):
        return ""
    try:
        return f"; write {duration_s(text):g}, the number of seconds"
    except ConfigError:
        return ""


def join(path: str, more: str) -> str:
    """`a.b` and `c` make `a.b.c`; `a` and `[0]` make `a[0]`."""
    if not path or not more:
        return path or more
    return path + more if more.startswith("[") else f"{path}.{more}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns `; did you mean x?`, or "" if no name is near."""
    meant = nearest_name(name, known)
    return f"; did you mean {meant}?" if meant else ""


def nearest_name(name: str, known: Iterable[str]) -> str:
    """Returns the known name probably meant, or "" if none is near.

    A name that differs only in its numbers is another object, not a typo: node-99 does not mean node-15.
    """
    by_lower = {one.lower(): one for one in known}
    import difflib  # only for a mistake: a starting scheduler pays for every import

    wanted = name.lower()
    for close in difflib.get_close_matches(wanted, sorted(by_lower), n=20, cutoff=0.6):
        if _numbers(close) == _numbers(wanted):
            is_near = close.startswith(wanted) or difflib.SequenceMatcher(None, wanted, close).ratio() >= 0.75
        else:
            is_near = _letters(close) != _letters(wanted) and _differ_once(close, wanted)
        if is_near:
            return by_lower[close]
    return ""


def _differ_once(one: str, other: str) -> bool:
    return len(one) == len(other) and sum(a != b for a, b in zip(one, other, strict=True)) == 1


def _letters(name: str) -> str:
    return re.sub(r"[0-9]+", "0", name)


def _numbers(name: str) -> list[int]:
    """Returns the numbers in a name: the same for "node-01" and "node-1"."""
    return [int(digits) for digits in re.findall(r"[0-9]{1,18}", name)]


def _cleaned(kind: Any, value: object, path: str) -> object:
    """Returns the value without nulls, after checking its field names recursively against the type."""
    if isinstance(value, str) and "\0" in value:  # no name of a file or object may contain it
        raise ConfigError(f"{value[:80]!r} has a character that no text here has", path=path)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = [one for one in get_args(kind) if one is not type(None)]
        return _cleaned(inner[0], value, path) if len(inner) == 1 else value
    if origin is Literal:
        return _one_of(get_args(kind), value, path)
    if isinstance(value, list) and origin in (list, tuple):
        item = get_args(kind)[0]
        return [_cleaned(item, one, f"{path}[{i}]") for i, one in enumerate(value)]
    if isinstance(value, dict) and origin is dict:
        item = get_args(kind)[1]
        return {key: _cleaned(item, one, join(path, key)) for key, one in value.items()}
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        known = _types(kind)
        clean = {}
        for key, one in value.items():
            if key not in known:
                raise ConfigError(f"unknown field{nearest(key, known)}", path=join(path, key))
            if one is not None:
                clean[key] = _cleaned(known[key], one, join(path, key))
        return clean
    return value


@cache
def _types(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns the type of each field by its name in the file, without what it says of itself.

    Remembered: the annotations are text, which Python compiles anew whenever it is asked for them.
    """
    hints = get_type_hints(kind)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def _one_of(allowed: tuple[object, ...], value: object, path: str) -> object:
    if value is False and "off" in allowed:
        return "off"  # YAML 1.1 reads `off` without quotes as a boolean
    if value not in allowed:
        names = [str(one) for one in allowed]
        hint = nearest(value, names) if isinstance(value, str) else ""
        raise ConfigError(f"{value!r} is not one of {', '.join(names)}{hint}", path=path)
    return value


def _lower_first(message: str) -> str:
    return message[:1].lower() + message[1:].replace("`", "")

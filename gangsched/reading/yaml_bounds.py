"""YAML from outside: limits on what a parser builds from it, checked on its events before it builds anything.

Lives here: limits on depth, on what aliases repeat, on the length of numbers, and a check that values match
their tags. Not here: the length of the text, which its reader knows. A few lines of aliases of aliases can
stand for any number of values. One line of colons counts as a base-60 number that takes minutes to compute.
libyaml's composer recurses until the process crashes. Called by all code that reads YAML.
"""

from __future__ import annotations

import re

import yaml

from gangsched.errors import ConfigError

# The C parser recurses and crashes the process somewhere beyond 10,000 levels; a profile has 10.
MAX_DEPTH = 100
# A text of 4 MB without aliases has about this many at most, which take a second.
MAX_VALUES = 1_000_000
# Reading integers and floats costs the square of their length. A digest of 512 bits has 128 digits.
_MAX_NUMBER = 1000
# Constructors for explicit tags: given a value that does not match, they raise all kinds of errors.
_BARE = yaml.constructor.SafeConstructor()
_TAGGED = {
    "tag:yaml.org,2002:bool": _BARE.construct_yaml_bool,
    "tag:yaml.org,2002:int": _BARE.construct_yaml_int,
    "tag:yaml.org,2002:float": _BARE.construct_yaml_float,
    "tag:yaml.org,2002:timestamp": _BARE.construct_yaml_timestamp,
}
_NUMBER = re.compile(r"[-+.0-9][-+.:_0-9a-fA-Fxob]*")


def check_yaml(text: str | bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES) -> None:
    """Raises: ConfigError, with its line; yaml.YAMLError (not YAML)."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []
    n_values = 0
    for event in yaml.parse(text, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, n_before = open_.pop()
            if anchor is not None:
                sizes[anchor] = n_values - n_before
        elif isinstance(event, yaml.AliasEvent):
            name = str(event.anchor)
            if any(anchor == name for anchor, _ in open_):
                raise _error(event, f"*{name[:80]} stands within what it refers to")
            n_values += sizes.get(name, 1)  # the composer reports an unknown one
        elif isinstance(event, yaml.NodeEvent):
            n_values += 1
            if isinstance(event, yaml.CollectionStartEvent):
                open_.append((event.anchor, n_values - 1))
                if len(open_) > max_depth:
                    raise ConfigError(f"is nested more than {max_depth} levels deep")
            elif isinstance(event, yaml.ScalarEvent):
                if event.anchor is not None:
                    sizes[event.anchor] = 1
                _check_scalar(event)
        if n_values > max_values:
            raise _error(event, f"with what its aliases repeat it has more than {max_values} values")


def _check_scalar(event: yaml.ScalarEvent) -> None:
    """Raises: ConfigError."""
    if len(event.value) > _MAX_NUMBER and _is_number(event):
        raise _error(event, f"a number has {len(event.value)} characters")
    tag = event.tag or ""
    construct = _TAGGED.get(tag)
    if construct is not None:
        try:
            construct(yaml.ScalarNode(tag, event.value))
        except (ValueError, LookupError, AttributeError, OverflowError):
            kind = tag.rpartition(":")[2]
            raise _error(event, f"{event.value[:80]!r} is no !!{kind}") from None


def _is_number(scalar: yaml.ScalarEvent) -> bool:
    """Whether a loader might read it as a number."""
    return (scalar.tag is not None or scalar.implicit[0]) and _NUMBER.fullmatch(scalar.value) is not None


def _error(event: yaml.Event, what: str) -> ConfigError:
    mark = event.start_mark
    return ConfigError(what if mark is None else f"line {mark.line + 1}: {what}")

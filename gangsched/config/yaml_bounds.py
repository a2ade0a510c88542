"""YAML from outside: limits on what a parser makes of it, checked on its events before anything is made.

Lives here: depth, what aliases repeat, the length of numbers, and tags that a value does not bear out. Not
here: the length of the text, which its reader knows. A few lines of aliases of aliases stand for as many
values as one likes, one line of colons counts as a number to the base 60 whose value takes minutes, and
libyaml's composer recurses until the process ends. Called by all that read YAML.
"""

from __future__ import annotations

import re

import yaml

from gangsched.errors import ConfigError

# The C parser recurses and crashes the process somewhere beyond 10,000 levels; a profile has 10.
MAX_DEPTH = 100
# A text of 4 MB without aliases has about as many at most, and needs a second for them.
MAX_VALUES = 1_000_000
# Integers and floats are read with cost in the square of their length. A digest of 512 bits has 128 digits.
_MAX_NUMBER = 1000
# Constructors of what a text may say that a value is: of another value each raises whatever comes.
_BARE = yaml.constructor.SafeConstructor()
_TAGGED = {
    "tag:yaml.org,2002:bool": _BARE.construct_yaml_bool,
    "tag:yaml.org,2002:int": _BARE.construct_yaml_int,
    "tag:yaml.org,2002:float": _BARE.construct_yaml_float,
    "tag:yaml.org,2002:timestamp": _BARE.construct_yaml_timestamp,
}
_NUMBER = re.compile(r"[-+.0-9][-+.:_0-9a-fA-Fxob]*")


def check_yaml(text: str | bytes, *, max_depth: int = MAX_DEPTH, max_values: int = MAX_VALUES) -> None:
    """Raises: ConfigError, with its line; yaml.YAMLError (it is none)."""
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
            n_values += sizes.get(name, 1)  # an unknown one is the composer's to report
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
    """Whether a loader might read it as one."""
    return (scalar.tag is not None or scalar.implicit[0]) and _NUMBER.fullmatch(scalar.value) is not None


def _error(event: yaml.Event, what: str) -> ConfigError:
    mark = event.start_mark
    return ConfigError(what if mark is None else f"line {mark.line + 1}: {what}")

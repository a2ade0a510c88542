"""The hooks that a plugin may have, and checks of a class against the protocols of gangsched.plugin.

A hook with wrong arguments would fail at its first call, during some pod's attempt, and one with a wrong name
would never be called; so both are checked at load time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

from gangsched.core.types.cluster_events import Change
from gangsched.errors import ConfigError


class Hook(NamedTuple):
    """point: as named in messages. may_be_async: runs at the edge."""

    point: str
    may_be_async: bool = False


HOOKS = {
    "sign": Hook("sign"),
    "pre_enqueue": Hook("PreEnqueue", may_be_async=True),
    "sort_key": Hook("QueueSort"),
    "lane": Hook("QueueSort"),
    "admit": Hook("Admit"),
    "admit_again": Hook("Admit"),
    "admit_without": Hook("Admit"),
    "may_admit_without": Hook("Admit"),
    "eviction_rule": Hook("Admit"),
    "lane_key": Hook("QueueSort"),
    "passing_key": Hook("QueueSort"),
    "concerns": Hook("PreFilter"),
    "pre_filter": Hook("PreFilter"),
    "add_pod": Hook("AddPod"),
    "remove_pod": Hook("RemovePod"),
    "filter": Hook("Filter"),
    "filter_node": Hook("Filter"),
    "capacity": Hook("Filter"),
    "capacity_on": Hook("Filter"),
    "reasons": Hook("Filter"),
    "topology_keys": Hook("Filter"),
    "at_most": Hook("Filter"),
    "together": Hook("Filter"),
    "at_most_together": Hook("Filter"),
    "post_filter": Hook("PostFilter"),
    "pre_score": Hook("PreScore"),
    "score": Hook("Score"),
    "score_node": Hook("Score"),
    "normalize": Hook("NormalizeScore"),
    "score_filled": Hook("Score"),
    "score_filled_at": Hook("Score"),
    "spreads": Hook("Score"),
    "is_stated": Hook("Score"),
    "preferred_capacity": Hook("Score"),
    "reserve": Hook("Reserve"),
    "unreserve": Hook("Unreserve"),
    "inherit": Hook("Inherit"),
    "permit": Hook("Permit", may_be_async=True),
    "pre_bind_pre_flight": Hook("PreBindPreFlight"),
    "pre_bind": Hook("PreBind", may_be_async=True),
    "bind": Hook("Bind", may_be_async=True),
    "post_bind": Hook("PostBind", may_be_async=True),
    "cures": Hook("EventsToRegister"),
}

POINTS = {
    "pre_enqueue": "preEnqueue",
    "sort_key": "queueSort",
    "admit": "preEnqueue",
    "pre_filter": "preFilter",
    "filter": "filter",
    "filter_node": "filter",
    "capacity": "filter",
    "post_filter": "postFilter",
    "pre_score": "preScore",
    "score": "score",
    "score_node": "score",
    "reserve": "reserve",
    "permit": "permit",
    "pre_bind": "preBind",
    "bind": "bind",
    "post_bind": "postBind",
}
"""Method -> extension point, as a configuration file names it."""

# Hooks that need another hook.
_TOGETHER = {
    "reserve": "unreserve",
    "unreserve": "reserve",
    "filter": "reasons",
    "capacity": "reasons",
    "capacity_on": "capacity",
    "normalize": "score",
    "add_pod": "remove_pod",
    "cures": "cured_by",
    "pre_bind_pre_flight": "pre_bind",
    "lane": "lane_key",
    "lane_key": "lane",
    "passing_key": "lane_key",
    "admit_again": "admit",
    "admit_without": "may_admit_without",
    "may_admit_without": "admit_without",
    "eviction_rule": "admit",
}
_SHORTEST = {"pre_enqueue": ("pod",), "sort_key": ("group",), "lane": ("group",)}
"""Hooks that may have the view as a further argument: what they have without it."""
_OR = {"score": ("score", "score_node")}


class Members(NamedTuple):
    """What plugins may have: by hook its arguments without self, by attribute its type, as it is written."""

    hooks: Mapping[str, tuple[str, ...]]
    attributes: Mapping[str, str]


@cache
def members() -> Members:
    """What the protocols of gangsched.plugin name; read when the first plugin from outside is loaded."""
    from gangsched import plugin

    hooks: dict[str, tuple[str, ...]] = dict(_SHORTEST)
    attributes: dict[str, str] = {}
    for protocol in plugin.__all__:
        if not (protocol.startswith("Supports") or protocol.endswith("Plugin")):
            continue
        kind = getattr(plugin, protocol)
        attributes.update(kind.__annotations__)
        for name, member in vars(kind).items():
            if isinstance(member, property) and member.fget is not None:
                if name not in HOOKS:
                    attributes[name] = member.fget.__annotations__["return"]
            elif name in HOOKS:
                hooks.setdefault(name, tuple(inspect.signature(member).parameters)[1:])
    return Members(hooks, attributes)


def check_hooks(kind: type[Any], source: str) -> tuple[str, ...]:
    """The hooks of the class, after checking them. Raises: ConfigError."""
    _check_names(kind, source)
    found = tuple(name for name in HOOKS if getattr(kind, name, None) is not None)
    for name in found:
        problem = _problem(kind, name)
        if problem:
            raise ConfigError(f"{_place(kind, name)}: {kind.__name__}.{name} {problem}", source=source)
    return found


def check_attributes(plugin: object, where: str, source: str) -> None:
    """Check what the core reads of a plugin that has been made, without calling it. Raises: ConfigError."""
    for name, written in members().attributes.items():
        right, expected = _TYPES[written.partition(",")[0]]
        found = getattr(plugin, name, None)
        is_read = hasattr(plugin, _READ_FOR.get(name, name))
        if is_read and found is not None and not right(found):
            place = f"{where}: {type(plugin).__name__}.{name}"
            raise ConfigError(f"{place} is {type(found).__name__}, expected {expected}", source=source)


def _are_texts(found: object) -> bool:
    return isinstance(found, tuple | list | frozenset | set) and all(isinstance(one, str) for one in found)


def _is_time(found: object) -> bool:
    return isinstance(found, int | float) and found >= 0.0  # not NaN


_TYPES: dict[str, tuple[Callable[[object], bool], str]] = {
    "Change": (lambda found: isinstance(found, Change), "a Change"),
    "bool": (lambda found: isinstance(found, bool), "True or False"),
    "float": (_is_time, "a number of seconds"),
    "frozenset[str]": (_are_texts, "a set of texts"),
    "str": (lambda found: isinstance(found, str), "a text"),
    "tuple[str": (_are_texts, "a tuple of texts"),
}
"""By the type of an attribute, up to a comma: the check, and what is expected, in words."""
_READ_FOR = {"cured_by": "cures"}
"""By attribute: the hook without which it is not read."""


def _check_names(kind: type[Any], source: str) -> None:
    """Reject misspelt hooks and attributes, which would silently never be read. Raises: ConfigError."""
    import difflib  # only for out-of-tree plugins: a starting scheduler pays for every import

    hooks = {hook.replace("_", ""): hook for hook in HOOKS}
    attributes = {name.replace("_", ""): name for name in members().attributes}
    for name, found in inspect.getmembers(kind):
        if name[0] == "_" or name in HOOKS or name in members().attributes or inspect.isclass(found):
            continue
        is_method = inspect.isroutine(found)
        plain = hooks if is_method else attributes
        close = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.85)
        if close and not hasattr(kind, plain[close[0]]):
            own, right = f"{_place(kind, name)}: {kind.__name__}.{name}", plain[close[0]]
            text = f"{own} is not a hook and is never called; did you mean {right}?"
            if not is_method:
                text = f"{own} is not read by anything; did you mean {right}?"
            raise ConfigError(f"{text} Begin the name of a helper with an underscore", source=source)


def line_of(kind: type[Any]) -> str:
    """The line where the class begins, or its name."""
    for own in kind.__mro__:  # a class made of it has no lines of its own
        try:
            return f"line {inspect.getsourcelines(own)[1]}"
        except (OSError, TypeError):
            continue
    return kind.__qualname__


def _problem(kind: type[Any], name: str) -> str:
    hook, method = HOOKS[name], getattr(kind, name)
    wanted = members().hooks[name]
    if not callable(method):
        return f"is {type(method).__name__}, expected a method: def {name}(self, {', '.join(wanted)})"
    other = _TOGETHER.get(name, "")
    if other and not any(hasattr(kind, one) for one in _OR.get(other, (other,))):
        return f"needs {' or '.join(_OR.get(other, (other,)))} as well"
    is_async = inspect.iscoroutinefunction(method)
    if is_async and not hook.may_be_async:
        return "is async, and runs in the middle of a decision: write it as a plain function"
    if name == "permit" and is_async:
        wanted = (*wanted, "handle")
    elif name == "pre_enqueue" and is_async:
        wanted = (*wanted, "view", "handle")
    try:
        bound = inspect.getattr_static(kind, name)
        own = () if isinstance(bound, staticmethod | classmethod) else (None,)
        taken = inspect.signature(method)
        if name in _SHORTEST and len(taken.parameters) - len(own) > 1 and not is_async:
            wanted = (*wanted, "view")
        taken.bind(*own, *wanted)
    except TypeError as error:
        return f"should take (self, {', '.join(wanted)}): {error}"
    except ValueError:
        return ""  # its signature is unknown
    return ""


def _place(kind: type[Any], name: str) -> str:
    method = getattr(kind, name)
    code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
    return line_of(kind) if code is None else f"line {code.co_firstlineno}"

"""The hooks that a plugin may have: their points, their arguments, and checks of a class against them.

A hook with wrong arguments would fail at its first call, during some pod's attempt; so it is checked at load
time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from gangsched.core.types.cluster_events import Change
from gangsched.errors import ConfigError


class Hook(msgspec.Struct, frozen=True):
    """arguments: without self, by position. point: as named in messages. may_be_async: runs at the edge."""

    point: str
    arguments: tuple[str, ...]
    may_be_async: bool = False


HOOKS = {
    "sign": Hook("sign", ("pod",)),
    "pre_enqueue": Hook("PreEnqueue", ("pod",), may_be_async=True),
    "sort_key": Hook("QueueSort", ("group",)),
    "lane": Hook("QueueSort", ("group",)),
    "admit": Hook("Admit", ("group", "members", "view")),
    "admit_again": Hook("Admit", ("group", "members", "change", "view")),
    "eviction_rule": Hook("Admit", ("unit", "members", "view")),
    "lane_key": Hook("QueueSort", ("first", "view")),
    "passing_key": Hook("QueueSort", ("group", "view")),
    "concerns": Hook("PreFilter", ("template",)),
    "pre_filter": Hook("PreFilter", ("state", "template", "view")),
    "add_pod": Hook("AddPod", ("state", "template", "other", "row", "view")),
    "remove_pod": Hook("RemovePod", ("state", "template", "other", "row", "view")),
    "filter": Hook("Filter", ("state", "template", "view")),
    "filter_node": Hook("Filter", ("state", "pod", "node_info")),
    "capacity": Hook("Filter", ("state", "template", "view", "rows")),
    "capacity_on": Hook("Filter", ("state", "template", "view", "row")),
    "reasons": Hook("Filter", ("state", "template", "view")),
    "topology_keys": Hook("Filter", ("state", "template", "view")),
    "at_most": Hook("Filter", ("state", "template", "view", "room", "others")),
    "together": Hook("Filter", ("templates", "view")),
    "at_most_together": Hook("Filter", ("templates", "view", "room")),
    "post_filter": Hook("PostFilter", ()),
    "pre_score": Hook("PreScore", ("state", "template", "view", "rows")),
    "score": Hook("Score", ("state", "template", "view", "rows")),
    "score_node": Hook("Score", ("state", "pod", "node_info")),
    "normalize": Hook("NormalizeScore", ("state", "template", "scores")),
    "score_filled": Hook("Score", ("template", "node")),
    "score_filled_at": Hook("Score", ("state", "template", "view", "row", "n")),
    "spreads": Hook("Score", ("template", "members")),
    "is_stated": Hook("Score", ("template", "view")),
    "preferred_capacity": Hook("Score", ("state", "template", "view")),
    "reserve": Hook("Reserve", ("state", "group", "placements")),
    "unreserve": Hook("Unreserve", ("group", "infos")),
    "inherit": Hook("Inherit", ("before",)),
    "permit": Hook("Permit", ("group", "siblings"), may_be_async=True),
    "pre_bind_pre_flight": Hook("PreBindPreFlight", ("template",)),
    "pre_bind": Hook("PreBind", ("pod", "node_name", "handle"), may_be_async=True),
    "bind": Hook("Bind", ("pod", "node_name", "annotations", "handle"), may_be_async=True),
    "post_bind": Hook("PostBind", ("pod", "node_name", "handle"), may_be_async=True),
    "cures": Hook("EventsToRegister", ("change", "template", "view")),
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
    "eviction_rule": "admit",
}
_MAY_SEE = ("pre_enqueue", "sort_key", "lane")
"""Hooks that may have the view as a second argument."""
_OR = {"score": ("score", "score_node")}


def check_hooks(kind: type[Any], source: str) -> tuple[str, ...]:
    """The hooks of the class, after checking them. Raises: ConfigError."""
    _check_names(kind, source)
    found = tuple(name for name in HOOKS if callable(getattr(kind, name, None)))
    for name in found:
        problem = _problem(kind, name)
        if problem:
            raise ConfigError(
                f"{_place(getattr(kind, name))}: {kind.__name__}.{name} {problem}", source=source
            )
    return found


def check_attributes(plugin: object, where: str, source: str) -> None:
    """Check what the core reads of a plugin that has been made, without calling it. Raises: ConfigError."""
    for name, (right, expected) in _ATTRIBUTES.items():
        found = getattr(plugin, name, None)
        is_read = hasattr(plugin, _READ_FOR.get(name, name))
        if is_read and found is not None and not right(found):
            place = f"{where}: {type(plugin).__name__}.{name}"
            raise ConfigError(f"{place} is {type(found).__name__}, expected {expected}", source=source)


def _are_texts(found: object) -> bool:
    return isinstance(found, tuple | list | frozenset | set) and all(isinstance(one, str) for one in found)


def _is_time(found: object) -> bool:
    return isinstance(found, int | float) and found >= 0.0  # not NaN


_ATTRIBUTES: dict[str, tuple[Callable[[object], bool], str]] = {
    "cured_by": (lambda found: isinstance(found, Change), "a Change"),
    "watches": (_are_texts, "a tuple of texts"),
    "signed_annotations": (_are_texts, "a set of texts"),
    "hook_timeout_s": (_is_time, "a number of seconds"),
    "rekey_s": (_is_time, "a number of seconds"),
}
"""By attribute that a plugin may have: the check, and what is expected, in words."""
_READ_FOR = {"cured_by": "cures"}
"""By attribute: the hook without which it is not read."""


def _check_names(kind: type[Any], source: str) -> None:
    """Reject misspelt hooks, which would silently never be called. Raises: ConfigError."""
    import difflib  # only for out-of-tree plugins: a starting scheduler pays for every import

    plain = {hook.replace("_", ""): hook for hook in HOOKS}
    for name, method in inspect.getmembers(kind, inspect.isroutine):
        if name[0] == "_" or name in HOOKS:
            continue
        close = difflib.get_close_matches(name.replace("_", "").lower(), plain, n=1, cutoff=0.85)
        if close and not hasattr(kind, plain[close[0]]):
            raise ConfigError(
                f"{_place(method)}: {kind.__name__}.{name} is not a hook and is never called; did you mean"
                f" {plain[close[0]]}? Begin the name of a helper with an underscore",
                source=source,
            )


def _problem(kind: type[Any], name: str) -> str:
    hook, method = HOOKS[name], getattr(kind, name)
    other = _TOGETHER.get(name, "")
    if other and not any(hasattr(kind, one) for one in _OR.get(other, (other,))):
        return f"needs {' or '.join(_OR.get(other, (other,)))} as well"
    is_async = inspect.iscoroutinefunction(method)
    if is_async and not hook.may_be_async:
        return "is async, and runs in the middle of a decision: write it as a plain function"
    wanted = hook.arguments
    if name == "permit" and is_async:
        wanted = (*wanted, "handle")
    elif name == "pre_enqueue" and is_async:
        wanted = (*wanted, "view", "handle")
    if not wanted:
        return ""
    try:
        bound = inspect.getattr_static(kind, name)
        own = () if isinstance(bound, staticmethod | classmethod) else (None,)
        taken = inspect.signature(method)
        if name in _MAY_SEE and len(taken.parameters) - len(own) > 1 and not is_async:
            wanted = (*wanted, "view")
        taken.bind(*own, *wanted)
    except TypeError as error:
        return f"should take (self, {', '.join(wanted)}): {error}"
    except ValueError:
        return ""  # its signature is unknown
    return ""


def _place(method: Any) -> str:
    code = getattr(inspect.unwrap(method), "__code__", None)
    return f"line {code.co_firstlineno}" if code is not None else "it"

"""Which plugins a profile runs, in which order, with which weights and arguments.

Orders and overrides exactly like kube-scheduler: its defaults are merged with the file (mergePluginSet), then
multiPoint is expanded over the points (expandMultiPointPlugins).
Sources: kubernetes `pkg/scheduler/apis/config/v1/default_plugins.go` and
`pkg/scheduler/framework/runtime/framework.go`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any, cast

import msgspec

from gangsched.config.documents import KUBE_API_VERSION
from gangsched.config.documents.absent import ABSENT
from gangsched.config.documents.kube import PluginRef, PluginSet, PluginSets, Profile
from gangsched.errors import ConfigError
from gangsched.reading.strict import decode, join, nearest

POINTS = tuple(
    (field.encode_name, field.name)
    for field in msgspec.structs.fields(PluginSets)
    if field.name != "multi_point"
)
"""(name in the file, name in PluginSets) of every extension point."""

# A weight is an int32 in kube-scheduler's format.
_MAX_WEIGHT = 2**31 - 1


class PluginInfo(msgspec.Struct, frozen=True):
    """What the configuration needs to know about a plugin.

    points: as kube-scheduler names them, including those where our version does nothing (a filter that needs
    no PreFilter serves preFilter), so that files naming them stay valid. default_weight: 0 if it never
    scores.
    """

    name: str
    points: frozenset[str]
    args_type: type[msgspec.Struct] | None = None
    default_weight: int = 0
    is_default: bool = True


class ProfileConfig(msgspec.Struct, frozen=True):
    """A resolved profile. plugins: point -> names in the order they run; weights and args: by name."""

    scheduler_name: str
    plugins: Mapping[str, tuple[str, ...]]
    weights: Mapping[str, int]
    args: Mapping[str, Any]


def resolve(
    profile: Profile, scheduler_name: str, known: Mapping[str, PluginInfo], *, path: str, notes: list[str]
) -> ProfileConfig:
    """Merges the profile with the defaults. Adds to `notes` what is accepted but has no effect here.

    Raises: ConfigError.
    """
    at = join(path, "plugins")
    infos = _with_absent(known)
    for name, attribute in (("multiPoint", "multi_point"), *POINTS):
        given, where = getattr(profile.plugins, attribute), join(at, name)
        _check_enabled(given, where, infos, point="" if name == "multiPoint" else name)
        _note_unknown(given, where, infos, notes)
    _note_absent(profile.plugins, at, known, notes)
    everywhere = _with_defaults(profile.plugins.multi_point, known)
    lists: dict[str, tuple[str, ...]] = {}
    for name, attribute in POINTS:
        listed = _spread(name, getattr(profile.plugins, attribute), everywhere, infos)
        lists[name] = tuple(one for one in listed if one in known)
    if len(lists["queueSort"]) != 1:
        raise ConfigError(
            f"exactly one queue sort plugin is needed, there are {len(lists['queueSort'])}",
            path=join(at, "queueSort"),
        )
    if not lists["bind"]:
        raise ConfigError("at least one bind plugin is needed; there is DefaultBinder", path=join(at, "bind"))
    weights: dict[str, int] = {}
    for ref in (*profile.plugins.score.enabled, *everywhere):
        if ref.name in lists["score"]:
            weights.setdefault(ref.name, ref.weight or _unstated_weight(known.get(ref.name)))
    args = _arguments(profile, known, infos, join(path, "pluginConfig"), notes)
    return ProfileConfig(
        scheduler_name, lists, weights, {name: one for name, one in args.items() if name in known}
    )


def _with_absent(known: Mapping[str, PluginInfo]) -> Mapping[str, PluginInfo]:
    """Adds absent plugins to the merge, so that the rest keep kube-scheduler's order."""
    absent = {
        one.name: PluginInfo(one.name, frozenset(one.points), one.args_type, is_default=False)
        for one in ABSENT.values()
    }
    # A view, not a copy: `known` may find more plugins than it lists, and iterating over it is expensive,
    # since each absent name causes a search through the installed packages.
    return ChainMap(cast("MutableMapping[str, PluginInfo]", known), absent)


def _note_absent(plugins: PluginSets, path: str, known: Mapping[str, PluginInfo], notes: list[str]) -> None:
    """Notes each missing plugin that the file enables, once, with what happens instead."""
    noted: set[str] = set()
    for name, attribute in (("multiPoint", "multi_point"), *POINTS):
        for i, ref in enumerate(getattr(plugins, attribute).enabled):
            if ref.name not in known and ref.name not in noted:
                noted.add(ref.name)
                where = join(path, f"{name}.enabled[{i}]")
                notes.append(f"{where}: {ref.name} is not there: {ABSENT[ref.name].instead}")


def _unstated_weight(info: PluginInfo | None) -> int:
    """Returns 1, even for a default plugin that is named again; other plugins have their own."""
    return info.default_weight if info is not None and not info.is_default and info.default_weight else 1


def _note_unknown(given: PluginSet, path: str, known: Mapping[str, PluginInfo], notes: list[str]) -> None:
    """Notes unknown names that are disabled: kube-scheduler accepts them, so its files may have them."""
    for i, ref in enumerate(given.disabled):
        if ref.name != "*" and ref.name not in known:
            where = join(path, f"disabled[{i}].name")
            hint = nearest(ref.name, known)
            notes.append(f"{where}: unknown plugin {ref.name!r}, so this disables nothing{hint}")


def _check_enabled(given: PluginSet, path: str, known: Mapping[str, PluginInfo], *, point: str) -> None:
    seen: set[str] = set()
    for i, ref in enumerate(given.enabled):
        where = join(path, f"enabled[{i}]")
        _check_known(ref.name, join(where, "name"), known)
        info = known[ref.name]
        if point and point not in info.points:
            raise ConfigError(
                f"{ref.name} does not serve {point}; it serves {', '.join(sorted(info.points))}",
                path=join(where, "name"),
            )
        if ref.name in seen:
            raise ConfigError(f"{ref.name} is enabled twice", path=join(where, "name"))
        seen.add(ref.name)
        if not 0 <= ref.weight <= _MAX_WEIGHT:
            raise ConfigError(f"{ref.weight} is not within 0..{_MAX_WEIGHT}", path=join(where, "weight"))


def _check_known(name: str, path: str, known: Mapping[str, PluginInfo]) -> None:
    if name not in known:
        own = "; one of your own comes by --plugin FILE, or as an installed entry point gangsched.plugins"
        raise ConfigError(f"unknown plugin {name!r}{nearest(name, known) or own}", path=path)


def _with_defaults(given: PluginSet, known: Mapping[str, PluginInfo]) -> list[PluginRef]:
    """Adds multiPoint to the defaults: a default named again keeps its place and takes the file's weight."""
    disabled = {ref.name for ref in given.disabled}
    own = {ref.name: ref for ref in given.enabled}
    merged: list[PluginRef] = []
    if "*" not in disabled:
        for info in known.values():
            if info.is_default and info.name not in disabled:
                merged.append(own.pop(info.name, PluginRef(info.name, info.default_weight)))
    return merged + list(own.values())


def _spread(
    point: str, given: PluginSet, everywhere: Iterable[PluginRef], known: Mapping[str, PluginInfo]
) -> tuple[str, ...]:
    """Returns one point's plugins: reconfigured defaults, then the rest of multiPoint, then its own."""
    listed = [ref.name for ref in given.enabled]
    disabled = {ref.name for ref in given.disabled}
    if "*" in disabled:
        return tuple(listed)
    serving = [ref.name for ref in everywhere if point in known[ref.name].points and ref.name not in disabled]
    overrides = [name for name in listed if name in serving]
    rest = [name for name in serving if name not in overrides]
    return (*overrides, *rest, *(name for name in listed if name not in overrides))


def _arguments(
    profile: Profile,
    known: Mapping[str, PluginInfo],
    infos: Mapping[str, PluginInfo],
    path: str,
    notes: list[str],
) -> dict[str, Any]:
    """Returns decoded Args by plugin name, with defaults for plugins that the file does not configure."""
    found: dict[str, Any] = {
        info.name: info.args_type() for info in known.values() if info.args_type is not None
    }
    seen: set[str] = set()
    for i, entry in enumerate(profile.plugin_config):
        where = f"{path}[{i}]"
        _check_known(entry.name, join(where, "name"), infos)
        if entry.name in seen:
            raise ConfigError(f"{entry.name} is configured twice", path=join(where, "name"))
        seen.add(entry.name)
        given = dict(entry.args or {})
        _check_header(given, entry.name, join(where, "args"))
        info = infos[entry.name]
        if info.args_type is not None:
            found[entry.name] = decode(info.args_type, given, join(where, "args"))
        elif entry.name in ABSENT and not info.is_default:
            notes.append(f"{where}: {entry.name} is not there, its args are not read")
        elif given:
            raise ConfigError(f"{entry.name} takes no args", path=join(where, "args"))
    return found


def _check_header(given: dict[str, Any], plugin: str, path: str) -> None:
    """Checks and removes the kind and version that Args may state, as kube-scheduler's do."""
    for key, right in (("apiVersion", KUBE_API_VERSION), ("kind", f"{plugin}Args")):
        value = given.pop(key, None)
        if value not in (None, right):
            raise ConfigError(f"{value!r} should be {right!r}", path=join(path, key))

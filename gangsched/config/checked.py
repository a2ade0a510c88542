"""A configuration file's resolved content, for people (text) and for programs (plain data).

For `gangsched check-config`. Lives here: the layout. Not here: reading the file (the rest of config), and the
equivalent documents (config.effective). Called by cli.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gangsched.config import ExtenderConfig, SchedulerConfig
from gangsched.config.documents.absent import ABSENT
from gangsched.config.effective import effective_documents
from gangsched.config.profiles import PluginInfo, ProfileConfig
from gangsched.config.queues import QueueConfig
from gangsched.model.resources import amount_text
from gangsched.model.text.printable import one_line
from gangsched.reading.durations import readable_duration

# Points whose plugins have weights.
_WEIGHED = "score"


def resolved(config: SchedulerConfig, known: Mapping[str, PluginInfo]) -> dict[str, Any]:
    """profiles, notes, kube-scheduler's missing plugins, and the documents in effect."""
    return {
        "profiles": [_profile(profile) for profile in config.profiles],
        "extenders": [_extender(one) for one in config.extenders],
        "notThere": {name: one.instead for name, one in _absent(known)},
        "notes": list(config.notes),
        "effective": list(effective_documents(config)),
    }


def resolved_text(config: SchedulerConfig, known: Mapping[str, PluginInfo]) -> str:
    """Returns the same as lines: points in their order, plugins in calling order."""
    lines = [f"note: {note}" for note in config.notes]
    for profile in config.profiles:
        lines += _profile_lines(profile)
    lines += [_extender_line(one) for one in config.extenders]
    lines += _queue_lines(config)
    lines += [f"not there: {name}: {one.instead}" for name, one in _absent(known)]
    return "\n".join(map(one_line, lines))


def _profile(profile: ProfileConfig) -> dict[str, Any]:
    return {
        "schedulerName": profile.scheduler_name,
        "plugins": {
            point: [
                {"name": name} | ({"weight": profile.weights[name]} if point == _WEIGHED else {})
                for name in names
            ]
            for point, names in profile.plugins.items()
            if names
        },
        "args": {name: _said(args) for name, args in sorted(_args(profile))},
    }


def _profile_lines(profile: ProfileConfig) -> Iterator[str]:
    yield f"profile {profile.scheduler_name}"
    width = max(len(point) for point in profile.plugins)
    for point, names in profile.plugins.items():
        if names:
            listed = [f"{name} ({profile.weights[name]})" if point == _WEIGHED else name for name in names]
            yield f"  {point:<{width}}  {', '.join(listed)}"
    for name, args in sorted(_args(profile)):
        text = _said(args)
        if text:
            yield f"  args of {name}: {msgspec.json.encode(text).decode()}"


def _extender(one: ExtenderConfig) -> dict[str, Any]:
    return {
        "url": one.url,
        "verbs": list(one.verbs),
        "weight": one.weight,
        "timeoutSeconds": one.timeout_s,
        "managedResources": [resource.name for resource in one.managed],
        "ignorable": one.ignorable,
    }


def _extender_line(one: ExtenderConfig) -> str:
    verbs = ", ".join(f"{verb} ({one.weight})" if verb == "prioritize" else verb for verb in one.verbs)
    managed = ", ".join(resource.name for resource in one.managed) or "every pod"
    down = "left out" if one.ignorable else "its pods wait"
    return f"extender {one.url}: {verbs or 'asked nothing'}; for {managed}; {one.timeout_s:g} s, then {down}"


def _queue_lines(config: SchedulerConfig) -> Iterator[str]:
    """Yields the tree of queues, each below the one that it is a part of."""
    settings = config.settings.queues
    if settings is None:
        return
    half_life = (
        f"half of past use forgotten in {readable_duration(settings.half_life_s)}"
        if settings.half_life_s
        else ""
    )
    taken_back = {
        "guaranteed": "what is guaranteed",
        "fair": "what is guaranteed, and fair shares",
        "never": "nothing",
    }
    lines = [
        f"shares by {', '.join(settings.compare)}",
        half_life,
        f"taken back: {taken_back[settings.reclaim]}",
    ]
    yield f"queues: {'; '.join(filter(None, lines))}"
    depths = {"": 0}
    for queue in settings.queues:
        depths[queue.name] = depth = depths[queue.parent] + 1
        yield f"{'  ' * depth}{queue.name}: {'; '.join(_queue_words(queue))}"


def _queue_words(queue: QueueConfig) -> Iterator[str]:
    yield f"share {queue.share:g}"
    for word, amounts in (("guaranteed", queue.guaranteed), ("limit", queue.limit)):
        if amounts:
            amounts_text = (f"{name} {amount_text(name, amount)}" for name, amount in amounts.items())
            yield f"{word} {', '.join(amounts_text)}"
    if queue.namespaces:
        yield f"namespaces {', '.join(queue.namespaces)}"
    if queue.order != "fifo":
        yield f"order {queue.order}"
    if queue.default_walltime_s is not None:
        yield f"walltime {readable_duration(queue.default_walltime_s)} where none is stated"
    if queue.bound is not None:
        yield f"bound {queue.bound}"


def _args(profile: ProfileConfig) -> Iterator[tuple[str, Any]]:
    """Yields arguments of the enabled plugins; a file may have some for disabled ones."""
    ran = {name for names in profile.plugins.values() for name in names}
    return ((name, args) for name, args in profile.args.items() if name in ran)


def _said(args: Any) -> Any:
    """As in a file, without empty fields."""
    return _bare(msgspec.to_builtins(args, str_keys=True))


def _bare(value: Any) -> Any:
    if isinstance(value, dict):
        bare = {key: _bare(one) for key, one in value.items()}
        return {key: one for key, one in bare.items() if one not in (None, [], {})}
    return [_bare(one) for one in value] if isinstance(value, list | tuple) else value


def _absent(known: Mapping[str, PluginInfo]) -> Iterator[tuple[str, Any]]:
    """kube-scheduler's default plugins that we lack, except those behind a gate that is off."""
    return ((name, one) for name, one in ABSENT.items() if name not in known and not one.gate)

"""The public face of plugins, gangsched.plugin, in words: `python -m tests.extension.plugin_api` records it.

Lives here: one line for each name and each member, with its arguments and types as they are written in the
source. Of what a plugin is handed, only the members in `HANDED` are promised; of everything else here, all
that has no underscore. The record is taken again only under another API_VERSION that CHANGELOG.md names.
"""

from __future__ import annotations

import difflib
import enum
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gangsched import plugin
from tests.support.wheels import REPO

RECORD = Path(__file__).with_name("plugin_api.txt")
_HEAD = "Plugin API "
HANDED = {
    "ApiError": ("code",),
    "ClusterView": (),
    "CycleState": ("data", "fork", "group"),
    "DemandOn": ("group", "members", "n_needed"),
    "DeviceQueries": ("device_free", "device_free_on", "inventory"),
    "DryRun": ("place", "siblings", "lowest_priority", "may_find"),
    "FitError": ("group", "message", "code"),
    "Group": ("key", "members", "min_count", "priority", "raised", "first_complete_s", "is_gang", "first"),
    "Node": ("metadata", "spec", "status"),
    "NodeQueries": ("images_on", "label", "node", "unschedulable"),
    "ObjectQueries": ("objects", "objects_in", "objects_revision"),
    "Plan": ("placements",),
    "Placement": ("info", "row", "allocation"),
    "Pod": ("metadata", "spec", "status"),
    "PodInfo": ("uid", "pod", "template", "role", "node_name"),
    "PodQueries": ("matching", "matching_now", "placed", "pods_on"),
    "PodTemplate": ("pod", "namespace", "spec", "requests"),
    "QueueView": (
        *("dominant_share", "largest", "measured_load", "place_of_queue", "queue_of", "request_of", "totals"),
        *("used", "used_by_label", "used_by_queue", "waited_s"),
    ),
    "RoomQueries": ("allocatable", "free", "room_at", "table"),
    "RowQueries": ("changed_since", "journal_end", "live", "n_nodes", "n_rows", "name", "row_of"),
    "Trial": ("fork", "place", "remove"),
}


def face() -> str:
    """The whole description, as it is recorded."""
    lines = [f"{_HEAD}{plugin.API_VERSION}"]
    for name in sorted(set(plugin.__all__) - {"API_VERSION"}, key=str.lower):
        lines += _described(name, getattr(plugin, name))
    return "\n".join(lines) + "\n"


def changes() -> str:
    """What has changed since the record, and what to do; "" where nothing has."""
    before, now = RECORD.read_text(), face()
    if before == now:
        return ""
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "recorded", "now", n=1, lineterm="")
    return (
        "\n".join(lines) + "\n\nPlugins of others are written against this. If the change is meant:\n"
        "1. raise API_VERSION in gangsched/plugin.py: its first number if a plugin that works now may not"
        " work any more\n   (a line with -), its second if something was only added;\n"
        '2. say in CHANGELOG.md what changes for authors of plugins, with the words "Plugin API" and the'
        " version;\n"
        "3. .venv/bin/python -m tests.extension.plugin_api"
    )


def is_noted(version: str) -> bool:
    """Whether CHANGELOG.md names this version of the plugin API."""
    return f"Plugin API {version}" in (REPO / "CHANGELOG.md").read_text()


def accept() -> str:
    """Take the record again. Returns why not, "" where it was done."""
    was = RECORD.read_text().partition("\n")[0].removeprefix(_HEAD) if RECORD.exists() else ""
    now = plugin.API_VERSION
    if was == now and changes():
        return f"API_VERSION is still {was}"
    if not is_noted(now):
        return f'CHANGELOG.md has no word of "Plugin API {now}"'
    RECORD.write_text(face())
    return ""


def _described(name: str, found: Any) -> Iterator[str]:
    if inspect.isfunction(found):
        yield _call(name, found)
    elif not inspect.isclass(found):
        yield f"{name}: {found}" if isinstance(found, float) else name
    elif issubclass(found, enum.Enum):
        yield f"{name}: {', '.join(found.__members__)}"
    else:
        bases = ", ".join(_bases(found))
        yield f"{name}({bases})" if bases else name
        yield from (f"    {line}" for line in sorted(_members(name, found)))


def _bases(kind: type[Any]) -> Iterator[str]:
    """Names of the bases that have one here; of other bases their own, as what lies between is ours alone."""
    for base in kind.__bases__:
        if base.__name__ in plugin.__all__:
            yield base.__name__
        else:
            yield from _bases(base)


def _members(name: str, kind: type[Any]) -> Iterator[str]:
    typed, own = inspect.get_annotations(kind), vars(kind)
    when_made = getattr(kind.__init__, "__code__", None)
    known = [*typed, *(one for one in own if one not in typed)]
    known += [one for one in (when_made.co_names if when_made else ()) if one not in known]
    promised = HANDED.get(name, [one for one in known if one in typed or one in own])
    for member in known:
        found = own.get(member)
        function = found.__func__ if isinstance(found, classmethod | staticmethod) else found
        if member not in promised or member.startswith("_"):
            continue
        if member in typed:
            yield f"{member}: {typed[member]}"
        elif isinstance(found, property):
            yield f"{member}: {inspect.get_annotations(found.fget)['return'] if found.fget else ''}"
        else:
            yield _call(member, function) if inspect.isfunction(function) else member


def _call(name: str, function: Any) -> str:
    """Its arguments as they are written, without the quotes that the interpreter puts around types."""
    parts: list[str] = []
    signature = inspect.signature(function)
    for one in signature.parameters.values():
        star = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        kind = "" if one.annotation is one.empty else f": {one.annotation}"
        default = "" if one.default is one.empty else " = ..."
        parts.append(f"{star}{one.name}{kind}{default}")
    start = "async " if inspect.iscoroutinefunction(function) else ""
    end = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation}"
    return f"{start}{name}({', '.join(parts)}){end}"


if __name__ == "__main__":
    sys.exit(accept())

"""Writes the parts of docs/ that follow from the code: `python -m tests.docs.generate` (make docs-reference).

Lives here: pages made whole (configuration.md, annotations.md) and regions of others between two comments.
Not here: what a field means, which stands beside it (`Meta(description=...)`), and the words for keys
(meanings.py). A test fails where a page is not what this writes.
"""

from __future__ import annotations

import argparse
import re
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from gangsched.agent.settings import AgentDocument
from gangsched.command.cli import _parser
from gangsched.config.documents.kube import KubeDocument, PluginSets
from gangsched.config.documents.ours import OurDocument
from gangsched.core.cache.pods.selected_keys import MAX_IDLE, PODS_A_SECOND
from gangsched.core.state.tables import binds as bind_table
from gangsched.core.state.tables import groups as transitions
from gangsched.core.state.tables import starts as start_table
from gangsched.core.turns import dirty, overdue, turn
from gangsched.extenders.client import MAX_REPLY, NODE_BYTES, NODE_VALUES
from gangsched.extension.runner import MAX_RUNNING
from gangsched.lab.sim.judges.catalogue import JUDGES
from gangsched.model.devices.annotations import MAX_DEVICES, MAX_ID_LENGTH, MAX_LISTED_RESOURCES
from gangsched.model.dialects import foreign
from gangsched.model.pod_group import DIALECTS, MAX_MEMBERS, MAX_START_TOGETHER
from gangsched.model.resources import MAX_RESOURCES
from gangsched.model.text import bounded
from gangsched.model.text.printable import MAX_MESSAGE
from gangsched.plugins import IN_TREE
from gangsched.reading.strict import MAX_CHARACTERS
from gangsched.web.access import ADDRESSES_WORTH, STRANGERS_A_SECOND
from tests.docs import (
    claim_answers,
    claim_scene,
    meanings,
    metrics_table,
    queues_scene,
    shapes,
    walk,
    what_if,
)
from tests.docs.pages import DOCS, ROOT
from tests.house.walk import files, traced

_MARKS = ("apiVersion", "kind")
_KEY = re.compile(
    r'^([A-Z_]+) = "([a-z0-9.-]*(?:k8s\.io|gangsched\.io|slurm\.net)(?:/[a-z-]+)?)"$', re.MULTILINE
)
_MADE = "<!-- Written by `make docs-reference` from the code{}; do not edit. -->\n"


class Field(NamedTuple):
    """One row: path in the file, type, default (NODEFAULT: required), and description."""

    path: str
    hint: Any
    default: object
    meaning: str


def fields(kind: type[msgspec.Struct], at: str = "") -> Iterator[Field]:
    """Every field, opened up as deep as it goes; what holds Structs and has its own meaning is one row."""
    hints = get_type_hints(kind, include_extras=True)
    for field in msgspec.structs.fields(kind):
        path = f"{at}{field.encode_name}"
        if not at and field.encode_name in _MARKS:
            continue
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        hint, meaning = _described(hints[field.name])
        inner, suffix = _inner(hint)
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct) and not meaning:
            yield from fields(inner, f"{path}{suffix}.")
        else:
            yield Field(path, hint, default, meaning)


def _described(hint: Any) -> tuple[Any, str]:
    """A field's type, and its description; "" where it has none."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *extras = get_args(hint)
    return kind, next((one.description or "" for one in extras if isinstance(one, msgspec.Meta)), "")


def _inner(hint: Any) -> tuple[Any, str]:
    """What a field holds, and how a path says that there are several."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return _inner(next(one for one in args if one is not type(None)))
    if origin in (tuple, list):
        return args[0], "[]"
    return hint, ""


def type_name(hint: Any) -> str:
    """A type as a reader of YAML would name it."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return " \\| ".join(f"`{one}`" for one in args)
    if origin in (Union, types.UnionType):
        return " \\| ".join(type_name(one) for one in args if one is not type(None))
    if origin in (tuple, list):
        return f"list of {type_name(args[0])}"
    if origin is dict:
        return f"map to {type_name(args[1])}"
    names = {str: "text", int: "integer", float: "number", bool: "boolean"}
    return names.get(hint, "object")


def default_text(default: object) -> str:
    if default is msgspec.NODEFAULT:
        return ""
    plain = msgspec.to_builtins(default)
    if plain in ("", None, [], ()) or isinstance(plain, dict):
        return ""
    return f"`{msgspec.json.encode(plain).decode() if isinstance(plain, list | tuple) else _scalar(plain)}`"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def table(kind: type[msgspec.Struct]) -> str:
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for path, hint, default, meaning in fields(kind):
        rows.append(f"| `{path}` | {type_name(hint)} | {default_text(default)} | {meaning} |")
    return "\n".join(rows) + "\n"


def flags(parser: argparse.ArgumentParser) -> str:
    rows = ["| flag | meaning |", "|---|---|"]
    for action in parser._actions:
        if action.help is argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        value = "" if action.metavar is None else f" {action.metavar}"
        if action.choices:
            value = " " + ",".join(map(str, action.choices))
        names = ", ".join(f"`{name}{value}`" for name in action.option_strings).replace("|", "\\|")
        rows.append(f"| {names} | {(action.help or '').replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def parser_of(command: str) -> argparse.ArgumentParser:
    for action in _parser([command])._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: argparse.ArgumentParser = action.choices[command]
            return found
    raise LookupError(f"gangsched has no command {command}")


def configuration_page() -> str:
    """docs/configuration.md."""
    names = ", ".join(f"`{field.encode_name}`" for field in msgspec.structs.fields(PluginSets))
    points = textwrap.fill(names, 110)
    args = [
        f"### {name}\n\n{table(info.args_type)}"
        for name, info in IN_TREE.items()
        if info.args_type is not None
    ]
    return f"""{_MADE.format("")}
# Configuration reference

Every field of every file that gangsched reads, with its type and its default. An unknown field, a wrong type
or a value out of range is refused with its place in the file and the nearest right name. See what the
scheduler's file amounts to with `gangsched check-config FILE`; the agent's is checked by
`gangsched agent --config FILE --dry-run`. `config/scheduler.yaml` and `config/agent.yaml` are commented
examples; [queueing](queueing.md), [queues](queues.md),
[traces that are kept](tracing.md#slow-failed-and-preempting-gangs) and the
[journal](record-and-replay.md#recording) have theirs on their own pages.

## The scheduler's file, first document

`apiVersion: kubescheduler.config.k8s.io/v1`, `kind: KubeSchedulerConfiguration`: kube-scheduler's own format,
so a file moves over as it is. The points of `profiles[].plugins` are
{points}.

{table(KubeDocument)}
## The scheduler's file, second document

`apiVersion: gangsched.io/v1`, `kind: GangschedConfiguration`: what kube-scheduler has no field for. Leave it
out to have the defaults. kube-scheduler reads the first document only.

{table(OurDocument)}
## Plugin arguments

Written in `profiles[].pluginConfig[].args`. Plugins that are not listed have no arguments.

{chr(10).join(args)}
## The agent's file

`apiVersion: gangsched.io/v1`, `kind: AgentConfiguration`. `--config` takes one file, or a directory of
`*.yaml` that are read as one document; a section may be in one of them only.

{table(AgentDocument)}
## Flags of `gangsched scheduler`

A flag wins over the file.

{flags(parser_of("scheduler"))}
## Flags of `gangsched agent`

{flags(parser_of("agent"))}"""


def keys() -> dict[str, str]:
    """Every annotation and label that the code names: key -> where it is defined."""
    found = {}
    for path in sorted((ROOT / "gangsched").rglob("*.py")):
        if "apiserver" not in path.parts:  # what the simulated nodes obey is told in its own room
            for match in _KEY.finditer(path.read_text(encoding="utf-8")):
                is_kind = match[2].endswith((".storage.k8s.io", ".scheduling.k8s.io", ".resource.k8s.io"))
                if not match[1].endswith(("VERSION", "GROUP")) and not is_kind:
                    found[match[2]] = str(path.relative_to(ROOT))
    for dialect in DIALECTS:
        labels = (*dialect.labels, *dialect.role_labels, *dialect.stated_labels)
        others = (*dialect.annotations, *dialect.role_annotations, *dialect.stated_annotations)
        found |= dict.fromkeys((*labels, *others), "gangsched/model/pod_group.py")
    asking = (*foreign.ASKING_LABELS, *foreign.ASKING_ANNOTATIONS)
    marks = (*foreign.LABELS, *foreign.ANNOTATIONS, *asking)
    return found | dict.fromkeys(marks, "gangsched/model/dialects/foreign.py")


def annotation_page() -> str:
    """docs/annotations.md."""
    known = keys()

    def rows(words: Mapping[str, tuple[str, str, str]], by: str) -> str:
        lines = ["| key | on | meaning |", "|---|---|---|"]
        for key, (on, writer, meaning) in words.items():
            if writer == by and key in known:
                lines.append(f"| `{key}` | {on} | {meaning} |")
        return "\n".join(lines) + "\n"

    return f"""{_MADE.format(" and tests/docs/meanings.py")}
# Annotation reference

Every annotation and label that gangsched reads or writes. They are annotations unless the table says label.

## What you write

{rows(meanings.KEYS, "user")}
## What the scheduler writes

With the pod's node, in the same write. Only the scheduler may write them if `deploy/reserved-keys.yaml` is
applied: see [Devices and hand-offs](devices.md#allocations-cannot-be-forged).

{rows(meanings.KEYS, "scheduler")}
## What the node agent writes

{rows(meanings.KEYS, "agent")}
## What a submitter's tracing writes

{rows(meanings.KEYS, "submitter")}
## Other systems' keys that are understood

Beside these labels, pods of the core API name their group in `spec.schedulingGroup.podGroupName`.

{rows(meanings.FOREIGN_KEYS, "user")}"""


def gang_table() -> str:
    """Every move that a group can make, by its cause."""
    return transitions.drawn() + "\n"


def limits() -> str:
    """What is bounded, as the code bounds it."""
    mebibyte = 2**20
    told = {
        "members of a gang": f"{MAX_MEMBERS:,}",
        "groups that start together, through others included": str(MAX_START_TOGETHER),
        "pods a second that are indexed by new label keys of selectors": f"{PODS_A_SECOND:,}",
        "label keys that are kept when no selector names them any more": str(MAX_IDLE),
        "questions a second to the API server about strangers who ask for a page": (
            f"{STRANGERS_A_SECOND:g} for one address, {STRANGERS_A_SECOND * ADDRESSES_WORTH:g} for all"
        ),
        "resource names in a cluster that are counted": f"{MAX_RESOURCES:,}",
        "resources in a node's list of devices, or in a pod's": f"{MAX_LISTED_RESOURCES:,}",
        "devices of one resource on a node, or of one pod": f"{MAX_DEVICES:,}",
        "characters of a device ID, by kubelet": str(MAX_ID_LENGTH),
        "levels of JSON in an object": str(bounded.MAX_DEPTH),
        "an annotation that is read": f"{bounded.MAX_ANNOTATION // 1024} KiB",
        "an answer of the API server": f"{bounded.MAX_ANSWER // mebibyte} MiB",
        "an extender's reply": (
            f"twice its question, and {NODE_BYTES // 1024} KiB and {NODE_VALUES} values of JSON for each"
            f" node; {MAX_REPLY // mebibyte} MiB"
        ),
        "the text of an event or a condition": f"{MAX_MESSAGE:,} characters",
        "a configuration file": f"{MAX_CHARACTERS:,} characters",
        "hooks of plugins that run at once, at one point": str(MAX_RUNNING),
    }
    return "\n".join(("| limit | value |", "|---|---|", *(f"| {k} | {v} |" for k, v in told.items()))) + "\n"


def judges_page() -> str:
    """The judges of the simulation: what each would find."""
    lines = "\n".join(f"| `{name}` | {holds} |" for name, holds in JUDGES.items())
    return f"""# What the simulation judges

`python -m gangsched.lab.sim` runs the scheduler's core through storms of faults, by seeds, and judges each
step. A violation begins with the name of its judge. The judges read what the server holds and what the
process has received, and share no code with the scheduler. A museum of mistakes (`tests/sim/test_museum*.py`)
puts faults into the scheduler that they must find.

| judge | holds that |
|---|---|
{lines}
"""


def plugin_table() -> str:
    """The built-in plugins, their points, weights and arguments."""
    rows = ["| plugin | default | weight | points | arguments |", "|---|---|---|---|---|"]
    for name, info in IN_TREE.items():
        args = () if info.args_type is None else msgspec.structs.fields(info.args_type)
        rows.append(
            f"| {name} | {'yes' if info.is_default else 'no'} | {info.default_weight or ''} |"
            f" {', '.join(sorted(info.points))} | {', '.join(field.encode_name for field in args)} |"
        )
    return "\n".join(rows) + "\n"


WHOLE = {"configuration.md": configuration_page, "annotations.md": annotation_page, "judges.md": judges_page}
REGIONS = {
    ("architecture.md", "gang table"): gang_table,
    ("architecture.md", "phases"): lambda: turn.drawn() + "\n",
    ("architecture.md", "deadlines"): lambda: overdue.drawn() + "\n",
    ("architecture.md", "marks"): lambda: dirty.drawn() + "\n",
    ("failed-binds.md", "bind table"): lambda: bind_table.drawn() + "\n",
    ("failed-binds.md", "start table"): lambda: start_table.drawn() + "\n",
    ("failed-binds.md", "gang table after binds"): lambda: transitions.drawn(transitions.AFTER_BINDS) + "\n",
    ("controllers.md", "shapes"): shapes.table,
    ("plugins.md", "plugin table"): plugin_table,
    ("resource-claims.md", "answers"): claim_answers.region,
    ("record-and-replay.md", "counterfactual"): what_if.region,
    ("operating-reference.md", "metrics"): metrics_table.table,
    ("operating-reference.md", "limits"): limits,
}
# Pictures that belong to a command and are shown on a page too: GitHub and the site each need them in docs/.
COPIES = {"load-balance.svg": ROOT / "gangsched" / "lab" / "bench" / "load-balance.svg"}


def pages() -> dict[Path, str]:
    """What each generated page, and each picture, should be."""
    found = {DOCS / name: make().rstrip() + "\n" for name, make in WHOLE.items()}
    for (name, region), make in REGIONS.items():
        path = DOCS / name
        text = found.get(path) or path.read_text(encoding="utf-8")
        begin, end = f"<!-- generated: {region} -->\n", f"<!-- end: {region} -->"
        before, mark, rest = text.partition(begin)
        _, mark_end, after = rest.partition(end)
        if not (mark and mark_end):
            raise LookupError(f"{path}: the comments {begin.strip()} and {end} are missing")
        # The empty lines are for the site's Markdown, which takes a table only after one.
        found[path] = f"{before}{begin}\n{make()}\n{end}{after}"
    followed = traced()
    found[DOCS / "walk.svg"] = walk.picture(len(followed.hops), len(files(followed.hops)))
    found[DOCS / "claim.svg"] = claim_scene.picture(claim_scene.scene())
    found[DOCS / "queues.svg"] = queues_scene.picture(queues_scene.scene())
    found[DOCS / "counterfactual.svg"] = what_if.shown().svg
    found[DOCS / "day.svg"] = what_if.shown().day_svg
    found |= {DOCS / name: source.read_text(encoding="utf-8") for name, source in COPIES.items()}
    return found


def main() -> None:
    for path, text in pages().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()

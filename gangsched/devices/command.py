"""`gangsched devices [NODE]`: its flags, input and output. Called by command.cli."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gangsched.command import printing
from gangsched.command.arguments import add_output_flag
from gangsched.command.lists import pages_of
from gangsched.devices.report import (
    ALLOCATED,
    BLOCKED,
    CONFIRMED,
    FREE,
    PLANNED,
    RESERVED,
    DeviceRow,
    NodeMap,
    Published,
    Refused,
    is_sick,
    make_map,
)
from gangsched.devices.reserved import ask_reserved, with_reserved
from gangsched.devices.summary import print_summary, time_text
from gangsched.errors import ApiError, ConfigError
from gangsched.kube.access.flags import credentials_of
from gangsched.kube.client import ApiClient
from gangsched.kube.pages import MAX_PAGE_BYTES
from gangsched.kube.watch.decode import Kind, followed
from gangsched.kube.watch.decode import nodes as nodes_kind
from gangsched.kube.watch.decode import pods as pods_kind
from gangsched.model.effects import NODE_REFUSED, POD_REFUSED
from gangsched.model.objects import Node, Pod
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    SLICES,
    TAINT_RULES,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from gangsched.model.text.bounded import lenient_decoder
from gangsched.model.text.printable import clean, several
from gangsched.reading.strict import nearest
from gangsched.signals import run_loop
from gangsched.web.commands.asking import add_flags

ItemT = TypeVar("ItemT", Node, Pod, ResourceSlice, ResourceClaim, DeviceTaintRule)
_PAGE = 500
_REQUEST_S = 30.0
_NOT_FOUND = 404
# Names listed in the error for a wrong one.
_MAX_NAMES = 5_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Shows each node's devices, by node and by gang: how many are free, held, not healthy, or reserved by"
        " a gang that is not bound, and until when. --all has a row for each device: its pod, since when;"
        " planned (the pod's annotation says so), confirmed (kubelet says it too) or allocated (by a resource"
        " claim). Read from the API server; only what is reserved is asked of the scheduler, and left out"
        " where none answers."
    )
    parser.add_argument("node", nargs="?", default="", metavar="NODE", help="this node alone")
    add_output_flag(parser, "table", "wide", "json")
    parser.add_argument("-a", "--all", action="store_true", help="a row for each device, as -o wide has")
    add_flags(parser, with_master=True)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code, 1 when a problem was found. Raises: ConfigError, ApiError."""
    maps, unknown = run_loop(_read, args)
    if args.output == "json":
        printing.print_json(maps)
    else:
        wide = args.output == "wide"
        console = printing.console(220, highlight=True, soft_wrap=True)
        print_map(maps, console, wide=wide, each=wide or args.all)
        if unknown:
            console.print(escape(clean(unknown)))
    return 1 if any(one.problems or any(map(_is_wrong, one.devices)) for one in maps) else 0


async def _read(args: argparse.Namespace) -> tuple[list[NodeMap], str]:
    """Returns the map, and why it lacks reservations, "" if it has them."""
    reserved, unknown = await ask_reserved(args)
    async with ApiClient(await credentials_of(args), max_body_bytes=MAX_PAGE_BYTES) as client:
        refused: list[Refused] = []
        nodes = await _all(client, nodes_kind(), Node, refused)
        if args.node:
            names = [node.metadata.name for node in nodes]
            nodes = [node for node in nodes if node.metadata.name == args.node]
            if not nodes:
                near = nearest(args.node, names[:_MAX_NAMES])
                raise ConfigError(f"there is no node {args.node!r}{near}", path="NODE")
        pods = await _all(client, pods_kind(args.node), Pod, refused)
        refused += await _refused_by_scheduler(client, nodes, pods)
        published, unread = await _published(client)
    maps = make_map(nodes, pods, [one for one in refused if args.node in ("", one.node)])
    maps = with_reserved(maps, reserved, datetime.now(UTC))
    if published.slices:
        # What is free of them the scheduler's own book says; without any the command starts without the core.
        from gangsched.devices.claims import with_claims

        maps = with_claims(maps, nodes, pods, published)
    return maps, " ".join(filter(None, (unknown, unread)))


async def _published(client: ApiClient) -> tuple[Published, str]:
    """Returns slices and claims; or none, and why: nothing where the server does not have them."""
    left_out: list[Refused] = []
    try:
        slices = await _all(client, followed(SLICES), ResourceSlice, left_out)
        if not slices:
            return Published(), ""
        claims = await _all(client, followed(CLAIMS), ResourceClaim, left_out)
    except ApiError as error:
        if error.code == _NOT_FOUND:
            return Published(), ""
        return Published(), f"Devices by resource claims are not shown: {error.message}"
    rules: list[DeviceTaintRule] = []
    with suppress(ApiError):  # Kubernetes has them in v1 since 1.37
        rules = await _all(client, followed(TAINT_RULES), DeviceTaintRule, left_out)
    return Published(slices, claims, rules), ""


async def _all(client: ApiClient, kind: Kind, item: type[ItemT], refused: list[Refused]) -> list[ItemT]:
    """Returns all objects; unreadable ones go to `refused`."""
    found: list[ItemT] = []
    async for items, unread in pages_of(client, kind, limit=_PAGE):
        found += [one for one in items if isinstance(one, item)]
        refused += [
            Refused(one.kind, f"{one.namespace}/{one.name}", one.uid, one.node_name or one.name, one.message)
            for one in unread
            if one.kind == "Node" or one.node_name
        ]
    return found


class _Regarding(msgspec.Struct, gc=False):
    uid: str = ""


class _Event(msgspec.Struct, gc=False, rename="camel"):
    involved_object: _Regarding = msgspec.field(default_factory=_Regarding)
    message: str = ""


class _Events(msgspec.Struct, gc=False):
    items: list[_Event] | None = None


_decode_events = lenient_decoder(_Events)


async def _refused_by_scheduler(
    client: ApiClient, nodes: Sequence[Node], pods: Sequence[Pod]
) -> list[Refused]:
    """Returns objects that the scheduler fails on, by the last hour's events; none if we may not read
    those."""
    on_nodes = {pod.metadata.uid: ("Pod", pod.key, pod.spec.node_name) for pod in pods if pod.spec.node_name}
    there = on_nodes | {node.metadata.uid: ("Node", "", node.metadata.name) for node in nodes}
    found: dict[str, str] = {}
    for reason in (POD_REFUSED, NODE_REFUSED):
        query = {"fieldSelector": f"reason={reason}", "limit": str(_PAGE)}
        try:
            answer = _decode_events(await client.get("/api/v1/events", query, timeout_s=_REQUEST_S))
        except (ApiError, msgspec.MsgspecError):
            continue
        found |= {one.involved_object.uid: one.message for one in answer.items or ()}
    return [
        Refused(kind, name, uid, node, found[uid])
        for uid, (kind, name, node) in there.items()
        if uid in found
    ]


def print_map(maps: Sequence[NodeMap], console: Console, *, wide: bool, each: bool) -> None:
    """Prints the tables, and the problems below; `each`: a row for each device."""
    if not any(one.devices for one in maps):
        console.print(
            "No node lists devices (gangsched.io/devices, or labels), and no driver does in a ResourceSlice:"
            " gangsched agent writes them."
        )
    elif each:
        console.print(_table(maps, wide=wide))
    else:
        print_summary(maps, console)
    for one in maps:
        for problem in one.problems:
            console.print(f"{escape(clean(one.name))}: {escape(clean(problem))}")
        for pod in one.without_ids:
            text = f"pod {pod} asks for devices, and nothing says which it has"
            console.print(f"{escape(clean(one.name))}: {escape(clean(text))}")
        if one.no_ids:
            text = f"no IDs of {', '.join(one.no_ids)} are given here until it is known which pod has which"
            console.print(f"{escape(clean(one.name))}: {escape(clean(text))}")
    devices = [device for one in maps for device in one.devices]
    if devices:
        n_free = sum(device.state == FREE and device.health == "Healthy" for device in devices)
        n_reserved = sum(device.state == RESERVED for device in devices)
        n_held = sum(bool(device.holders or device.kubelet) for device in devices)
        n_sick = sum(map(is_sick, devices))
        n_wrong = sum(map(_is_wrong, devices))
        n_nodes = sum(bool(one.devices) for one in maps)
        console.print(
            f"{several(len(devices), 'device')} on {several(n_nodes, 'node')}: {n_free} free,"
            f" {n_reserved} reserved, {n_held} held, {n_sick} not healthy, {n_wrong} not as they should be"
        )


def _table(maps: Sequence[NodeMap], *, wide: bool) -> Table:
    table = printing.table()
    headings = ["NODE", "RESOURCE", "DEVICE", "HEALTH", "STATE", "POD", "CONTAINER", "SINCE"]
    has_claims = any(device.claims for one in maps for device in one.devices)
    if has_claims:
        headings.append("CLAIM")
    if wide:
        headings += ["GANG", "MODEL", "MIB", "NUMA", "UID"]
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    for one in maps:
        for device in one.devices:
            cells = _cells(one.name, device, has_claims=has_claims, wide=wide)
            table.add_row(*(escape(clean(cell)) for cell in cells))
    return table


def _cells(node: str, device: DeviceRow, *, has_claims: bool, wide: bool) -> list[str]:
    holders = device.holders
    pods = " and ".join(holder.pod for holder in holders)
    if device.kubelet and device.kubelet not in {holder.pod for holder in holders}:
        pods = f"{pods or 'nobody'} (kubelet: {device.kubelet})"
    if device.state == RESERVED:
        pods = f"{device.reserved_by} until {time_text(device.reserved_until)}"
    since = min((holder.since for holder in holders if holder.since is not None), default=None)
    cells = [
        node,
        device.resource,
        device.id,
        device.health,
        device.state,
        pods or "-",
        " and ".join(holder.container for holder in holders if holder.container) or "-",
        time_text(since),
    ]
    if has_claims:
        cells.append(" and ".join(device.claims) or "-")
    if wide:
        cells += [
            " and ".join(dict.fromkeys(holder.gang for holder in holders if holder.gang)) or "-",
            device.model or "-",
            str(device.memory_mib or "-"),
            str(device.numa if device.numa >= 0 else "-"),
            " and ".join(holder.uid for holder in holders) or "-",
        ]
    return cells


def _is_wrong(device: DeviceRow) -> bool:
    """Conflicting sources, or a device that is held and unhealthy."""
    return device.state not in (FREE, RESERVED, PLANNED, CONFIRMED, ALLOCATED, BLOCKED) or bool(
        device.holders and is_sick(device)
    )

"""Reads a Kubernetes cluster's past: an audit log, or what kubectl prints of pods and nodes.

Both have when pods came, where and when they were bound, and when they ended, each with gaps, which are
counted. Source: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/. Called by the command.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.kube.watch.decode import nodes, pods
from gangsched.model.objects import Node, Pod, PodStatus

_MAX_LINE = 4 * 2**20
_MAX_LIST = 512 * 2**20
_MAX_PODS = 1_000_000
# Kubernetes is of 2014.
_FIRST_YEAR, _LAST_YEAR = 2014, 9000
NO_BODY = "pods of which the log has no more than the name (level Metadata)"
NO_NAME = "pods whose name the API server made, which the log does not have (level Request)"
NO_NODE = "binds of which the log does not have the node (level Metadata)"
TOGETHER = "deletions of several pods at once of which the log does not have the pods (level Metadata)"
UNSEEN = "binds and ends of pods whose creation is not in it"
OTHERS = "objects that are neither pods nor nodes"
NO_TIME = "pods that were bound at a time that is not in it"
DELETED = "pods that were deleted before: a list has only those that are there"
NODES_NOW = "nodes as they were earlier: a list has them as they are"
_NOTHING = (b"", b"null")
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Course(msgspec.Struct):
    """One pod. Times in seconds since 1970; phase: how it ended, "" if it was deleted while it ran."""

    pod: Pod
    came_s: float
    bound_s: float | None = None
    node: str = ""
    ended_s: float | None = None
    phase: str = ""
    gone_s: float | None = None


class History(msgspec.Struct):
    """Pods by UID, and nodes by name, each with when it was first seen. missing: counts of what is not in it.

    uid_of: by NAMESPACE/NAME, of pods that an audit log has created; several logs are of one cluster, one
    after the other.
    """

    courses: dict[str, Course] = {}
    nodes: dict[str, tuple[float, Node]] = {}
    uid_of: dict[str, str] = {}
    missing: Counter[str] = msgspec.field(default_factory=Counter)


class _Reference(msgspec.Struct, rename="camel"):
    resource: str = ""
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class _Status(msgspec.Struct):
    code: int = 0


class _Audited(msgspec.Struct, rename="camel"):
    stage: str
    verb: str
    stage_timestamp: datetime
    request_uri: str = msgspec.field(default="", name="requestURI")
    object_ref: _Reference | None = None
    response_status: _Status | None = None
    request_object: msgspec.Raw = msgspec.Raw(b"")
    response_object: msgspec.Raw = msgspec.Raw(b"")

    @property
    def request(self) -> msgspec.Raw | None:
        return self.request_object if bytes(self.request_object) not in _NOTHING else None

    @property
    def response(self) -> msgspec.Raw | None:
        return self.response_object if bytes(self.response_object) not in _NOTHING else None

    @property
    def is_trial(self) -> bool:
        """Whether nothing of it took effect: kubectl diff, --dry-run=server. Deletions state that in their
        body."""
        if "dryRun=" in self.request_uri.partition("?")[2]:
            return True
        is_end = self.verb in ("delete", "deletecollection")
        return is_end and self.request is not None and bool(_options(self.request).dry_run)


class _Options(msgspec.Struct, rename="camel"):
    dry_run: list[str] | None = None


class _Target(msgspec.Struct):
    name: str = ""


class _Binding(msgspec.Struct):
    target: _Target


class _Item(msgspec.Struct):
    kind: str = ""


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]


class _Deleted(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Terminated(msgspec.Struct, rename="camel"):
    finished_at: datetime | None = None


class _State(msgspec.Struct):
    terminated: _Terminated | None = None


class _Container(msgspec.Struct):
    state: _State | None = None


class _Containers(msgspec.Struct, rename="camel"):
    container_statuses: list[_Container] | None = None


class _Ends(msgspec.Struct):
    status: _Containers = msgspec.field(default_factory=_Containers)


_audited = msgspec.json.Decoder(_Audited).decode
_options = msgspec.json.Decoder(_Options).decode
_binding = msgspec.json.Decoder(_Binding).decode
_listed = msgspec.json.Decoder(_List).decode
_deleted = msgspec.json.Decoder(_Deleted).decode
_item = msgspec.json.Decoder(_Item).decode
_ends = msgspec.json.Decoder(_Ends).decode
_pod: Callable[[Any], Pod] = pods().decode_object
_node: Callable[[Any], Node] = nodes().decode_object


def read_history(path: str, into: History, refuse: Callable[[ConfigError], None]) -> None:
    """Reads a file, by what it begins with: a List, or lines of audit.k8s.io. Raises: ConfigError."""
    try:
        with Path(path).open("rb") as file:
            if file.seekable():
                first = file.readline(_MAX_LINE)
                file.seek(0)
            else:  # a pipe, from kubectl or zcat
                first = file.peek()
            if b"audit.k8s.io/" in first:
                _read_log(path, file, into, refuse)
            else:
                _read_list(path, file, into, refuse)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None
    if len(into.courses) > _MAX_PODS:
        raise ConfigError(f"has more than {_MAX_PODS:,} pods", source=path)


# -- what kubectl prints ---------------------------------------------------------------------------------


def _read_list(path: str, file: BinaryIO, into: History, refuse: Callable[[ConfigError], None]) -> None:
    body = file.read(_MAX_LIST + 1)
    if len(body) > _MAX_LIST:
        raise ConfigError(f"is larger than {_MAX_LIST // 2**20} MiB", source=path)
    try:
        found = _listed(body.removeprefix(BOM_UTF8))
    except _UNREADABLE as error:
        raise ConfigError(
            f"is neither an audit log nor a list, as kubectl get pods,nodes -A -o json prints it: {error}",
            source=path,
        ) from None
    into.missing[DELETED] += 0
    into.missing[NODES_NOW] += 0
    for number, raw in enumerate(found.items):
        try:
            kind = _item(raw).kind
            if kind == "Pod":
                _take_pod(_pod(raw), _ends(raw), into)
            elif kind == "Node":
                node = _node(raw)
                made = node.metadata.creation_timestamp
                into.nodes[node.metadata.name] = (0.0 if made is None else _at(made), node)
            else:
                into.missing[OTHERS] += 1
        except (*_UNREADABLE, ConfigError) as error:
            refuse(ConfigError(f"items[{number}]: {error}", source=path))


def _take_pod(pod: Pod, ends: _Ends, into: History) -> None:
    """Takes in a listed pod. Raises: ConfigError (for one of its times)."""
    meta = pod.metadata
    course = Course(_unplaced(pod), _came_s(pod), node=pod.spec.node_name)
    if course.node:
        course.bound_s = _scheduled_s(pod)
        if course.bound_s is None:
            into.missing[NO_TIME] += 1
            course.bound_s = course.came_s
    if pod.is_terminal:
        times = [
            _at(at)
            for one in ends.status.container_statuses or ()
            if one.state is not None and one.state.terminated is not None
            if (at := one.state.terminated.finished_at) is not None
        ]
        course.ended_s = max([*times, course.bound_s or course.came_s])
        course.phase = pod.status.phase
    into.courses[meta.uid or pod.key] = course


def _scheduled_s(pod: Pod) -> float | None:
    scheduled_at = pod.bound_at or pod.status.start_time
    return None if scheduled_at is None else _at(scheduled_at)


# -- an audit log ----------------------------------------------------------------------------------------


def _read_log(path: str, file: BinaryIO, into: History, refuse: Callable[[ConfigError], None]) -> None:
    for number, line in _lines(file):
        try:
            if len(line) > _MAX_LINE:
                raise ConfigError(f"is longer than {_MAX_LINE // 2**20} MiB")
            if line.strip():
                _take_line(_audited(line.removeprefix(BOM_UTF8)), into)
        except (*_UNREADABLE, ConfigError) as error:
            refuse(ConfigError(f"line {number}: {error}", source=path))


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(_MAX_LINE + 1):
        number += 1
        rest = line
        while len(line) > _MAX_LINE and rest and not rest.endswith(b"\n"):
            rest = file.readline(_MAX_LINE)
        yield number, line


def _take_line(audited: _Audited, into: History) -> None:
    """Takes in a line of the log. Raises: msgspec.MsgspecError, ConfigError."""
    ref, status = audited.object_ref, audited.response_status
    if audited.stage != "ResponseComplete" or ref is None or status is None or not 200 <= status.code < 300:
        return
    if audited.is_trial:
        return
    at_s = _at(audited.stage_timestamp)
    if ref.resource == "nodes" and audited.verb in ("create", "update", "patch", "get"):
        if audited.response is not None and ref.subresource in ("", "status"):
            node = _node(audited.response)
            first_s, _ = into.nodes.get(node.metadata.name, (at_s, node))
            into.nodes[node.metadata.name] = (first_s, node)
    elif ref.resource == "pods":
        _take_call(audited, ref, at_s, into)


def _take_call(audited: _Audited, ref: _Reference, at_s: float, into: History) -> None:
    """Takes in a call about pods. Raises: msgspec.MsgspecError."""
    key = f"{ref.namespace}/{ref.name}"
    if audited.verb == "deletecollection":
        _take_deletions(audited, at_s, into)
        return
    if audited.verb == "create" and not ref.subresource:
        body = audited.response or audited.request
        if body is None:
            into.missing[NO_BODY] += 1
            return
        pod = _pod(body)
        meta = pod.metadata
        name, namespace = meta.name or ref.name, meta.namespace or ref.namespace
        if not name:
            into.missing[NO_NAME] += 1
            return
        pod = replace(pod, metadata=replace(meta, name=name, namespace=namespace))
        uid = into.uid_of[pod.key] = meta.uid or f"{pod.key}@{at_s}"
        into.courses[uid] = Course(_unplaced(pod), at_s)
        return
    course = into.courses.get(into.uid_of.get(key, ""))
    if course is None:
        if ref.subresource == "binding" or audited.verb == "delete":
            into.missing[UNSEEN] += 1
    elif ref.subresource == "binding":
        if audited.request is None:
            into.missing[NO_NODE] += 1
        else:
            course.bound_s, course.node = at_s, _binding(audited.request).target.name
    elif ref.subresource == "status" and audited.response is not None:
        pod = _pod(audited.response)
        if pod.is_terminal and course.ended_s is None:
            course.ended_s, course.phase = at_s, pod.status.phase
    elif audited.verb == "delete" and not ref.subresource:
        course.gone_s = at_s


def _take_deletions(audited: _Audited, at_s: float, into: History) -> None:
    """Takes in the deletion of all pods of a namespace, or of a label. Raises: msgspec.MsgspecError."""
    items = None if audited.response is None else _deleted(audited.response).items
    if items is None:
        into.missing[TOGETHER] += 1
        return
    for pod in map(_pod, items):
        course = into.courses.get(into.uid_of.get(pod.key, ""))
        if course is None:
            into.missing[UNSEEN] += 1
        else:
            course.gone_s = at_s


def _came_s(pod: Pod) -> float:
    """Returns when the pod was created. Raises: ConfigError."""
    made = pod.metadata.creation_timestamp
    if made is None:
        raise ConfigError("has no creationTimestamp")
    return _at(made)


def _at(time: datetime) -> float:
    """Returns seconds since 1970. Raises: ConfigError (a clock that was never set, or no time of any
    clock)."""
    if not _FIRST_YEAR <= time.year < _LAST_YEAR:
        raise ConfigError(f"{time.isoformat()} is not a time of a cluster")
    return (time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp()


def _unplaced(pod: Pod) -> Pod:
    return replace(pod, spec=replace(pod.spec, node_name=""), status=PodStatus(phase="Pending"))

"""What an independent watch saw of the pods, and what must hold for all of it.

Lives here: the raw watch in a thread of its own (none of the product's code reads it), waiting for what it
shows, and the checkers. Not here: making anything happen (cluster.py).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.devices.annotations import ALLOCATED_KEY, VISIBLE_KEY
from gangsched.model.pod_group import ATTEMPT_KEY, GANG_KEY, RANK_KEY

GPU = "nvidia.com/gpu"
LABEL = ".nvidia.com.allocated-devices.gangsched.io/gpu"
OURS = "gangsched"
PATIENCE_S = 90.0
"""How long anything may take on a machine that does much else; nothing is ever this slow on an idle one."""
SILENT_S = 30.0
"""A watch, which the server ends after two seconds, is broken after so long without a word."""

Json = dict[str, Any]


class Sight(NamedTuple):
    """One event of the watch, and when it came (monotonic)."""

    type: str
    pod: Json
    at_s: float


class Picture:
    """All pods as an independent watch shows them, and every event of it since `start`; or all objects of the
    collection at `path`."""

    def __init__(
        self,
        plane: ControlPlane,
        *,
        alive: Callable[[], str],
        path: str = "/api/v1/namespaces/default/pods",
    ) -> None:
        self._plane = plane
        self._path = path
        self._alive = alive
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="picture", daemon=True)
        self.pods: dict[str, Json] = {}
        """By name; the tests use one namespace."""
        self.sights: list[Sight] = []
        self.trouble = ""
        self._connection: http.client.HTTPSConnection | None = None

    def start(self) -> None:
        listed = self._plane.request("GET", self._path)
        self.pods = {pod["metadata"]["name"]: pod for pod in listed["items"]}
        self._version = listed["metadata"]["resourceVersion"]
        self._thread.start()

    def taken(self) -> list[Sight]:
        """What has come since the last time, which is forgotten."""
        with self._changed:
            sights, self.sights = self.sights, []
        return sights

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            connection = self._connection
            if connection is not None and connection.sock is not None:
                with contextlib.suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)
            self._thread.join(5)

    def until(self, seen: Callable[[], object], what: str, *, timeout_s: float = PATIENCE_S) -> None:
        """Returns when the picture is as wanted; looked at after every event."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            while not seen():
                trouble = self.trouble or self._alive()
                assert not trouble, trouble
                left_s = deadline_s - time.monotonic()
                assert left_s > 0, f"not after {timeout_s:.0f} s: {what}; pods are {self.summary()}"
                self._changed.wait(min(left_s, 0.2))

    def summary(self) -> dict[str, str]:
        return {name: node_of(pod) or reason_of(pod) or "-" for name, pod in sorted(self.pods.items())}

    def _follow(self) -> None:
        try:
            while not self._stop.is_set():
                self._watch()
        except Exception as error:
            if self._stop.is_set():
                return
            self.trouble = f"the independent watch ended: {error!r}"

    def _watch(self) -> None:
        where = urlsplit(self._plane.base_url)
        context = ssl.create_default_context(cafile=str(self._plane.ca_file))
        self._connection = connection = http.client.HTTPSConnection(
            where.netloc, timeout=SILENT_S, context=context
        )
        path = f"{self._path}?watch=1&timeoutSeconds=2&resourceVersion={self._version}"
        try:
            headers = {"Authorization": f"Bearer {self._plane.token}"}
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                self._see(json.loads(line))
        finally:
            connection.close()

    def _see(self, event: Json) -> None:
        assert event["type"] != "ERROR", event
        pod = event["object"]
        with self._changed:
            self._version = pod["metadata"]["resourceVersion"]
            self.sights.append(Sight(event["type"], pod, time.monotonic()))
            if event["type"] == "DELETED":
                self.pods.pop(pod["metadata"]["name"], None)
            else:
                self.pods[pod["metadata"]["name"]] = pod
            self._changed.notify_all()


def node_of(pod: Json) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def annotation(pod: Json, key: str) -> str:
    value: str = pod["metadata"].get("annotations", {}).get(key, "")
    return value


def condition_of(pod: Json) -> Json:
    """Its PodScheduled, or nothing."""
    conditions = pod["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == "PodScheduled"), {})


def reason_of(pod: Json) -> str:
    """Why it is not scheduled, in the scheduler's words."""
    message: str = condition_of(pod).get("message", "")
    return message


def is_live(pod: Json) -> bool:
    return pod["status"].get("phase") not in ("Succeeded", "Failed")


def ids_of(pod: Json) -> list[str]:
    """The GPUs that the pod's annotation, or its label, gives it."""
    text = annotation(pod, ALLOCATED_KEY)
    if not text:
        labels: dict[str, str] = pod["metadata"].get("labels", {})
        return [i for key, value in labels.items() if key.endswith(LABEL) for i in value.split(".")]
    return [i for of in json.loads(text).values() for i in of.get(GPU, [])]


def gpus_of(pod: Json) -> int:
    return sum(int(c["resources"].get("limits", {}).get(GPU, 0)) for c in pod["spec"]["containers"])


def _has_unknown_gpus(pod: Json) -> bool:
    """Whether it may have GPUs of its node's list, and nothing on it shows which."""
    try:
        n_known = len(ids_of(pod))
    except (ValueError, AttributeError):  # other schedulers' pods may have anything in our annotation
        n_known = 0
    return is_live(pod) and gpus_of(pod) > n_known


class _UnknownHolders:
    """On which nodes, and until when, pods had GPUs without known IDs. Times are numbers of events."""

    def __init__(self) -> None:
        self._now = 0
        self._on: dict[str, set[str]] = {}
        self._gone_at: dict[str, int] = {}
        self._first_seen: dict[str, int] = {}

    def see(self, type_: str, pod: Json) -> None:
        """The next event."""
        self._now += 1
        uid, node = pod["metadata"]["uid"], node_of(pod)
        self._first_seen.setdefault(uid, self._now)
        if type_ == "DELETED":
            del self._first_seen[uid]
        holders = self._on.setdefault(node, set())
        if node and type_ != "DELETED" and _has_unknown_gpus(pod):
            holders.add(uid)
        elif uid in holders:
            holders.remove(uid)
            self._gone_at[node] = self._now

    def may_lack_ids(self, pod: Json, node: str) -> bool:
        """Whether such another pod was on the node at a time when the scheduler may have placed this one.

        It places what it has seen, and sees pods in this order: not before the pod's first event. When in
        between it did is not shown by any event. Ask before `see` is told that the pod is bound.
        """
        first_seen = self._first_seen.get(pod["metadata"]["uid"], self._now)
        return bool(self._on.get(node)) or self._gone_at.get(node, 0) > first_seen


class Checker:
    """What must hold for every history, faults or not, event by event.

    One owner for each device; node, IDs, gang, rank and attempt in one event; IDs of that node, as many as
    asked for, or none if another pod there may have any of them; nobody else's pod written to; never more of
    ours on a node than it has room for.
    """

    def __init__(self, inventory: dict[str, set[str]], ours: Collection[str] = (OURS,)) -> None:
        """`inventory`: healthy IDs by node; `ours`: profiles."""
        self._inventory = inventory
        self._ours = ours
        self._owner: dict[tuple[str, str], str] = {}
        self._before: dict[str, Json] = {}
        self._unknown = _UnknownHolders()

    def see(self, sight: Sight) -> None:
        """The next event."""
        self._check(sight.type, sight.pod)
        self._unknown.see(sight.type, sight.pod)

    def _check(self, type_: str, pod: Json) -> None:
        if pod["spec"].get("schedulerName") not in self._ours:
            written = [key for key in pod["metadata"].get("annotations", {}) if key == GANG_KEY]
            assert not written, f"{pod['metadata']['name']} is another scheduler's"
            return
        uid, name = pod["metadata"]["uid"], pod["metadata"]["name"]
        known = self._before.get(uid, {"spec": {}})
        if not node_of(pod):
            assert not annotation(pod, ATTEMPT_KEY), f"{name} has our annotations and no node"
        elif not node_of(known) and type_ == "MODIFIED":
            _check_bound(pod, self._inventory, may_lack_ids=self._unknown.may_lack_ids(pod, node_of(pod)))
        held = {(node_of(pod), i) for i in ids_of(pod)} if type_ != "DELETED" and is_live(pod) else set()
        for key in [key for key, of in self._owner.items() if of == uid and key not in held]:
            del self._owner[key]
        for key in held:
            assert self._owner.setdefault(key, uid) == uid, f"{key} is given to {name} and another live pod"
        self._before[uid] = pod
        if type_ == "DELETED":
            del self._before[uid]


def check(sights: list[Sight], inventory: dict[str, set[str]], ours: Collection[str] = (OURS,)) -> None:
    """The whole history at once."""
    checker = Checker(inventory, ours)
    for sight in sights:
        checker.see(sight)


def _check_bound(pod: Json, inventory: dict[str, set[str]], *, may_lack_ids: bool) -> None:
    name, node = pod["metadata"]["name"], node_of(pod)
    for key in (GANG_KEY, RANK_KEY, ATTEMPT_KEY):
        assert annotation(pod, key), f"{name} got its node without {key}"
    condition = condition_of(pod)
    assert condition.get("status") == "True", f"{name} is bound, PodScheduled is {condition}"
    ids = ids_of(pod)
    if node in inventory and (ids or not may_lack_ids):
        assert len(ids) == len(set(ids)) == gpus_of(pod), f"{name} asked for {gpus_of(pod)}, got {ids}"
        assert set(ids) <= inventory[node], f"{name} has IDs that {node} does not offer: {ids}"
        if annotation(pod, ALLOCATED_KEY):
            assert annotation(pod, VISIBLE_KEY) == ",".join(ids)

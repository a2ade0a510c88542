"""Invariants on the wire, checked against the store's own history with a plain reading of JSON.

Lives here: comparing each process's events and requests with the store; devices and room on the nodes;
leftovers when a process ends. Not here: the wire, the cluster. Shares no code with what it checks: pods are
read as the JSON that the store holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from gangsched.lab.apiserver.storage.store import Change
from gangsched.lab.sim.wire.cluster import GPU
from gangsched.lab.sim.wire.server import ApiServer
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod

_Outcome = ev.BindSucceeded | ev.BindFailed | ev.BindUnknown | ev.BindCancelled


class Seen(NamedTuple):
    """A pod as the store had it at one version."""

    key: str
    uid: str
    node: str


class Ledger:
    """The store's side: every version of every pod, every bind that took effect, each device's holder."""

    def __init__(self, server: ApiServer) -> None:
        self._registry = server.registry
        self.problems: list[str] = []
        self.versions: dict[int, Seen] = {}
        self.there: dict[str, int] = {}
        """UID -> version of each pod that exists."""
        self.landed: dict[str, tuple[int, int]] = {}
        """UID -> the attempt that took effect, and the version at which it did."""
        self._pods: dict[str, dict[str, Any]] = {}
        server.registry.store.subscribe(self._note_change, server.registry.resource("pods").storage_key)

    def _note_change(self, change: Change) -> None:
        pod = change.item.decode()
        uid, node = change.item.uid, pod["spec"].get("nodeName", "")
        self.versions[change.revision] = Seen(f"{change.item.namespace}/{change.item.name}", uid, node)
        if change.type == "DELETED":
            self.there.pop(uid, None)
            self._pods.pop(uid, None)
            return
        was_bound = bool(self._pods.get(uid, {"spec": {}})["spec"].get("nodeName"))
        self.there[uid] = change.revision
        self._pods[uid] = pod
        if node and not was_bound:
            attempt = pod["metadata"].get("annotations", {}).get("gangsched.io/attempt", "-1")
            self.landed[uid] = (int(attempt), change.revision)
            self.problems += self._on(node)

    @property
    def version(self) -> int:
        """The store's version."""
        return self._registry.store.revision

    def _on(self, node: str) -> Iterator[str]:
        """Yields violations on a node: a device held twice, or more devices than it has."""
        holders: dict[str, str] = {}
        n_gpus = 0
        for pod in self._pods.values():
            if pod["spec"].get("nodeName") != node or pod["status"].get("phase") in ("Succeeded", "Failed"):
                continue
            name = pod["metadata"]["name"]
            asked = int(pod["spec"]["containers"][0]["resources"]["requests"][GPU])
            text = pod["metadata"].get("annotations", {}).get("gangsched.io/allocated-devices", "{}")
            ids = [one for sets in json.loads(text).values() for one in sets.get(GPU, ())]
            n_gpus += asked
            if len(ids) != asked or not all(one.startswith(f"GPU-{node}-") for one in ids):
                yield f"devices-as-bound: {name} asks for {asked} GPUs and has {ids} on {node}"
            for one in ids:
                if one in holders:
                    yield f"one-holder: {one} belongs to {holders[one]} and to {name}"
                holders[one] = name
        if n_gpus > 8:
            yield f"room: {n_gpus} GPUs are given away on {node}, which has 8"

    def not_done(self) -> list[str]:
        """Pods that have not finished."""
        return [
            f"{pod['metadata']['name']} ({pod['status'].get('phase')} on {pod['spec'].get('nodeName')})"
            for pod in self._pods.values()
            if pod["status"].get("phase") != "Succeeded"
        ]


class EventJudge:
    """One process's side: the binds that it has sent and their outcomes, and the pods as it knows them."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._n_open: dict[tuple[str, int], int] = {}
        self._sent_at: dict[tuple[str, int], int] = {}
        self._pods: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self.n_outcomes: dict[str, int] = {}
        self.problems: list[str] = []

    def sent(self, effects: Sequence[ef.Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ef.BindPod):
                key = (effect.uid, effect.attempt)
                self._sent_at[key] = self._ledger.version
                self._n_open[key] = self._n_open.get(key, 0) + 1
                if self._n_open[key] > 1:
                    self.problems.append(f"bind {key} is sent again before it is answered")

    def received(self, events: Iterable[ev.Event]) -> None:
        for event in events:
            if isinstance(event, _Outcome):
                self._outcome(event)
            elif isinstance(event, ev.PodRead):
                self._read(event)
            elif isinstance(event, ev.PodAdded | ev.PodUpdated | ev.PodDeleted):
                self._watched(event)
            elif isinstance(event, ev.ObjectRefused):
                self.problems.append(f"{event.kind} {event.name} is refused: {event.message}")

    def _outcome(self, event: _Outcome) -> None:
        key, name = (event.uid, event.attempt), type(event).__name__
        self.n_outcomes[name] = self.n_outcomes.get(name, 0) + 1
        self._n_open[key] = self._n_open.get(key, 0) - 1
        if self._n_open[key] < 0:
            self.problems.append(f"{name} of bind {key}, which nothing waits for")
        attempt, version = self._ledger.landed.get(event.uid, (-1, -1))
        # Each process counts attempts from 1: an earlier process may have bound the pod in its first attempt,
        # too.
        landed = attempt == event.attempt and version > self._sent_at.get(key, 0)
        if isinstance(event, ev.BindSucceeded) and not landed:
            self.problems.append(f"bind {key} is reported to have succeeded, and the store has no such bind")
        if isinstance(event, ev.BindFailed | ev.BindCancelled) and landed:
            self.problems.append(f"bind {key} is reported as {name} and has landed")

    def _read(self, event: ev.PodRead) -> None:
        if event.pod is None:
            if event.uid in self._ledger.there:
                self.problems.append(f"pod {event.uid} is reported gone and is there")
            return
        self._is_true(event.pod, f"PodRead of {event.uid}")
        if event.pod.metadata.uid != event.uid:
            self.problems.append(f"PodRead of {event.uid} shows {event.pod.metadata.uid}")

    def _watched(self, event: ev.PodAdded | ev.PodUpdated | ev.PodDeleted) -> None:
        pod, name = event.pod, type(event).__name__
        uid, version = pod.metadata.uid, int(pod.metadata.resource_version)
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        self._is_true(pod, f"{name} of {key}")
        known = self._pods.get(uid)
        if isinstance(event, ev.PodAdded):
            if known is not None:
                self.problems.append(f"PodAdded of {key} ({uid}), which is known")
            if self._names.get(key, uid) != uid:
                self.problems.append(f"PodAdded of {key} while another of that name is known")
        elif known is None:
            self.problems.append(f"{name} of {key} ({uid}), which is not known")
        elif version < known:
            self.problems.append(f"{name} of {key} goes back from {known} to {version}")
        if isinstance(event, ev.PodDeleted):
            self._pods.pop(uid, None)
            self._names.pop(key, None)
            if uid in self._ledger.there:
                self.problems.append(f"PodDeleted of {key} ({uid}), which is there")
        else:
            self._pods[uid] = version
            self._names[key] = uid

    def _is_true(self, pod: Pod, what: str) -> None:
        """Checks that the store had this state at the version that the event names."""
        version = int(pod.metadata.resource_version)
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        seen = Seen(key, pod.metadata.uid, pod.spec.node_name)
        was = self._ledger.versions.get(version)
        if was != seen:
            self.problems.append(f"{what}: {seen} at {version}, in the store it was {was}")

    def at_rest(self) -> Iterator[str]:
        """Checks that every bind is answered, and that the process's state is the store's."""
        for key, n_open in self._n_open.items():
            if n_open:
                yield f"bind {key} has no outcome"
        if self._pods != self._ledger.there:
            ours, there = self._pods, self._ledger.there
            differing = sorted({*ours.items()} ^ {*there.items()})
            yield f"cache-is-store: the pods as received are not those of the store: {differing}"

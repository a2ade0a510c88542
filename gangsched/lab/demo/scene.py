"""Scene and Chronicle: the scheduler's state at one moment, and everything seen so far.

The story's expectations, the table, the lines and the summary read only these. Pure: takes the views and the
time. Called by gangsched.lab.demo.stage, several times a second.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from gangsched.core.explaining.reports import GroupView, NodeView
from gangsched.core.types.group import GroupState
from gangsched.lab.demo.names import host_list, seconds
from gangsched.model.text.printable import several

DELETED = "deleted"
ENDED = "ended"
RUNNING = "running"
# A demo that goes on (--keep) also shows other work: this much of the past is enough for a table.
_MAX_GONE = 100
_PROMISE = re.compile(r"It starts by [^.]*\.")
_DEVICES = re.compile(r": (of [0-9]+ devices? on .*? free)")
_MAX_CHANGES = 10_000


class Seen(msgspec.Struct, frozen=True):
    """One group in a scene. `gone`: it no longer exists, and `view` is the last of it."""

    view: GroupView
    gone: bool = False

    @property
    def short(self) -> str:
        """Its name without the namespace: the demo has only one."""
        return self.view.key.name

    @property
    def word(self) -> str:
        """Its state in one word: the scheduler's own, and after "bound" the kubelets'."""
        view = self.view
        if self.gone:
            return DELETED
        if view.state is GroupState.BOUND and view.is_whole:
            if view.n_ended and view.n_ended == view.n_bound:
                return ENDED
            if view.n_running and view.n_running + view.n_ended == view.n_bound:
                return RUNNING
        return view.state.value

    @property
    def why(self) -> str:
        """Why it does not run, without its own name in front, which is shown beside it."""
        text = "" if self.gone else self.view.why
        own = f"gang {self.view.name}"
        reserved = f"{own} is reserved and waits: "
        if text.startswith(reserved):  # its end is shown beside it, too
            text = text.rpartition("; for ")[0]
        return text.replace(reserved, "").removeprefix(f"{own}: ").removeprefix(f"{own} ")


class Scene(msgspec.Struct, frozen=True):
    """One moment: at_s since the demo began, now_s on the scheduler's clock; groups as they came."""

    at_s: float
    now_s: float
    groups: tuple[Seen, ...] = ()
    nodes: tuple[NodeView, ...] = ()

    def group(self, short: str) -> Seen | None:
        """Returns the latest of that name; None if there was none yet."""
        return next((seen for seen in reversed(self.groups) if seen.short == short), None)


class Change(msgspec.Struct, frozen=True):
    """A group was seen in another state than before."""

    at_s: float
    seen: Seen
    words: str


class Chronicle:
    """Everything seen, in order; the answer to the last question; and whether an invariant was ever
    violated."""

    def __init__(self) -> None:
        self.answer = ""
        self.scene = Scene(0.0, 0.0)
        self.changes: list[Change] = []
        self.broken: list[str] = []
        self._seen: dict[tuple[str, ...], Seen] = {}
        self._shown: dict[tuple[str, ...], tuple[str, str]] = {}

    def see(
        self, groups: Sequence[GroupView], nodes: Sequence[NodeView], *, at_s: float, now_s: float
    ) -> list[Change]:
        """Takes in one moment; returns what has changed since the last one."""
        news = []
        present = {tuple(view.key): view for view in groups}
        for key in [*self._seen, *(key for key in present if key not in self._seen)]:
            view = present.get(key)
            seen = Seen(view) if view is not None else Seen(self._seen[key].view, gone=True)
            self._seen[key] = seen
            shown = (seen.word, seen.why if _tells_why(seen) else "")
            if self._shown.get(key) != shown:
                self._shown[key] = shown
                news.append(Change(at_s, seen, words(seen)))
        self.changes = [*self.changes, *news][-_MAX_CHANGES:] if news else self.changes
        self._forget()
        self.scene = Scene(at_s, now_s, tuple(self._seen.values()), tuple(nodes))
        self.broken += [text for text in _broken(self.scene) if text not in self.broken]
        return news

    def _forget(self) -> None:
        gone = [key for key, seen in self._seen.items() if seen.gone]
        for key in gone[:-_MAX_GONE]:
            del self._seen[key], self._shown[key]

    def history(self, short: str) -> list[Change]:
        """One group's changes, oldest first."""
        return [change for change in self.changes if change.seen.short == short]


def words(seen: Seen) -> str:
    """A change in words: where, how much, how fast, or why not."""
    view = seen.view
    if seen.gone:
        return "its room is free again"
    if view.state is GroupState.WAITING:
        return f"{view.n_reserved} of {view.n_needed} reserved on {_place(view)}; {seen.why}"
    if view.state is GroupState.BINDING:
        return f"{view.n_bound} of {view.n_needed} so far"
    if view.state is GroupState.BOUND:
        if seen.word in (RUNNING, ENDED):
            return f"{view.n_running if seen.word == RUNNING else view.n_ended} of {view.n_needed}"
        took = took_s(view)
        fast = f", {seconds(took)} after the last member came" if took is not None else ""
        return f"{view.n_bound} of {view.n_needed} on {_place(view)}{fast}"
    return seen.why


def promise_of(seen: Seen) -> str:
    """The sentence that promises its start; "" if there is none."""
    found = _PROMISE.search("" if seen.gone else seen.view.why)
    return found.group() if found is not None else ""


def devices_found(answer: str) -> str:
    """Which devices a claim finds, by an explanation, and who has the others; "" if it does not say."""
    found = _DEVICES.search(answer)
    return found.group(1) if found is not None else ""


def took_s(view: GroupView) -> float | None:
    """Seconds from complete to bound, by the scheduler's own clock; None until it is bound."""
    if view.state is not GroupState.BOUND or not view.is_whole or view.complete_since_s is None:
        return None
    return view.since_s - view.complete_since_s


def _place(view: GroupView) -> str:
    n_devices = len(view.ids)
    return host_list(view.nodes) + (f", {several(n_devices, 'GPU')}" if n_devices else "")


def _tells_why(seen: Seen) -> bool:
    """Whether a changed reason is news: not while a gang gathers, since its members come one by one."""
    return seen.view.state in (GroupState.UNSCHEDULABLE, GroupState.WAITING)


def _broken(scene: Scene) -> list[str]:
    broken = []
    for seen in scene.groups:
        view = seen.view
        if not seen.gone and view.is_half_bound and view.state is not GroupState.BINDING:
            broken.append(f"{view.name} was bound in part: {view.n_bound} of {view.n_needed}")
    for node in scene.nodes:
        for devices in node.devices.values():
            for device in devices:
                if len(device.pods) > 1:
                    broken.append(f"device {device.id} on {node.name} had {len(device.pods)} owners")
    return broken

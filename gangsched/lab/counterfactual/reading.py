"""Reads a journal into a day: which pods came, ran and ended, and other inputs, from all its processes.

It uses only the core's inputs, not its answers: a bind counts once the watch has shown it. Pods are tracked
across processes; what happened while no process recorded is found by difference at the next list. Called by
the command.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError, ParseError
from gangsched.journal.records import End, Reconfigured, Record, Start, State, Turn, read_events
from gangsched.journal.replay.replaying import Replay
from gangsched.journal.segments import Reader, Segment, naming
from gangsched.journal.unreadable import Ended, empty_among, lost_after, starts_of
from gangsched.lab.counterfactual.day import Day, OtherEvent
from gangsched.lab.counterfactual.lives import Lives
from gangsched.lab.sim.world.store import KINDS
from gangsched.model import events as ev

MAX_DAYS = 1100
"""Three years, like the longest logs of the Parallel Workloads Archive; a longer day has a wrong time."""
_PODS = (ev.PodAdded, ev.PodUpdated)
_NODES = (ev.NodeAdded, ev.NodeUpdated)
# Outcomes of a process' own effects; the model's core has its own.
_ANSWERS = (
    *(ev.BindSucceeded, ev.BindCancelled, ev.ExtendersAnswered, ev.PodUnread, ev.PodPatched),
    *(ev.PodPatchFailed, ev.RefusalsRead),
    *(ev.HookAnswered, ev.LeadershipGained, ev.PodRead, ev.PodBumped, ev.LoadReported),
    *(ev.GroupAllowed, ev.GroupRejected),
    *(ev.ClaimPatched, ev.ClaimRefused, ev.ClaimUnclear, ev.ClaimCancelled),
    *(ev.ClaimRead, ev.ClaimUnread, ev.ClaimBumped),
)


def read_day(segments: Sequence[Segment], plugin_files: Sequence[str] = ()) -> Day:
    """Raises: ConfigError (it is empty or unreadable, or two processes recorded at once)."""
    reading = _Reading(plugin_files)
    begun = [list(starts_of(of_one)) for _, of_one in groupby(segments, key=lambda one: one.process)]
    reading.lost = [why for starts in begun for why in empty_among(starts)]
    whole = [[(one, start) for one, start in starts if start is not None] for starts in begun]
    for starts in sorted(filter(None, whole), key=lambda one: one[0][1].wall_s):
        reading.process(starts)
    if reading.start is None or not reading.is_synced:
        what = "nothing is in it" if reading.start is None else "ends before the cluster was listed once"
        raise ConfigError(f"is too short: {what}", source=str(segments[0].path.parent))
    return reading.day()


class _Reading:
    """What has been read so far. Times in seconds since 1970, until converted to a day."""

    def __init__(self, plugin_files: Sequence[str]) -> None:
        self._plugin_files = plugin_files
        self.start: Start | None = None
        self._lives = Lives()
        self._others: list[tuple[float, ev.Event]] = []
        self._kinds: dict[str, bool] = {}
        self._changes: list[tuple[float, Start | Reconfigured]] = []
        self._gaps: list[tuple[float, float, str]] = []
        self._unlisted: set[str] = set()
        self._nodes: dict[str, ev.NodeAdded | ev.NodeUpdated] = {}
        self._unseen_nodes: set[str] = set()
        self._first_s = self._began_s = 0.0
        self._now_s = 0.0
        self._n_unreadable = self._n_refused = 0
        self.is_synced = False
        self.lost: list[str] = []

    # -- one process after the other -------------------------------------------------------------------

    def process(self, starts: Sequence[tuple[Segment, Start]]) -> None:
        """Raises: ConfigError."""
        n_turns, why, ago_s = 0, "", 0.0
        for number, (segment, _) in enumerate(starts):
            reader = Reader(segment.path)
            upcoming = starts[number + 1] if number + 1 < len(starts) else None
            with naming(segment.path):
                for record in reader:
                    if isinstance(record, Start):
                        ago_s = record.wall_s - record.now_s
                        self._begin(record, segment, is_first=not number, n_turns=n_turns, why=why)
                        n_turns, start = record.n_before, record
                    elif isinstance(record, State):
                        if number == 0 or self._is_behind:
                            self._restore(start, record)
                    elif upcoming is not None and n_turns == upcoming[1].n_before:
                        break  # the next segment has it too
                    else:
                        why = self._record(record, ago_s) or why
                        n_turns += isinstance(record, Turn | Reconfigured)
            why = f"a segment {reader.torn}" if reader.torn else why
            if lost := lost_after(Ended(segment, reader, n_turns), upcoming):
                self.lost.append(lost)

    def _begin(self, start: Start, segment: Segment, *, is_first: bool, n_turns: int, why: str) -> None:
        """Takes in a segment's first record; only a process' first, or one after a gap, is new."""
        self._is_behind = not is_first and start.n_before != n_turns
        if not is_first and not self._is_behind:
            return
        if start.wall_s < self._now_s - 60.0:
            problem = (
                f"{segment.process} recorded while another process did: give each a directory of its own"
            )
            raise ConfigError(problem, source=str(segment.path))
        if self.start is None:
            self.start = start
            self._began_s = self._first_s = start.wall_s
        else:
            self._changes.append((start.wall_s, start))
            since_s = min(self._now_s, start.wall_s)
            why = start.gap or why or "the scheduler did not run, or did not record"
            self._gaps.append((since_s, start.wall_s, why))
        self._now_s = max(self._now_s, start.wall_s)
        if is_first:
            self._lives.listed_anew()
            self._unseen_nodes = set(self._nodes)

    def _restore(self, start: Start, state: State) -> None:
        """Takes the core's knowledge from its state, as the beginning is missing."""
        replay = Replay(start, plugin_files=self._plugin_files)
        replay.play(state)
        self._lives.listed_anew()
        self._unseen_nodes = set(self._nodes)
        for event in _known(replay.scheduler):
            self._event(event)
        for kind in replay.scheduler.kinds:
            self._kind(kind, is_served=True)

    # -- records ---------------------------------------------------------------------------------------

    def _record(self, record: Record, ago_s: float) -> str:
        """Takes in a record; returns why the journal ends there; "": it does not."""
        if isinstance(record, Turn | Reconfigured | End):
            at_s = record.now_s + ago_s
            if at_s > self._first_s + MAX_DAYS * 86_400.0:
                raise ConfigError(f"has a call more than {MAX_DAYS:,} days after the journal's first")
            self._now_s = max(self._now_s, at_s)
        if isinstance(record, End):
            return record.why
        if isinstance(record, Reconfigured):
            self._changes.append((self._now_s, record))
        elif isinstance(record, Turn) and record.do == "handle":
            try:
                events = read_events(record.events)
            except ParseError as error:
                raise ConfigError(f"a call of the journal {error}") from None
            for event in events:
                self._event(event)
        return ""

    def _event(self, event: ev.Event) -> None:
        now_s = self._now_s
        if isinstance(event, _PODS):
            self._lives.put(event.pod, now_s)
        elif isinstance(event, ev.PodDeleted):
            self._lives.gone(event.pod, now_s)
        elif isinstance(event, ev.EvictionSucceeded):
            self._lives.evicted(event.uid)
        elif isinstance(event, ev.KindSynced):
            self._kind(event.kind, is_served=True)
        elif isinstance(event, ev.KindMissing):
            if not event.is_unread:
                self._kind(event.kind, is_served=False)
        elif isinstance(event, ev.ObjectRefused):
            self._n_unreadable += 1
        elif isinstance(event, ev.BindFailed | ev.BindUnknown | ev.EvictionFailed):
            self._n_refused += 1
        elif not isinstance(event, _ANSWERS):
            self._other(event)

    def _other(self, event: ev.Event) -> None:
        if isinstance(event, _NODES):
            name = event.node.metadata.name
            self._unseen_nodes.discard(name)
            before = self._nodes.get(name)
            self._nodes[name] = event
            if before is not None and _same(before, event):
                return
        elif isinstance(event, ev.NodeDeleted):
            self._nodes.pop(event.node.metadata.name, None)
            self._lives.node_gone(event.node.metadata.name)
        self._others.append((self._now_s, event))

    def _kind(self, kind: str, *, is_served: bool) -> None:
        is_new = kind not in self._kinds
        self._kinds[kind] = is_served
        if kind == "pods":
            self._lives.listed(self._now_s)
        elif kind == "nodes":
            for name in sorted(self._unseen_nodes):
                self._event(ev.NodeDeleted(self._nodes[name].node))
            self._unseen_nodes = set()
        if is_new and self.is_synced and kind not in KINDS:
            missing_or_not = ev.KindSynced(kind) if is_served else ev.KindMissing(kind)
            self._others.append((self._now_s, missing_or_not))
        if not self.is_synced and {"pods", "nodes"} <= self._kinds.keys():
            self.is_synced = True
            self._began_s = self._now_s

    # -- a day -----------------------------------------------------------------------------------------

    def day(self) -> Day:
        assert self.start is not None
        began_s = self._began_s
        lives, again_s = self._lives.all_since(began_s)
        return Day(
            began_wall_s=began_s,
            length_s=self._now_s - began_s,
            lives=lives,
            others=[OtherEvent(max(at_s - began_s, 0.0), event) for at_s, event in self._others],
            kinds=self._kinds,
            start=self.start,
            changes=[(max(at_s - began_s, 0.0), one) for at_s, one in self._changes],
            gaps=[(from_s - began_s, until_s - began_s, why) for from_s, until_s, why in self._gaps],
            again_s=again_s,
            n_unreadable=self._n_unreadable,
            n_refused=self._n_refused,
            lost=self.lost,
        )


def _same(one: ev.NodeAdded | ev.NodeUpdated, other: ev.NodeAdded | ev.NodeUpdated) -> bool:
    """Whether they are equal except for the version."""
    mine, theirs = one.node.metadata, other.node.metadata
    return (
        (one.node.spec, one.node.status) == (other.node.spec, other.node.status)
        and mine.labels == theirs.labels
        and mine.annotations == theirs.annotations
        and mine.uid == theirs.uid
    )


def _known(core: Scheduler) -> Iterator[ev.Event]:
    """Yields events for the objects that the core knows, in their last versions."""
    cache = core.shared.cache
    yield from (ev.NodeAdded(node) for node in cache.nodes.nodes if node is not None)
    yield from core.group_specs.objects()
    yield from (ev.OwnerPut(owner) for owner in core.owners.all())
    for kind in core.watches:
        yield from (ev.ObjectPut(kind, one) for one in cache.objects.objects(kind).values())
    yield from (ev.PodAdded(info.pod) for info in cache.pods.values())

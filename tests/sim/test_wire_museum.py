"""Mistakes at the edge, put back one at a time: the simulation on the wire must see each.

Every exhibit must be caught within a bound of seeds; that the unbroken edge comes through the same seeds is
tests/sim/test_wire.py. The mistakes live here and nowhere else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from gangsched.kube.effects import binding_lane, slow_lane, write_lanes
from gangsched.kube.transport import http1, lane, lane_connection
from gangsched.kube.watch import reflector, watch_state
from gangsched.kube.watch.decode import ApiObject
from gangsched.lab.sim import command
from gangsched.lab.sim.wire import STORM, Rates, run_seed
from gangsched.model.effects import BindPod
from gangsched.model.events import BindFailed, Event
from tests.support.breaking import searched

MAX_SEEDS = 25
Patch = pytest.MonkeyPatch


def w1_a_lost_answer_counts_as_a_no(patch: Patch) -> None:
    """A bind whose answer was lost has failed: what it took is given to the next."""

    def silent(
        self: binding_lane.BindingLane,
        call: lane_connection.Call[BindPod],
        why: str,
        *,
        refused: bool = False,
    ) -> None:
        self._emit(BindFailed(call.item.uid, call.item.attempt, 0, "", why))

    patch.setattr(binding_lane.BindingLane, "_silent", silent)


def w2_answers_in_any_order(patch: Patch) -> None:
    """On a connection with two requests the answer belongs to the last one that was sent."""

    class LastFirst(deque[Any]):
        popleft = deque.pop

    begin = lane_connection.LaneConnection.__init__

    def begin_so(self: lane_connection.LaneConnection[Any], *args: Any) -> None:
        begin(self, *args)
        self.calls = LastFirst()

    patch.setattr(lane_connection.LaneConnection, "__init__", begin_so)


def w3_a_chunk_split_within_its_line_end(patch: Patch) -> None:
    """A piece that ends between the two bytes behind a chunk: the second is taken for the next chunk's."""
    feed = http1.Chunks.feed

    def off_by_one(self: http1.Chunks, data: bytes) -> list[bytes]:
        if self._left == 1:
            self._left = 0
        return feed(self, data)

    patch.setattr(http1.Chunks, "feed", off_by_one)


def w4_a_chunk_head_in_two_pieces(patch: Patch) -> None:
    """The part of a chunk's size that came before is forgotten."""
    feed = http1.Chunks.feed

    def forgetful(self: http1.Chunks, data: bytes) -> list[bytes]:
        self._line = b""
        return feed(self, data)

    patch.setattr(http1.Chunks, "feed", forgetful)


def w5_resumed_behind_what_was_seen(patch: Patch) -> None:
    """After a cut the watch goes on from a version that it has never received."""
    closed = watch_state.WatchState.closed

    def ahead(self: watch_state.WatchState) -> None:
        closed(self)
        if self.resource_version and not self._listing:
            self.resource_version = str(int(self.resource_version) + 4)

    patch.setattr(watch_state.WatchState, "closed", ahead)


def w6_known_by_name(patch: Patch) -> None:
    """A pod that was deleted and recreated between two watches is one pod that has changed."""

    def present(self: watch_state.WatchState, item: ApiObject, events: list[Event]) -> str:
        key = f"{item.metadata.namespace}/{item.metadata.name}"
        make = self.kind.updated if key in self.known else self.kind.added
        self.known[key] = item
        events.append(make(item, self.api_version))
        return key

    patch.setattr(watch_state.WatchState, "_present", present)


def w7_a_410_within_a_stream_is_passed_over(patch: Patch) -> None:
    """An ERROR line in an answer of 200 is no news: the watch goes on from the version that is too old."""
    odd = watch_state.WatchState._odd_line

    def passed_over(
        self: watch_state.WatchState, data: bytes, error: msgspec.MsgspecError, events: list[Event]
    ) -> None:
        odd(self, data, error, events)
        if self.failure is not None and self.failure.code == 410:
            self.failure = None

    patch.setattr(watch_state.WatchState, "_odd_line", passed_over)


def w8_deletions_missed_meanwhile(patch: Patch) -> None:
    """A new list adds and updates; what is not on it any more stays known."""
    whole = watch_state.WatchState._list_is_whole

    def kept(self: watch_state.WatchState, resource_version: str, events: list[Event]) -> None:
        self._seen.update(self.known)
        whole(self, resource_version, events)

    patch.setattr(watch_state.WatchState, "_list_is_whole", kept)


def w9_silence_is_not_noticed(patch: Patch) -> None:
    """A watch whose connection is half open is waited for."""

    async def patient(self: reflector.Reflector, scope: anyio.CancelScope) -> None:
        await anyio.sleep_forever()

    patch.setattr(reflector.Reflector, "_find_silence", patient)


def w11_calls_behind_a_closing_answer_are_forgotten(patch: Patch) -> None:
    """A server that closes after an answer leaves a second request on the connection without one."""
    give_up = lane.Lane._give_up

    def forgetful(self: lane.Lane[Any], one: lane_connection.LaneConnection[Any], why: str) -> None:
        if "earlier answer" in why:
            self.n_in_flight -= len(one.calls)
            self._readers.n_awaited -= len(one.calls)
            one.calls.clear()
        give_up(self, one, why)

    patch.setattr(lane.Lane, "_give_up", forgetful)


def w13_any_404_means_gone(patch: Patch) -> None:
    """A load balancer's `404 page not found` about a pod that is read: it is gone, and its devices free."""
    patch.setattr(slow_lane, "is_doubtful", lambda error, target: False)
    patch.setattr(write_lanes, "is_gone", lambda error, target: error.code == 404)


def w14_the_number_decides(patch: Patch) -> None:
    """A bind is refused for good by whoever answers with a 4xx."""
    patch.setattr(binding_lane, "is_refusal", lambda error, target: 400 <= error.code < 500)


def w15_any_success_is_one(patch: Patch) -> None:
    """A login page with 200 is an answer to a bind as good as another."""
    patch.setattr(binding_lane.BindingLane, "_proves", lambda self, call, body: True)


# Each in weather that shows it soon; in the full storm it takes up to forty seeds.
WATCHED = Rates(watch=0.8, gone=0.1, mischief_per_s=1.5)
EXHIBITS: dict[Callable[[Patch], None], Rates] = {
    w1_a_lost_answer_counts_as_a_no: Rates(cut=0.1),
    w2_answers_in_any_order: STORM,
    w3_a_chunk_split_within_its_line_end: Rates(split=0.3),
    w4_a_chunk_head_in_two_pieces: Rates(split=0.3),
    w5_resumed_behind_what_was_seen: Rates(watch=0.9),
    w6_known_by_name: WATCHED,
    w7_a_410_within_a_stream_is_passed_over: WATCHED,
    w8_deletions_missed_meanwhile: WATCHED,
    w9_silence_is_not_noticed: WATCHED,
    w11_calls_behind_a_closing_answer_are_forgotten: Rates(hangs_up=0.2),
    w13_any_404_means_gone: Rates(cut=0.1, page=0.2),
    w14_the_number_decides: Rates(page=0.1),
    w15_any_success_is_one: Rates(page=0.1),
}


@pytest.mark.parametrize("mistake", EXHIBITS, ids=lambda mistake: mistake.__name__)
def test_the_wire_shows_the_mistake(mistake: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mistake(monkeypatch)
    for seed in searched(mistake.__name__, MAX_SEEDS):
        if run_seed(seed, rates=EXHIBITS[mistake]).problems:
            return
    pytest.fail(f"not found in {MAX_SEEDS} seeds")


def test_the_command_cuts_down_what_it_finds(monkeypatch: Patch, capsys: pytest.CaptureFixture[str]) -> None:
    w2_answers_in_any_order(monkeypatch)
    assert command.main(["--storm", "wire", "--seeds", "0"]) == 1
    output = capsys.readouterr().out
    assert "again: python -m gangsched.lab.sim --storm wire --seeds 0" in output
    assert "with these faults only: " in output

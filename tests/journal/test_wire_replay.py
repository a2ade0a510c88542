"""Whole scheduler processes on the wire in memory, recorded and replayed: the same effects, byte for byte.

Storms, kills and lost leases are in it; each process has its own journal, and each is replayed. Every kind of
tampering with what was recorded is found by the digests.
"""

from __future__ import annotations

from functools import cache

import msgspec
import pytest

from gangsched.journal.records import Record, Start, Turn
from gangsched.journal.replay.replaying import Divergence
from gangsched.lab.sim.wire import STORM
from gangsched.lab.sim.wire.loop import START_S
from tests.journal.kept import recorded, replayed


@pytest.mark.parametrize("seed", range(4))
def test_every_process_of_a_storm_replays_to_the_same_effects(seed: int) -> None:
    verdict, journals = recorded(seed, STORM)
    played = [replayed(kept.records).played for kept in journals]
    assert len(played) == verdict.n_processes
    n_bound = sum(one.n_bound for one in played)
    print(f"seed {seed}: {sum(one.n_turns for one in played)} calls, {n_bound} binds")
    assert n_bound >= verdict.outcomes["BindSucceeded"]


@cache
def calm_day() -> list[Record]:
    _, (kept,) = recorded(7, n_gangs=6)
    return kept.records


def nth(records: list[Record], do: str, *, with_effects: bool = False) -> int:
    """The place of the last call of that kind."""
    return max(
        at
        for at, one in enumerate(records)
        if isinstance(one, Turn) and one.do == do and (one.effects or not with_effects)
    )


def test_an_event_that_is_missing_is_found() -> None:
    records = list(calm_day())
    at = next(
        at for at, one in enumerate(records) if isinstance(one, Turn) and b"PodAdded" in bytes(one.events)
    )
    turn = records[at]
    records[at] = msgspec.structs.replace(turn, events=msgspec.Raw(b"[]"))
    with pytest.raises(Divergence, match="call "):
        replayed(records)


def test_another_order_of_the_groups_is_found() -> None:
    records = list(calm_day())
    at = nth(records, "schedule")
    del records[at]
    with pytest.raises(Divergence):
        replayed(records)


def test_another_time_is_found() -> None:
    """Backoffs end by it: a group is tried again that would not have been yet."""
    _, journals = recorded(0, STORM)
    first, *others = max((kept.records for kept in journals), key=len)
    stopped = [
        msgspec.structs.replace(one, now_s=START_S) if isinstance(one, Turn) else one for one in others
    ]
    with pytest.raises(Divergence):
        replayed([first, *stopped])


def test_another_digest_is_found() -> None:
    records = list(calm_day())
    at = nth(records, "schedule", with_effects=True)
    turn = records[at]
    assert isinstance(turn, Turn)
    records[at] = msgspec.structs.replace(turn, effects="0" * 16)
    with pytest.raises(Divergence, match="not those recorded") as caught:
        replayed(records)
    assert caught.value.effects


@pytest.mark.parametrize("seed", range(4, 7))
def test_each_segment_replays_alone_from_the_state_that_it_begins_with(seed: int) -> None:
    """Backoffs, places in line, reservations, attempts in flight: nothing of them is in lists of objects."""
    _, journals = recorded(seed, STORM, per_segment=25)
    n_segments = 0
    for kept in journals:
        whole = [record for n in range(len(kept.segments)) for record in kept.records_of(n + 1)]
        n_turns = replayed(whole).played.n_turns
        for n in range(len(kept.segments)):
            rest = [record for later in range(n, len(kept.segments)) for record in kept.records_of(later + 1)]
            first = rest[0]
            assert isinstance(first, Start)
            assert first.n_before + replayed(rest).played.n_turns == n_turns
            n_segments += 1
    print(f"seed {seed}: {n_segments} segments of {len(journals)} processes")
    assert n_segments > 5

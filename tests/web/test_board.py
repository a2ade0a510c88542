"""What the dashboard is told: a code for every device, what changed, the queue, the last hours; bounded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import MemberState
from gangsched.model.pod_group import GroupKey
from gangsched.web.board import cells as codes
from gangsched.web.board.cells import FIRST_GROUP, FREE, Cells, NodeCells
from gangsched.web.board.feed import MAX_BUFFERED, MAX_VIEWERS, QUEUE_TICKS, ROWS_AT_ONCE, Feed, Viewer
from gangsched.web.board.history import MAX_SAMPLES, PERIOD_S, History
from gangsched.web.board.sessions import LIFETIME_S, MAX_SESSIONS, Sessions
from gangsched.web.pages.queue import Queue
from tests.support.scenario import Cluster, cluster, gang

GPU = "nvidia.com/gpu"


def looked(cells: Cells) -> dict[str, NodeCells]:
    return {node.name: node for node in cells.changes(1000).nodes}


def told(messages: bytes) -> list[dict[str, Any]]:
    return [json.loads(one.removeprefix(b"data: ")) for one in messages.split(b"\n\n") if one]


def feed_of(c: Cluster) -> Feed:
    scheduler: Scheduler = c.scheduler
    return Feed(
        scheduler,
        History(scheduler, n_attempts=lambda: 0),
        Queue(scheduler, clock_s=lambda: c.now_s),
        clock_s=lambda: c.now_s,
        wall_s=lambda: 1_700_000_000.0 + c.now_s,
    )


def test_each_device_has_a_code_and_a_bind_changes_only_its_node() -> None:
    c = cluster(nodes=3, gpus=4, racks=3)
    cells = Cells(c.scheduler)
    first = looked(cells)
    assert {name: node.rack for name, node in first.items()} == {"n0": "r0", "n1": "r1", "n2": "r2"}
    assert all(node.cells == {GPU: [FREE] * 4} and node.is_open for node in first.values())
    assert looked(cells) == {}
    c.submit(gang("train", pods=1, gpus=3)).run()
    changes = cells.changes(1000)
    (node,) = changes.nodes
    assert sorted(node.cells[GPU]) == [FREE, *[FIRST_GROUP] * 3]
    assert changes.groups == {0: "d/train"}
    assert looked(cells) == {}


def test_a_device_that_is_only_reserved_is_looked_at_until_its_bind_has_landed() -> None:
    c = cluster(nodes=1, gpus=2).submit(gang("train", pods=1, gpus=2)).run()
    (group,) = c.groups()
    (member,) = group.members.values()
    member.state = MemberState.ASSUMED
    cells = Cells(c.scheduler)
    assert looked(cells)["n0"].cells == {GPU: [FIRST_GROUP + 1] * 2}
    member.state = MemberState.BOUND  # nothing is noted of the row
    assert looked(cells)["n0"].cells == {GPU: [FIRST_GROUP] * 2}


def test_a_large_cluster_is_looked_at_in_parts_and_a_viewer_gets_all_of_it() -> None:
    c = cluster(nodes=ROWS_AT_ONCE + 20, gpus=1)
    feed = feed_of(c)
    assert feed.join() is not None
    feed.tick()
    late = feed.join()
    assert late is not None
    feed.tick()
    first, second = told(late_messages(late))
    assert first["whole"]
    assert first["first"]
    assert len(first["nodes"]) == ROWS_AT_ONCE
    assert len(second["nodes"]) == 20
    assert not second["whole"]


def late_messages(viewer: Viewer) -> bytes:
    """What it would be sent now."""
    return b"".join(viewer.waiting)


def test_a_viewer_that_does_not_take_its_messages_is_dropped_and_the_others_stay() -> None:
    c = cluster(nodes=1, gpus=1)
    feed = feed_of(c)
    slow, quick = feed.join(), feed.join()
    assert slow is not None
    assert quick is not None
    for i in range(MAX_BUFFERED + 1):
        c.submit(gang(f"g{i}", pods=1, gpus=1)).run()
        for _ in range(QUEUE_TICKS):
            feed.tick()
        quick.waiting.clear()
    assert slow.is_dropped
    assert not slow.waiting
    feed.tick()
    assert feed.n_viewers == 1
    assert not quick.is_dropped


def test_only_so_many_may_look_and_the_last_one_to_leave_takes_the_map_along() -> None:
    feed = feed_of(cluster(nodes=1, gpus=1))
    viewers = [feed.join() for _ in range(MAX_VIEWERS)]
    assert feed.join() is None
    for viewer in viewers:
        assert viewer is not None
        feed.leave(viewer)
    assert feed.n_viewers == 0
    assert not feed.has_map


def test_hostile_names_are_shown_without_control_characters() -> None:
    c = cluster(nodes=1, gpus=1)
    c.submit(gang("train", pods=1, gpus=1)).run()
    (group,) = c.groups()
    group.key = GroupKey("", "d", "\x1b[31m<img src=x onerror=alert(1)>\u202e\n")
    changes = Cells(c.scheduler).changes(10)
    assert changes.groups == {0: "d/\\x1b[31m<img src=x onerror=alert(1)>\\x202e\\x0a"}


def test_names_of_gangs_that_have_gone_are_forgotten_with_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codes, "MAX_NAMES", 2)
    c = cluster(nodes=4, gpus=1)
    cells = Cells(c.scheduler)
    for i in range(4):
        c.submit(gang(f"g{i}", pods=1, gpus=1)).run()
        cells.changes(1000)
    again = [cells.changes(1000) for _ in range(2)]
    assert any(changes.is_whole for changes in again)
    (whole,) = [changes for changes in again if changes.is_whole][:1]
    assert len(whole.nodes) == 4


def test_history_has_a_sample_every_so_often_and_forgets_the_oldest() -> None:
    c = cluster(nodes=2, gpus=4)
    c.submit(gang("train", pods=1, gpus=3)).run()
    c.submit(gang("large", pods=3, gpus=4)).run()
    attempts = iter(range(0, 10**6, 20))
    history = History(c.scheduler, n_attempts=lambda: next(attempts))
    assert history.take(0.0, 0.0) is None
    sample = history.take(PERIOD_S, 100.0)
    assert sample is not None
    assert (sample.n_waiting, sample.used, sample.split) == (1, 0.375, 0.2)
    assert sample.decisions == 20 / PERIOD_S
    for i in range(2, MAX_SAMPLES + 10):
        history.take(PERIOD_S * i, 0.0)
    assert len(history.samples) == MAX_SAMPLES


def test_a_session_ends_by_logout_by_age_and_by_too_many_others() -> None:
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    first, second = sessions.begin("one"), sessions.begin("two")
    assert (sessions.token(first), sessions.token(second), sessions.token("made-up")) == ("one", "two", "")
    sessions.end(second)
    assert sessions.token(second) == ""
    for _ in range(MAX_SESSIONS):
        last = sessions.begin("more")
    assert sessions.token(first) == ""
    now[0] = LIFETIME_S
    assert sessions.token(last) == ""


def test_looking_changes_nothing() -> None:
    c = cluster(nodes=2, gpus=2)
    c.submit(gang("train", pods=2, gpus=2)).submit(gang("waits", pods=1, gpus=1)).run()
    before = c.scheduler.statistics()
    feed = feed_of(c)
    feed.join()
    for _ in range(10):
        feed.tick()
    assert c.scheduler.statistics() == before
    c.scheduler.validate()

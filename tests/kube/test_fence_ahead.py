"""What the fence lists ahead: pods in line, whose binds then need no write of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangsched.kube.election.fence import Fence, FenceState
from gangsched.kube.election.fence_list import CLAIMS, Expected, expected_claim, expected_of
from gangsched.kube.election.steps import Update
from gangsched.model.objects import ObjectMeta, Pod
from gangsched.model.resource_claims.objects import ClaimMeta, ResourceClaim
from tests.kube.test_fence import Server, bind, listed, made, patch, released


def expected(*names: str, version: str = "7") -> list[Expected]:
    """A gang in line, its pods as the binds of this file know them."""
    metas = [ObjectMeta(name=n, namespace="ns", uid=f"uid-{n}", resource_version=version) for n in names]
    return [expected_of(Pod(metadata=meta), "ns/g") for meta in metas]


class Leader:
    """Owns the fence. `line`: its gangs in line; `settled`: pods whose binds cannot land any more."""

    def __init__(self, *gangs: Sequence[Expected], name: str = "me", **more: Any) -> None:
        self.server = Server()
        self.line = list(gangs)
        self.settled: set[str] = set()
        self.fence = made(
            self.server,
            name,
            on_its_way=lambda uid: uid not in self.settled and uid in self.sent,
            line=lambda: self.line,
            **more,
        )
        self.sent: set[str] = set()

    def place(self, *names: str) -> list[str]:
        """Decides about these; returns what may be sent at once."""
        self.line = [gang for gang in self.line if not any(one.object.name in names for one in gang)]
        for name in names:
            self.sent.add(f"uid-{name}")
            self.fence.submit(bind(name))
        return released(self.fence)

    def asks(self) -> Update[object]:
        step = self.fence.next()
        assert isinstance(step, Update)
        return step

    def lands(self, step: Update[object]) -> list[str]:
        """The write is done and answered; returns what may be sent then."""
        assert step.version == str(self.server.version)
        self.server.record, self.server.version = step.record, self.server.version + 1  # type: ignore[assignment]
        self.fence.written(str(self.server.version))
        return released(self.fence)

    def writes(self) -> list[str]:
        """One write, from end to end; returns what may be sent then."""
        return self.lands(self.asks())


def test_the_first_in_line_are_listed_before_they_are_placed() -> None:
    one = Leader(expected("a", "b"))
    assert one.fence.expect()
    assert not one.writes(), "nothing is decided yet"
    assert one.server.names() == ["a", "b"]
    assert one.place("a", "b") == ["a", "b"]
    assert one.fence.next() is None, "no write for them alone"
    assert one.fence.n_written == 2  # the epoch, and what was in line


def test_a_bind_that_is_decided_while_its_pod_is_being_listed_shares_that_write() -> None:
    one = Leader(expected("a", "b"))
    one.fence.expect()
    step = one.asks()
    assert not one.place("a"), "it is not listed yet"
    assert one.lands(step) == ["a"]
    assert not one.place("c")
    assert one.writes() == ["c"]
    assert one.server.names() == ["a", "c"]


def test_gangs_in_line_are_listed_with_the_write_that_others_wait_for() -> None:
    one = Leader(expected("a"), expected("b", "c"), expected("d"))
    assert not one.place("x")
    assert one.writes() == ["x"]
    assert one.server.names() == ["x", "a", "b", "c", "d"]
    assert one.place("a") == ["a"]
    assert one.place("b", "c") == ["b", "c"]
    assert one.fence.next() is None


def test_a_gang_that_stays_in_line_is_sent_while_a_further_write_is_on_its_way() -> None:
    one = Leader(expected("a"), expected("b"))
    one.place("x")
    one.writes()
    one.line.append(expected("c"))
    one.place("y")
    step = one.asks()
    assert one.place("a") == ["a"], "it is in the list that is stored, and in the one that may replace it"
    assert not one.place("c"), "it is in the second only"
    assert one.lands(step) == ["y", "c"]


def test_a_gang_that_leaves_the_line_leaves_the_list_with_the_next_write() -> None:
    one = Leader(expected("a"), expected("b"))
    one.place("x")
    one.writes()
    del one.line[0]
    one.settled.add("uid-x")
    assert one.fence.next() is None, "nothing is written for that alone"
    one.place("y")
    step = one.asks()
    assert not one.place("a"), "the write that is on its way takes it out, whatever becomes of that"
    assert one.lands(step) == ["y"]
    assert one.server.names() == ["y", "b"]
    assert one.writes() == ["a"]


def test_a_bind_of_another_version_than_was_listed_waits_for_a_write() -> None:
    one = Leader(expected("a", version="6"))
    one.fence.expect()
    one.writes()
    assert not one.place("a"), "a new leader may have bumped it since, which is what the watch has shown"
    assert one.writes() == ["a"]


def test_a_pod_that_changes_in_line_is_listed_again_and_counts_with_that_write() -> None:
    one = Leader(expected("a", version="6"))
    one.fence.expect()
    one.writes()
    one.line = [expected("a")]
    assert one.fence.expect()
    step = one.asks()
    assert not one.place("a")
    assert one.lands(step) == ["a"]


def test_what_was_listed_counts_once() -> None:
    one = Leader(expected("a"))
    one.fence.expect()
    one.writes()
    assert one.place("a") == ["a"]
    assert not one.place("a"), "its outcome was unknown: whether we still own the fence is asked"
    assert one.writes() == ["a"]


def test_a_lost_write_of_those_in_line_releases_nothing() -> None:
    one = Leader(expected("a"), expected("b"))
    one.place("x")
    one.writes()
    one.line.append(expected("c"))
    one.place("y")
    one.server.ask(one.fence, answered=False)
    assert not one.place("b", "c"), "whether the fence is still ours is asked first"
    one.server.settle(one.fence)
    assert released(one.fence) == ["y", "b", "c"]


def test_whole_gangs_are_listed_ahead_as_many_as_fit() -> None:
    size = listed("a0")["uid-a0"].n_bytes
    one = Leader(expected("a0", "a1"), expected("b0", "b1"), expected("c0"), max_bytes=4 * size)
    one.place("x0")
    assert one.writes() == ["x0"]
    assert one.server.names() == ["x0", "a0", "a1"]
    one.settled.add("uid-x0")
    assert not one.place("y0", "y1", "y2", "y3", "y4")
    assert one.writes() == ["y0", "y1", "y2", "y3"], "what waits comes before what is in line"
    one.settled |= {"uid-y0", "uid-y1", "uid-y2", "uid-y3"}
    assert one.writes() == ["y4"]
    assert one.server.names() == ["y4", "a0", "a1"]


def test_not_more_than_so_many_are_listed_ahead() -> None:
    one = Leader(expected("a0", "a1"), expected("b0", "b1"), expected("c0"), max_ahead=3)
    assert one.fence.expect()
    one.writes()
    assert one.server.names() == ["a0", "a1"]
    one.line = [expected("d0", "d1", "d2", "d3")]
    assert not one.fence.expect(), "it would not be listed"


def crowd(n: int, **more: Any) -> Leader:
    """A leader with so many pods in line, listed as far as may be."""
    one = Leader(*(expected(f"p{i}") for i in range(n)), **more)
    one.fence.expect()
    one.writes()
    return one


def test_when_most_of_those_listed_are_bound_the_next_are_listed_though_nothing_waits() -> None:
    one = crowd(1000, max_ahead=200)
    n_written = one.fence.n_written
    for i in range(1000):
        assert one.place(f"p{i}") == [f"p{i}"], "none waits for a write"
        one.settled.add(f"uid-p{i}")
        if one.fence.is_short_ahead:
            one.server.ask(one.fence)
    assert one.fence.n_written == n_written + 6, "each when 134 more are bound"


def test_nothing_is_written_for_gangs_in_line_that_are_not_bound() -> None:
    one = crowd(1000, max_ahead=200)
    del one.line[:200]
    assert not one.fence.is_short_ahead
    assert one.fence.next() is None


def test_nothing_is_written_when_nobody_new_is_in_line() -> None:
    one = crowd(200)
    for i in range(150):
        one.place(f"p{i}")
    assert one.fence.is_short_ahead
    assert one.fence.next() is None
    assert not one.fence.is_short_ahead, "it has looked"


def test_a_new_leader_inherits_those_in_line_and_the_old_one_sends_nothing_with_a_newer_version() -> None:
    one = Leader(expected("a"), expected("b"), name="old")
    one.place("x")
    one.writes()
    one.place("y")
    step = one.asks()
    new = Fence("new", is_on_its_way=lambda uid: True)
    one.server.settle(new)
    assert list(new.inherited or ()) == ["uid-x", "uid-a", "uid-b"], "it bumps them: no bind of 7 can land"
    assert one.place("a") == ["a"]
    one.line = [expected("b", version="8")]
    assert step.version != str(one.server.version), "refused"
    one.fence.unanswered()
    one.place("b")
    one.server.settle(one.fence)
    assert one.fence.state is FenceState.DEPOSED
    assert not released(one.fence)


def test_nothing_is_asked_for_while_something_is_to_be_written() -> None:
    one = Leader(expected("b"))
    one.place("a")
    assert not one.fence.expect(), "it shares that write"
    step = one.asks()
    assert not one.fence.expect()
    assert one.lands(step) == ["a"]
    assert not one.fence.expect(), "it is listed"
    one.line.insert(0, expected("c"))
    one.fence.close()
    assert not one.fence.expect()
    assert not one.place("b"), "nothing is sent any more"


def test_a_gang_that_is_not_foreseen_is_not_listed_and_others_behind_it_are() -> None:
    one = Leader([], expected("a"))
    assert not one.fence.expect(), "the first is not to be listed"
    one.place("x")
    one.writes()
    assert one.server.names() == ["x", "a"]


def test_a_gang_for_which_a_full_list_has_no_room_is_not_asked_for() -> None:
    size = listed("x0")["uid-x0"].n_bytes
    one = Leader(expected("a0", "a1"), max_bytes=3 * size)
    one.place("x0", "x1")
    one.writes()
    assert not one.fence.expect()
    one.settled.add("uid-x0")
    assert one.fence.expect()
    one.writes()
    assert one.server.names() == ["x1", "a0", "a1"]


def test_a_claim_that_is_listed_ahead_is_patched_without_a_write() -> None:
    meta = ClaimMeta(name="x", namespace="ns", uid="uid-x", resource_version="7")
    one = Leader([*expected("a"), expected_claim(ResourceClaim(meta), "ns/g")])
    assert one.fence.expect()
    one.writes()
    assert one.server.names() == ["a", "x"]
    one.line = []
    one.sent |= {"uid-a", "uid-x"}
    one.fence.submit(patch("x"))
    assert released(one.fence) == ["x"]
    one.fence.patched("uid-x", "8")
    one.fence.submit(patch("x", "8"))
    assert released(one.fence) == ["x"]
    assert one.place("a") == ["a"]
    assert one.fence.next() is None
    assert one.fence.n_written == 2  # the epoch, and what was in line
    record = one.server.record
    assert record is not None
    assert [other.kind for other in (record.listed or {}).values()] == ["pods", CLAIMS]


def test_a_claim_that_was_changed_since_it_was_listed_waits_for_a_write() -> None:
    meta = ClaimMeta(name="x", namespace="ns", uid="uid-x", resource_version="6")
    one = Leader([expected_claim(ResourceClaim(meta), "ns/g")])
    one.fence.expect()
    one.writes()
    one.sent.add("uid-x")
    one.fence.submit(patch("x"))
    assert not released(one.fence)
    assert one.writes() == ["x"]


def test_claims_count_in_the_size_of_the_list() -> None:
    size = listed("x0")["uid-x0"].n_bytes
    claims = [
        expected_claim(ResourceClaim(ClaimMeta(name=n, namespace="ns", uid=f"uid-{n}")), "ns/g")
        for n in ("c0", "c1")
    ]
    assert all(one.object.n_bytes == size + len("resourceclaims/") for one in claims)
    one = Leader([*expected("a0"), *claims], max_bytes=3 * size)
    assert not one.fence.expect()

"""The fence as a state machine: who owns it, what is listed when, and what may be sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gangsched.kube.election.fence import Fence, Fenced, FenceRecord, FenceState
from gangsched.kube.election.fence_list import CLAIMS, ListedObject, list_text, read_list
from gangsched.kube.election.steps import Create, Get, Update
from gangsched.model.effects import BindPod, PatchClaim


def bind(name: str, gang: str = "ns/g", cause: str = "c") -> BindPod:
    return BindPod(f"uid-{name}", "ns", name, "n1", {}, gang, 1, cause, resource_version="7")


def patch(name: str, version: str = "7", cause: str = "c") -> PatchClaim:
    return PatchClaim(f"uid-{name}", "ns", name, version, b"{}", True, "ns/g", 1, cause)


def listed(*names: str) -> dict[str, ListedObject]:
    return {f"uid-{name}": ListedObject(f"uid-{name}", "ns", name, "ns/g") for name in names}


class Server:
    """The one object, and its version."""

    def __init__(self) -> None:
        self.record: FenceRecord | None = None
        self.version = 0

    def ask(self, fence: Fence, *, answered: bool = True) -> object:
        """One request and its answer; without one it is done all the same."""
        step = fence.next()
        if isinstance(step, Get):
            if self.record is None:
                fence.absent()
            else:
                fence.found(self.record, str(self.version))
        elif step is not None:
            is_over = isinstance(step, Update) and step.version == str(self.version)
            if is_over or (isinstance(step, Create) and self.record is None):
                self.record, self.version = step.record, self.version + 1
                fence.written(str(self.version)) if answered else fence.unanswered()
            else:
                fence.unanswered()
        return step

    def settle(self, fence: Fence) -> None:
        while self.ask(fence) is not None:
            pass

    def names(self) -> list[str]:
        assert self.record is not None
        assert self.record.listed is not None
        return [pod.name for pod in self.record.listed.values()]


def made(
    server: Server, identity: str = "me", *, on_its_way: Callable[[str], bool] = lambda uid: True, **more: Any
) -> Fence:
    fence = Fence(identity, is_on_its_way=on_its_way, **more)
    server.settle(fence)
    assert fence.state is FenceState.TAKEN
    fence.bumped()
    return fence


def names(effects: list[Fenced] | tuple[Fenced, ...]) -> list[str]:
    return [one.name for one in effects if isinstance(one, BindPod | PatchClaim)]


def released(fence: Fence) -> list[str]:
    return names(list(fence.take_released()))


def test_a_bind_is_released_when_it_is_listed() -> None:
    server = Server()
    fence = made(server)
    fence.submit(bind("a"))
    assert not released(fence)
    server.ask(fence)
    assert server.names() == ["a"]
    assert released(fence) == ["a"]
    assert fence.next() is None


def test_what_comes_while_a_write_is_on_its_way_shares_the_next() -> None:
    server = Server()
    fence = made(server)
    fence.submit(bind("a"))
    step = fence.next()
    assert isinstance(step, Update)
    for name in "bcd":
        fence.submit(bind(name))
    server.record, server.version = step.record, server.version + 1
    fence.written(str(server.version))
    assert released(fence) == ["a"]
    server.ask(fence)
    assert server.names() == ["a", "b", "c", "d"]
    assert released(fence) == ["b", "c", "d"]
    assert fence.n_written == 3  # the epoch, and two batches


def test_what_is_settled_leaves_the_list_with_the_next_write() -> None:
    server, settled = Server(), set[str]()
    fence = made(server, on_its_way=lambda uid: uid not in settled)
    fence.submit(bind("a"))
    server.settle(fence)
    settled.add("uid-a")
    assert fence.next() is None, "nothing is written for that alone"
    fence.submit(bind("b"))
    server.settle(fence)
    assert server.names() == ["b"]


def test_a_new_leader_finds_the_list_as_it_was_and_the_old_one_is_deposed() -> None:
    server = Server()
    old = made(server, "old")
    old.submit(bind("a"))
    server.settle(old)
    new = Fence("new", is_on_its_way=lambda uid: True)
    server.settle(new)
    assert (new.state, new.epoch, new.inherited) == (FenceState.TAKEN, 2, listed("a"))
    assert server.names() == ["a"], "should this one die now, the next must find them, too"
    old.submit(bind("b"))
    server.settle(old)
    assert old.state is FenceState.DEPOSED
    assert released(old) == ["a"], "sent before"
    assert old.next() is None


def test_nothing_is_listed_before_what_was_inherited_is_bumped() -> None:
    server = Server()
    fence = Fence("me", is_on_its_way=lambda uid: True)
    server.settle(fence)
    fence.submit(bind("a"))
    assert fence.next() is None
    fence.bumped()
    server.settle(fence)
    assert released(fence) == ["a"]


def test_a_write_that_was_not_answered_is_read_back() -> None:
    server = Server()
    fence = made(server)
    fence.submit(bind("a"))
    server.ask(fence, answered=False)
    assert not released(fence)
    assert isinstance(server.ask(fence), Get)
    assert released(fence) == ["a"]
    assert fence.next() is None


def test_a_swap_that_was_not_answered_is_read_back() -> None:
    server = Server()
    fence = Fence("me", is_on_its_way=lambda uid: True)
    server.ask(fence)
    server.ask(fence, answered=False)
    server.settle(fence)
    assert (fence.state, fence.epoch, server.version) == (FenceState.TAKEN, 1, 1)


def test_a_write_that_is_late_does_not_count_before_it_has_landed() -> None:
    """Its pod is in the stored list from before; the write that is on its way takes it out of it."""
    server, settled = Server(), set[str]()
    fence = made(server, on_its_way=lambda uid: uid not in settled)
    fence.submit(bind("a"))
    server.settle(fence)
    assert released(fence) == ["a"]
    settled.add("uid-a")
    fence.submit(bind("b"))
    late = fence.next()
    assert isinstance(late, Update)
    assert "uid-a" not in (late.record.listed or {})
    fence.unanswered()
    fence.take_back(lambda one: True)
    settled.clear()
    fence.submit(bind("a"))
    assert isinstance(server.ask(fence), Get)
    assert not released(fence), "the list that is read has it, and the late write may still take it out"
    server.record, server.version = late.record, server.version + 1  # it lands
    server.settle(fence)
    assert released(fence) == ["a"]
    assert "a" in server.names()


def test_somebody_who_annotates_the_object_deposes_nobody() -> None:
    server = Server()
    fence = made(server)
    server.version += 1
    fence.submit(bind("a"))
    server.settle(fence)
    assert fence.state is FenceState.OWNED
    assert released(fence) == ["a"]


def test_who_finds_the_object_deleted_is_deposed() -> None:
    server = Server()
    fence = made(server)
    server.record, server.version = None, 0
    fence.submit(bind("a"))
    server.settle(fence)
    assert fence.state is FenceState.DEPOSED
    assert not released(fence)


def test_what_is_taken_back_is_not_released() -> None:
    server = Server()
    fence = made(server)
    fence.submit(bind("a", cause="one"))
    step = fence.next()
    assert isinstance(step, Update)
    fence.submit(bind("b", cause="two"))
    fence.submit(bind("c", cause="one"))
    taken = fence.take_back(lambda one: isinstance(one, BindPod) and one.cause_id == "one")
    assert names(taken) == ["a", "c"]
    assert fence.n_waiting == 1
    server.record, server.version = step.record, server.version + 1
    fence.written(str(server.version))
    server.settle(fence)
    assert released(fence) == ["b"]


def test_a_full_list_takes_others_when_some_are_settled_in_order() -> None:
    server, settled = Server(), set[str]()
    size = listed("a0")["uid-a0"].n_bytes
    fence = made(server, on_its_way=lambda uid: uid not in settled, max_bytes=3 * size)
    for i in range(5):
        fence.submit(bind(f"a{i}"))
    server.settle(fence)
    assert released(fence) == ["a0", "a1", "a2"]
    assert fence.n_waiting == 2
    settled.add("uid-a1")
    server.settle(fence)
    assert released(fence) == ["a3"]
    assert server.names() == ["a0", "a2", "a3"]


def test_a_pod_larger_than_the_list_is_not_kept_out_for_ever() -> None:
    server = Server()
    fence = made(server, max_bytes=10)
    fence.submit(bind("a"))
    server.settle(fence)
    assert released(fence) == ["a"]


def test_a_list_that_cannot_be_read_may_hold_anybody_and_is_rewritten() -> None:
    server = Server()
    server.record, server.version = FenceRecord(4, "old", None), 9
    fence = Fence("me", is_on_its_way=lambda uid: True)
    server.settle(fence)
    assert (fence.epoch, fence.inherited) == (5, None)
    fence.bumped()
    fence.submit(bind("a"))
    server.settle(fence)
    assert server.names() == ["a"]


def test_after_the_largest_epoch_comes_the_first() -> None:
    """Somebody has written it, and the API server takes no larger one."""
    server = Server()
    server.record, server.version = FenceRecord(2**31 - 1, "old"), 9
    fence = Fence("me", is_on_its_way=lambda uid: True)
    server.settle(fence)
    assert fence.state is FenceState.TAKEN
    assert (fence.epoch, server.record.epoch) == (1, 1)


def test_the_list_is_read_as_it_was_written() -> None:
    objects = listed("a", "b") | {"u": ListedObject("u", "other", "p", "other/x")}
    objects["v"] = ListedObject("v", "ns", "a", "ns/g", CLAIMS)
    text = list_text(objects.values())
    assert '"resourceclaims/v":"ns/a"' in text
    assert read_list(text) == objects
    assert read_list("{}") == {}


def test_what_a_newer_version_lists_stays_in_the_list() -> None:
    """As a version that knows only pods does with claims: a pod of such a UID is gone."""
    text = '{"ns/g":{"widgets/w":"ns/a"}}'
    found = read_list(text)
    assert found == {"widgets/w": ListedObject("widgets/w", "ns", "a", "ns/g")}
    assert list_text(found.values()) == text


@pytest.mark.parametrize("namespace", ["n", "n" * 63])
@pytest.mark.parametrize("kind", ["pods", CLAIMS])
def test_the_size_of_the_list_is_known_before_it_is_written(namespace: str, kind: str) -> None:
    ones = [
        ListedObject(f"uid-{i}", namespace, f"p{i}", f"{namespace}/g{gang}", kind)
        for gang in range(3)
        for i in range(gang, 10 * gang)
    ]
    assert len(list_text(ones)) <= sum(one.n_bytes for one in ones) + len("{}")


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"g":[]}', '{"g":{"u":"p"}}', '{"g":{"":"n/p"}}', '{"g":{"u":"/"}}', "[" * 100_000],
)
def test_a_list_that_somebody_has_spoiled_is_distinguished_from_an_empty_one(text: str) -> None:
    assert read_list(text) is None


def test_closing_leaves_only_what_may_still_land() -> None:
    server, unsettled = Server(), {"uid-a", "uid-b", "uid-c"}
    fence = made(server, on_its_way=unsettled.__contains__)
    for name in "abc":
        fence.submit(bind(name))
    server.settle(fence)
    unsettled -= {"uid-a", "uid-c"}
    fence.close()
    assert not fence.is_short
    server.settle(fence)
    assert (server.names(), fence.is_short) == (["b"], True)
    unsettled.clear()
    server.settle(fence)
    assert (server.names(), fence.is_short) == ([], True)


def test_who_ends_before_it_has_taken_the_fence_does_not_take_it_from_its_successor() -> None:
    """It was about to begin when it was stopped; its lease is released, and its task still runs."""
    server = Server()
    fence = Fence("me", is_on_its_way=lambda uid: True)
    assert server.ask(fence) == Get()
    fence.close()
    successor = made(server, "successor")
    server.settle(fence)
    successor.submit(bind("a"))
    server.settle(successor)
    assert released(successor) == ["a"]


@pytest.mark.parametrize("answered", [True, False])
def test_closing_during_a_write_releases_nothing_of_it(answered: bool) -> None:
    server, unsettled = Server(), {"uid-a"}
    fence = made(server, on_its_way=unsettled.__contains__)
    fence.submit(bind("a"))
    step = fence.next()
    assert isinstance(step, Update)
    fence.close()
    server.record, server.version = step.record, server.version + 1
    fence.written(str(server.version)) if answered else fence.unanswered()
    unsettled.clear()  # it was taken back
    server.settle(fence)
    assert (server.names(), released(fence)) == ([], [])


def test_closing_writes_nothing_where_nothing_is_settled_or_another_owns_the_fence() -> None:
    server = Server()
    fence = made(server)
    fence.submit(bind("a"))
    server.settle(fence)
    fence.close()
    assert fence.next() is None
    assert fence.is_short

    other = made(server, "other")
    assert list(other.inherited or ()) == []
    assert server.names() == ["a"]
    late = made(Server())
    late.submit(bind("b"))
    late.unanswered()
    late.found(FenceRecord(9, "other", listed("b")), "99")
    late.close()
    assert late.next() is None
    assert not late.is_short


# -- claims --------------------------------------------------------------------------------------------


def test_a_patch_of_a_claim_is_released_when_the_claim_is_listed() -> None:
    server = Server()
    fence = made(server)
    fence.submit(patch("x"))
    fence.submit(bind("a"))
    assert not released(fence)
    server.ask(fence)
    assert released(fence) == ["x", "a"]
    assert server.record is not None
    assert server.record.listed == listed("a") | {"uid-x": ListedObject("uid-x", "ns", "x", "ns/g", CLAIMS)}


def test_the_version_that_our_own_patch_made_needs_no_write() -> None:
    """Finalizer, then allocation: who takes over between the two bumps the claim, as it is listed."""
    server = Server()
    fence = made(server)
    fence.submit(patch("x"))
    server.settle(fence)
    assert released(fence) == ["x"]
    fence.patched("uid-x", "8")
    fence.submit(patch("x", "8"))
    assert released(fence) == ["x"]
    assert fence.next() is None
    fence.submit(patch("x", "8"))
    assert not released(fence), "once each: its outcome was unknown, and the version may be another's"


def test_a_version_that_was_read_needs_a_write() -> None:
    """A new leader may have bumped the claim before it was read."""
    server = Server()
    old = made(server, "old")
    old.submit(patch("x"))
    server.settle(old)
    assert released(old) == ["x"]
    old.patched("uid-x", "8")
    new = Fence("new", is_on_its_way=lambda uid: True)
    server.settle(new)
    assert list(new.inherited or ()) == ["uid-x"]
    old.submit(patch("x", "9"))
    server.settle(old)
    assert not released(old)
    assert old.state is FenceState.DEPOSED


def test_the_version_that_our_own_patch_made_does_not_count_once_the_claim_was_not_listed() -> None:
    server, settled = Server(), set[str]()
    fence = made(server, on_its_way=lambda uid: uid not in settled)
    fence.submit(patch("x"))
    server.settle(fence)
    assert released(fence) == ["x"]
    fence.patched("uid-x", "8")
    settled.add("uid-x")
    fence.submit(bind("a"))
    server.settle(fence)
    assert server.names() == ["a"]
    assert released(fence) == ["a"]
    settled.clear()
    fence.patched("uid-y", "8")
    for name in "xy":
        fence.submit(patch(name, "8"))
    assert not released(fence)
    server.settle(fence)
    assert released(fence) == ["x", "y"]


def test_closing_sends_no_patch_though_its_version_is_our_own() -> None:
    server = Server()
    fence = made(server)
    fence.submit(patch("x"))
    server.settle(fence)
    fence.take_released()
    fence.patched("uid-x", "8")
    fence.close()
    fence.submit(patch("x", "8"))
    server.settle(fence)
    assert not released(fence)

"""The judges devices-as-bound and known-devices: what a bind may be given, by what the process has
received."""

from __future__ import annotations

import json

from msgspec.structs import replace

from gangsched.lab.sim.judges.places.binds import bind_is_sound
from gangsched.lab.sim.objects import GPU, make_node, make_pod
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model import events as ev


def bind(name: str, *ids: str) -> ef.BindPod:
    own = {"gangsched.io/allocated-devices": json.dumps({"main": {GPU: ids}})} if ids else {}
    uid = f"uid-d-{name}"
    return ef.BindPod(uid, "d", name, "n", own, f"pod:d/{name}", 1, "c")


READ = ef.GetPod("uid-d-first", "d", "first", "c")


def test_a_read_that_the_scheduler_did_not_request_changes_nothing() -> None:
    """The scheduler ignores it; a judge that took it would judge by what the scheduler does not know."""
    received, pods = Received(), [make_pod("first", gpus=2)]
    pods = [replace(pods[0], metadata=replace(pods[0].metadata, resource_version="1"))]
    received.apply([ev.NodeAdded(make_node("n", gpus=8)), *map(ev.PodAdded, pods)])
    received.promise(bind("first", "GPU-n-0", "GPU-n-1"))
    received.apply([ev.PodRead("uid-d-first", pods[0])])
    assert [claim.uid for claim in received.claims_on("n")] == ["uid-d-first"], "its bind may still land"
    received.note_sent(READ, None)
    received.apply([ev.PodRead("uid-d-first", pods[0])])
    assert not list(received.claims_on("n"))


def test_a_bind_to_be_sent_again_without_ids_hides_which_pod_has_which_device() -> None:
    """Its answer was lost, and a read has not found it bound: it may go first, as it was."""
    received, pods = Received(), [make_pod(name, gpus=2) for name in ("first", "next")]
    pods = [replace(pod, metadata=replace(pod.metadata, resource_version="1")) for pod in pods]
    received.apply([ev.NodeAdded(make_node("n", gpus=8)), *map(ev.PodAdded, pods)])
    assert list(bind_is_sound(bind("next"), received)), "all who hold something are known"
    received.promise(bind("first"))
    assert not list(bind_is_sound(bind("next"), received))
    received.note_sent(READ, None)
    received.apply([ev.PodRead("uid-d-first", pods[0])])
    assert not list(bind_is_sound(bind("next"), received))
    assert not list(bind_is_sound(bind("next", "GPU-n-0", "GPU-n-1"), received)), "or it is not sent again"
    received.apply([ev.BindFailed("uid-d-first", 1, 422, "", "")])
    [found] = bind_is_sound(bind("next"), received)
    assert found.startswith("devices-as-bound: ")


def test_a_pod_that_is_bumped_may_still_get_what_its_node_lists_no_longer() -> None:
    """Its repeated bind was withdrawn, and the one whose answer was lost may land until the bump is done."""
    received, pods = Received(), [make_pod(name, gpus=2) for name in ("first", "next")]
    pods = [replace(pod, metadata=replace(pod.metadata, resource_version="1")) for pod in pods]
    received.apply([ev.NodeAdded(make_node("n", gpus=8)), *map(ev.PodAdded, pods)])
    for _ in range(2):
        received.note_sent(sent := bind("first", "gone-0", "gone-1"), sent)
        received.note_sent(READ, None)
        received.apply([ev.PodRead("uid-d-first", pods[0])])
    received.note_sent(sent, sent)
    received.apply([ev.BindCancelled("uid-d-first", 1)])
    assert list(bind_is_sound(bind("next"), received)), "its answers are all there is"
    received.note_sent(ef.BumpPod("uid-d-first", "d", "first", "c"), None)
    assert not list(bind_is_sound(bind("next"), received))
    received.apply([ev.PodBumped("uid-d-first", pods[0])])
    [found] = bind_is_sound(bind("next"), received)
    assert found.startswith("devices-as-bound: ")

"""What is written about claims: no device twice, nothing bound unreserved, nothing left behind."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.device_audit.claimed_devices import ClaimedDevices
from gangsched.core.groups.members.membership import Membership
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.state.claim_uses import ClaimUses
from gangsched.core.turns import invariants
from gangsched.core.turns.event_handlers import ClusterObjects
from gangsched.core.types.cluster_events import Change, ClusterChange
from gangsched.lab.sim.objects import make_pod
from gangsched.model import effects as ef
from gangsched.model.events import ClaimPatched
from gangsched.model.objects import Condition
from gangsched.model.resource_claims.objects import CLAIMS
from tests.core.claims import DRIVER, ClaimCluster, wish, with_claims
from tests.core.test_resource_claims import crashed, gang, theirs
from tests.public_faults.faults import shows
from tests.public_faults.scenes import given, no_answer, stored, without_claims
from tests.sim.test_museum_claims import (
    bound_before_reserved,
    bound_without_a_look,
    nothing_is_swept,
    what_is_promised_is_free,
)


def in_flight_until_answered(patch: pytest.MonkeyPatch) -> None:
    """An answered write counts no longer as in flight, and not yet as allocated until the watch shows it."""
    patched = ClaimWrites.patched

    def forgets(writes: ClaimWrites, event: ClaimPatched) -> None:
        patched(writes, event)
        writes._shared.cache.claims.release(event.uid)

    patch.setattr(ClaimWrites, "patched", forgets)


@shows("I1", what_is_promised_is_free, in_flight_until_answered)
def test_many_pods_at_once_get_a_device_each() -> None:
    """One device was in two claims when many pods were scheduled fast.

    github.com/kubernetes/kubernetes/pull/136269
    """
    c = ClaimCluster().offer("n", gpus_each=8)
    pods = [c.want(f"p-{i}", wish()) for i in range(8)]
    c.shows_claims = False
    c.submit(pods[:4]).run().submit(pods[4:]).run()
    assert sorted(given(c)) == [f"n/gpu-{i}" for i in range(8)]
    c.show_all().settled()
    assert c.placed("p")
    assert len(given(c)) == 8


@shows("I13", bound_without_a_look)
def test_of_two_schedulers_that_give_out_one_device_the_later_takes_it_back() -> None:
    """Two schedulers gave out devices of one pool.

    github.com/kubernetes/kubernetes/issues/128980
    """
    c = ClaimCluster().offer("n", gpus_each=2)
    pods = gang(c, "g", 2, wish())
    c.shows_claims = False
    c.submit(pods).run()
    c.shows_claims = True
    c.make_claim("theirs", wish(), **theirs("gpu-0"))
    c.show_all().run()
    assert c.untouched("g")
    assert [c.devices(f"g-{i}-gpu") for i in range(2)] == [[], []], "all of the gang's are given back"
    assert any("is in claim d/theirs too" in one.message for one in c.all(ef.WritePodCondition))


@shows("I19", bound_before_reserved)
def test_no_pod_is_bound_before_every_claim_of_its_gang_is_reserved() -> None:
    """A pod was bound without reservation, and kubelet refused it.

    github.com/volcano-sh/volcano/issues/5119
    """
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    assert c.reserved("g-0-gpu") == ["g-0"]
    assert c.untouched("g")
    no_answer(c)
    c.settled()
    assert c.placed("g")
    assert [c.reserved(f"g-{i}-gpu") for i in range(2)] == [["g-0"], ["g-1"]]


def nothing_is_taken_back(patch: pytest.MonkeyPatch) -> None:
    """A reservation that ends leaves what was written for it."""
    unwant = ClaimUses.unwant

    def leaves(uses: ClaimUses, pod: str) -> None:
        uids = list(uses.of_pod.get(pod, ()))
        unwant(uses, pod)
        for uid in uids:
            uses.records[uid].leaves.clear()

    patch.setattr(ClaimUses, "unwant", leaves)


@shows("I20", nothing_is_taken_back)
def test_claims_of_a_gang_that_is_deleted_before_it_starts_are_given_back() -> None:
    """A gang's claims stayed: deleted, allocated, reserved.

    github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/725
    """
    c = ClaimCluster().offer("n")
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "g-1-gpu" else "ok"
    c.submit(gang(c, "g", 2, wish())).run()
    assert c.devices("g-0-gpu")
    c.delete("g-0", "g-1")
    for i in range(2):  # the garbage collector deletes them; the finalizer keeps them
        raw = stored(c, f"g-{i}-gpu")
        raw["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        c.write(raw)
    no_answer(c)
    c.settled()
    assert [c.devices(f"g-{i}-gpu") + c.reserved(f"g-{i}-gpu") for i in range(2)] == [[], []]


@shows("I20", nothing_is_swept)
def test_claims_that_a_process_left_allocated_for_a_gang_that_never_starts_are_given_back() -> None:
    """A gang's claims stayed: allocated, and reserved.

    github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/725
    """
    c = ClaimCluster().offer("n", gpus_each=4)
    c.submit(gang(c, "g", 2, wish(2)))
    crashed(c)
    c.delete("g-1").restart().run().wait(c.settings.settle_s + 1.0)
    assert c.devices("g-0-gpu") + c.reserved("g-0-gpu") == []


def claims_that_come_wake_nobody(patch: pytest.MonkeyPatch) -> None:
    """A claim that was not there is looked for again when its pod is tried the next time."""
    follow = Membership._follow_claims

    def sleeps(membership: Membership, claims: ClaimBook) -> None:
        claims.stale.clear()
        follow(membership, claims)

    patch.setattr(Membership, "_follow_claims", sleeps)
    patch.setattr(invariants, "_templates", lambda cache: ())  # which would find it before the scenario does


@shows("I11", claims_that_come_wake_nobody)
def test_a_gang_starts_at_once_when_its_claims_come_late() -> None:
    """Its template was created after the pod, and up to 1,000 s went by until there was a claim.

    How soon it is made is up to its controller; from then on the gang waits for nothing, and before that it
    says what it waits for.
    github.com/kubernetes/kubernetes/issues/135835
    """
    c = ClaimCluster().offer("n")
    pods = [with_claims(make_pod(f"g-{i}", gpus=0, group="g", min_members=2), own=("gpu",)) for i in range(2)]
    c.submit([without_claims(one) for one in pods]).run().wait(900.0)
    assert "ResourceClaim not created yet" in c.said("g-0")
    for pod in pods:
        c.make_claim(f"{pod.metadata.name}-gpu", wish(), owner=pod)
        c.update(c.pod(pod.metadata.name), status=pod.status)
    c.run()
    assert c.placed("g")


def each_claim_is_news_for_all(patch: pytest.MonkeyPatch) -> None:
    """Whatever is written about a claim may cure anybody."""
    changed = ClusterObjects._object_changed

    def announces(handlers: ClusterObjects, kind: str) -> None:
        changed(handlers, kind)
        if kind == CLAIMS:
            handlers._shared.changes.append(ClusterChange(Change.OBJECT, kind=kind))

    patch.setattr(ClusterObjects, "_object_changed", announces)


@shows("I12", each_claim_is_news_for_all)
def test_what_drivers_report_about_claims_has_no_waiting_pod_tried_again() -> None:
    """Each event of a claim had all unschedulable pods walked: 9% of the CPU at 10,000 nodes.

    github.com/kubernetes/enhancements/issues/5983
    """
    c = ClaimCluster().offer("n", gpus_each=2)
    c.submit(c.want("runs", wish())).run()
    c.submit(*(c.want(f"waits-{i}", wish(2)) for i in range(20))).settled()
    assert c.n_bound() == 1
    before = c.count("attempts")
    for i in range(10):
        raw = stored(c, "runs-gpu")
        raw["status"]["devices"] = [
            {"driver": "gpu.example.com", "pool": "n", "device": "gpu-0", "data": {"n": i}}
        ]
        c.write(raw)
        c.make_claim(f"other-{i}", wish())
        c.wait(1.0)
    assert c.count("attempts") == before
    c.delete("runs").lose("runs-gpu").settled()
    assert c.n_bound() == 1, "one of those that wait, once devices are free"
    assert c.bound()[0].startswith("waits-")


def nobody_looks_at_bound_pods(patch: pytest.MonkeyPatch) -> None:
    """What becomes of a pod on its node is kubelet's affair."""
    patch.setattr(ClaimedDevices, "pod_bound", lambda devices, info: None)


@shows("I15", nobody_looks_at_bound_pods)
def test_a_pod_whose_driver_is_gone_is_named() -> None:
    """The driver was gone and its slice stayed: pods were bound to what cannot be prepared.

    github.com/kubernetes/kubernetes/issues/141912
    """
    c = ClaimCluster().offer("n")
    c.submit(c.want("stuck", wish(2)), c.want("runs", wish()), c.want("pulls", wish())).run()
    c.start("runs")
    sandbox = Condition("PodReadyToStartContainers", "True")
    pulls = c.pod("pulls")
    conditions = [*(pulls.status.conditions or ()), sandbox]
    c.update(pulls, status=replace(pulls.status, conditions=conditions))
    c.wait(100.0)
    assert not c.told("DevicesNotPrepared"), "kubelet takes its time"
    c.wait(100.0)
    events = [one for one in c.all(ef.RecordEvent) if one.reason == "DevicesNotPrepared"]
    assert [one.name for one in events] == ["stuck"]
    first = f"{DRIVER}/{c.devices('stuck-gpu')[0]}"
    assert f"({first} and 1 more) have not been prepared on node n for 120 s" in events[0].message
    c.wait(600.0)
    assert len(c.told("DevicesNotPrepared")) == 2, "it is told again"
    c.restart().wait(130.0)
    assert len(c.told("DevicesNotPrepared")) == 3, "the next leader finds it"
    c.start("stuck").wait(1_000.0)
    assert len(c.told("DevicesNotPrepared")) == 3


def gone_is_ended(patch: pytest.MonkeyPatch) -> None:
    """A pod that the API server has forgotten uses no devices."""
    patch.setattr(ClaimedDevices, "pod_gone", lambda devices, pod: None)


@shows("I14", gone_is_ended)
def test_devices_of_a_pod_that_was_deleted_by_force_are_not_given_out_at_once() -> None:
    """Its device was given out while the node still used it.

    github.com/kubernetes/kubernetes/issues/141471
    """
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit(c.want("forced", wish())).run().start("forced")
    c.submit(c.want("next", wish())).run()
    c.delete("forced").lose("forced-gpu").wait(10.0)
    assert c.are_bound("next") == [False], "its containers may still run"
    c.wait(40.0)
    assert c.are_bound("next") == [True]
    c.start("next").submit(c.want("last", wish())).run()
    c.phase("next", "Succeeded").delete("next").lose("next-gpu").wait(5.0)
    assert c.are_bound("last") == [True], "kubelet has told that it ended"

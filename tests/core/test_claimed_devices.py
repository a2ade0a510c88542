"""When devices of a pod that is gone stay taken, beside tests/public_faults: only after a forced deletion."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.making import usual_config
from gangsched.lab.sim.objects import make_pod
from gangsched.model.events import LeadershipGained
from gangsched.plugins import build_profiles
from tests.core.claims import ClaimCluster, wish, with_claims
from tests.core.test_resource_claims import theirs


def test_devices_of_another_schedulers_pod_that_ended_are_free_at_once() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    stranger = with_claims(make_pod("x", uid="uid-x", gpus=0, scheduler="default-scheduler"), own=("gpu",))
    c.make_claim("x-gpu", wish(), owner=stranger, **theirs("gpu-0"))
    c.submit(replace(stranger, spec=replace(stranger.spec, node_name="n"))).start("x")
    c.submit(c.want("p", wish())).run()
    assert c.are_bound("p") == [False]
    c.phase("x", "Succeeded").lose("x-gpu").run()
    assert c.are_bound("p") == [True]


def test_a_claim_that_others_use_too_is_not_kept_beside_itself() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.make_claim("shared", wish())
    pods = [with_claims(make_pod(name, gpus=0), shared={"gpu": "shared"}) for name in ("a", "b", "c")]
    c.submit(*pods[:2]).run().start("a", "b").delete("a")
    c.submit(pods[2]).run()
    assert c.are_bound("b", "c") == [True, True]
    c.delete("b", "c").lose("shared").submit(c.want("p", wish())).wait(31.0)
    assert c.are_bound("p") == [True]


def test_a_pod_that_kubelet_has_not_admitted_uses_nothing() -> None:
    c = ClaimCluster().offer("n", gpus_each=1)
    c.submit(c.want("p", wish())).run().delete("p").lose("p-gpu")
    c.submit(c.want("q", wish())).run()
    assert c.are_bound("q") == [True]


def following() -> ClaimCluster:
    """A replica that does not lead, and sees a pod start with the only device and be deleted by force."""
    c = ClaimCluster(make=make_follower).offer("n", gpus_each=1)
    forced = with_claims(make_pod("x", uid="uid-x", gpus=0), own=("gpu",))
    c.make_claim("x-gpu", wish(), owner=forced, **theirs("gpu-0"))
    c.submit(replace(forced, spec=replace(forced.spec, node_name="n"))).start("x")
    return c.delete("x").lose("x-gpu")


def make_follower(settings: Settings) -> Scheduler:
    return Scheduler(build_profiles(usual_config()), settings, leading=False)


def test_a_replica_that_has_seen_a_forced_deletion_keeps_the_devices_when_it_leads() -> None:
    c = following().wait(10.0)
    c.tell(LeadershipGained()).submit(c.want("p", wish())).run()
    assert c.are_bound("p") == [False]
    c.wait(21.0)
    assert c.are_bound("p") == [True]


def test_a_replica_that_follows_for_long_keeps_nothing_for_longer() -> None:
    c = following()
    c.now_s += 86_400.0
    c.submit(make_pod("y", gpus=0)).delete("y")
    assert not c.scheduler.claimed_devices.held_s
    c.tell(LeadershipGained()).submit(c.want("p", wish())).run()
    assert c.are_bound("p") == [True]

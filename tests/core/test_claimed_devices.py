"""When devices of a pod that is gone stay taken, beside tests/public_faults: only after a forced deletion."""

from __future__ import annotations

from msgspec.structs import replace

from gangsched.lab.sim.objects import make_pod
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

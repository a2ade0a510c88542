"""Claims that a killed scheduler has left allocated for a gang which cannot be bound there any more: the next
one gives them back, since nobody else would, and the gang starts elsewhere or later."""

from __future__ import annotations

import pytest

from tests.real.claimed import DRIVER, ClaimCluster, devices_of, wish
from tests.real.cluster import MERGE
from tests.real.picture import node_of
from tests.real.process import binding_gate
from tests.real.test_resource_claims_kill import ELECTION

pytestmark = pytest.mark.real

N = 2
SETTLE_S = 3
LONG_S = 60
"""In which a gang that is bound in part can be completed, whatever else the machine does."""


def left_allocated(cluster: ClaimCluster, *, n_binds: int = 0) -> None:
    """A gang on node n0, whose claims are all allocated when its scheduler is killed; so many are bound."""
    c = cluster
    c.offer(1)
    c.device_class()
    c.template("one", wish())
    through = binding_gate(c.plane, c.directory, lambda _, n_passed: n_passed < n_binds)
    with through as (gate, kubeconfig):
        scheduler = c.schedule(kubeconfig=kubeconfig, settleSeconds=LONG_S)
        c.claiming("a", pods=N)
        c.picture.until(lambda: gate.held and c.n_bound("a") == n_binds, "the next Binding is held")
        scheduler.kill()
    assert [pool for _, pool, _ in c.devices_of("a")] == ["n0"] * N


def cordon(cluster: ClaimCluster, *, is_on: bool = True) -> None:
    patch = {"spec": {"unschedulable": is_on}}
    cluster.plane.request("PATCH", "/api/v1/nodes/n0", patch, content_type=MERGE)


def test_a_gang_goes_to_another_node(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    left_allocated(c)
    cordon(c)
    c.offer(1, first=1)
    c.schedule(settleSeconds=SETTLE_S)
    c.whole("a")
    assert {node_of(pod) for pod in c.members("a")} == {"n1"}


def test_a_gang_that_fits_nowhere_holds_nothing(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    left_allocated(c)
    cordon(c)
    c.schedule(settleSeconds=SETTLE_S)
    c.freed("a")
    assert not c.n_bound("a")
    cordon(c, is_on=False)
    c.whole("a")


def test_a_gang_whose_node_is_gone_holds_nothing(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    left_allocated(c)
    c.plane.request("DELETE", "/api/v1/nodes/n0")
    c.schedule(settleSeconds=SETTLE_S)
    c.freed("a")
    c.offer(1, first=1)
    c.whole("a")


def test_a_gang_that_has_lost_a_member_holds_nothing(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    left_allocated(c)
    c.delete("a-1")
    c.schedule(settleSeconds=SETTLE_S)
    c.freed("a")
    c.claiming("a", pods=N, members=[1])
    c.whole("a")


def test_a_gang_that_is_bound_in_part_is_completed_elsewhere(claim_cluster: ClaimCluster) -> None:
    """The bound pod's claim stays as it is, the other's goes to the other node."""
    c = claim_cluster
    left_allocated(c, n_binds=1)
    [bound] = [pod for pod in c.members("a") if node_of(pod)]
    before = [devices_of(claim) for claim in c.claims_of(bound)]
    cordon(c)
    c.offer(1, first=1)
    c.schedule(settleSeconds=LONG_S)
    c.whole("a")
    assert {node_of(pod) for pod in c.members("a")} == {"n0", "n1"}
    assert [devices_of(claim) for claim in c.claims_of(bound)] == before


def test_a_gang_that_is_bound_in_part_and_fits_nowhere_is_given_back(claim_cluster: ClaimCluster) -> None:
    c = claim_cluster
    left_allocated(c, n_binds=1)
    cordon(c)
    c.schedule(settleSeconds=SETTLE_S)
    c.picture.until(lambda: not c.n_bound("a"), "the bound pod is evicted")
    c.freed("a")


def test_claims_that_cannot_be_patched_keep_nobody_from_leading(claim_cluster: ClaimCluster) -> None:
    """Their parameters are stored with blanks, as this client writes them: the API server refuses the
    finalizer, and a new leader's bump as a patch of the claim."""
    c = claim_cluster
    c.offer(1)
    c.device_class()
    opaque = {"driver": DRIVER, "parameters": {"kind": "GpuConfig"}}
    c.template("blanks", wish(config=[{"opaque": opaque}]))
    c.template("one", wish())
    first = c.schedule(election=ELECTION)
    c.claiming("a", pods=N, own="blanks")
    c.held("a", says="field is immutable (422)")
    first.kill()
    second = c.schedule(election=ELECTION)
    c.eventually(lambda: " leading " in second.said, "the next one leads")
    assert "n_listed=4" in second.said, "both pods and both claims were to be written"
    c.claiming("b", pods=N)
    c.whole("b")
    assert not c.devices_of("a")

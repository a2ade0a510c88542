"""Mistakes with resource claims in the bug museum: each is made once, and a judge finds it.

Most show in a storm within a few seeds. A write that lands after its process has died, or has given it up,
is too rare for that: it has a story, of one node whose devices pod `a` is about to be given.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from gangsched.core.binding import claim_writes
from gangsched.core.binding.claim_writes import ClaimWrites
from gangsched.core.binding.made_claims import MadeClaims
from gangsched.core.resource_claims.book import ClaimBook
from gangsched.core.resource_claims.requests import PreparedClaim
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.claim_uses import ClaimRecord, ClaimWrite
from gangsched.kube.election.fence_list import CLAIMS as LISTED_CLAIMS
from gangsched.lab.sim.objects import make_pod
from gangsched.lab.sim.runs.claim_run import ClaimSimulation
from gangsched.lab.sim.runs.driver import Broken
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.workloads.arrivals import Arrival, Workload
from gangsched.lab.sim.workloads.resource_claims import group_claims_workload, make_claim_node
from gangsched.lab.sim.world.fence import SimFence
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Pod, PodResourceClaim
from gangsched.model.resource_claims.objects import SLICES, ResourceClaim
from tests.support.breaking import assert_caught

Break = Callable[[pytest.MonkeyPatch], None]
MAX_SEEDS = 30
DRA = STORMS["dra"]


def what_is_promised_is_free(patch: pytest.MonkeyPatch) -> None:
    """In flight and allocated are kept apart: another claim gets the device too."""
    patch.setattr(ClaimBook, "promise", lambda book, uid, one: book.promised.__setitem__(uid, one))


def a_promise_stays(patch: pytest.MonkeyPatch) -> None:
    """A plan that is given up keeps its devices."""
    patch.setattr(ClaimBook, "release", lambda book, uid: book.promised.pop(uid, None))


def bound_without_a_look(patch: pytest.MonkeyPatch) -> None:
    """What the watch shows of others' claims is not looked at before the first bind."""
    patch.setattr(ClaimWrites, "_looked", lambda writes, record: "")


def bound_before_reserved(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the writes of claims."""
    patch.setattr(ClaimWrites, "are_ready", lambda writes, members: True)


def forgotten_before_shown(patch: pytest.MonkeyPatch) -> None:
    """What was taken back is taken for reserved, as long as the watch shows it so."""

    def ends(writes: ClaimWrites, record: ClaimRecord) -> None:
        if not record.held:
            writes._shared.claim_uses.end(record)

    patch.setattr(ClaimWrites, "_end_if_shown", ends)


def all_entries_are_removed(patch: pytest.MonkeyPatch) -> None:
    """A claim is deallocated whoever else has an entry."""

    def removes(writes: ClaimWrites, record: ClaimRecord, claim: ResourceClaim, gone: object) -> None:
        nothing = {"status": {"reservedFor": None, "allocation": None}}
        writes._send(record, claim, ClaimWrite.REMOVE, nothing)

    patch.setattr(ClaimWrites, "_remove", removes)


def no_finalizer(patch: pytest.MonkeyPatch) -> None:
    """Claims are allocated without the one that keeps them."""
    patch.setattr(claim_writes, "FINALIZER", "sim/none")


def nothing_is_swept(patch: pytest.MonkeyPatch) -> None:
    """What a process that has ended left allocated stays so."""
    patch.setattr(ClaimWrites, "_may_give_back", lambda writes, claim, gone=(): False)


def constraints_are_not_read(patch: pytest.MonkeyPatch) -> None:
    """Devices need not share what they are to share."""
    prepare = PreparedClaim.__init__

    def without(one: PreparedClaim, *args: object) -> None:
        prepare(one, *args)  # type: ignore[arg-type]
        one.constraints = ()

    patch.setattr(PreparedClaim, "__init__", without)


def bound_before_stated(patch: pytest.MonkeyPatch) -> None:
    """Nobody waits until a pod's status states the claim for its extended resources."""
    patch.setattr(MadeClaims, "is_stated", lambda made, record: True)


def attempts_leave_claims(patch: pytest.MonkeyPatch) -> None:
    """Claims that were made for attempts which came to nothing stay."""
    patch.setattr(ClaimWrites, "_is_of_no_use", lambda writes, claim: False)


EXHIBITS: dict[str, tuple[Break, str]] = {
    "what is promised is free": (what_is_promised_is_free, "device-in-one-claim: "),
    "bound without a look": (bound_without_a_look, "claims-before-binds: "),
    "bound before reserved": (bound_before_reserved, "claims-before-binds: "),
    "forgotten before shown": (forgotten_before_shown, "claims-before-binds: "),
    "all entries are removed": (all_entries_are_removed, "entries-of-others: "),
    "no finalizer": (no_finalizer, "claims-kept: "),
    "nothing is swept": (nothing_is_swept, "claims-given-back: "),
    "constraints are not read": (constraints_are_not_read, "claims-as-asked: "),
    "bound before stated": (bound_before_stated, "room: "),
    "attempts leave claims": (attempts_leave_claims, "claims-given-back: "),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    mistake, begins = EXHIBITS[exhibit]
    assert_caught(exhibit, mistake, "dra", begins, n_seeds=MAX_SEEDS)


def test_an_entry_of_a_pod_group_that_runs_is_not_taken_off() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClaimWrites, "_stays", lambda writes, entry, claim: False)
        broken = case(replace(DRA, workload=group_claims_workload), 24).failure()
    assert broken is not None
    assert "entries-of-others: " in str(broken)


# -- late writes ---------------------------------------------------------------------------------------------

_SHARED = "two.a"


def using(pod: Pod, entry: PodResourceClaim) -> Pod:
    return replace(pod, spec=replace(pod.spec, resource_claims=[entry]))


class Story:
    """One node of two devices, both of which the claim of pod `a` is on its way to get."""

    def __init__(self) -> None:
        self.held: list[ef.PatchClaim] = []
        first = using(make_pod("a", gpus=0), PodResourceClaim("it", resource_claim_name=_SHARED))
        workload = Workload((make_claim_node("n0"),), (Arrival(1.0, (first,)),))
        self.sim = _simulation(_seed(), workload)
        server = self.sim.api.claims
        self._send = server._send
        server._send = self._hold  # type: ignore[method-assign]
        self.sim.run_for(3.0)
        assert len(self.held) == 1

    def _hold(self, patch: ef.PatchClaim | ef.MakeClaim | ef.DropClaim | ef.NoteClaim) -> None:
        if isinstance(patch, ef.PatchClaim) and patch.is_status and patch.name == _SHARED:
            self.held.append(patch)
        else:
            self._send(patch)

    def another_comes(self) -> None:
        """Pod `b`, which is more important, gets what is free."""
        own = PodResourceClaim("it", resource_claim_template_name="two")
        self.sim.api.create_pod(using(make_pod("b", gpus=0, priority=100), own))

    def arrives(self) -> list[str]:
        """What the judges say once the patch that was on its way has arrived."""
        self.sim.run_for(5.0)
        assert self.sim.api.pods["d", "b"].spec.node_name
        self.sim.api.claims.commit(self.held[0])
        return list(self.sim.claims.rules.check({}, None))


def _simulation(seed: int, workload: Workload) -> ClaimSimulation:
    return ClaimSimulation(seed, workload, settings=DRA.settings, make=DRA.make)


def _seed() -> int:
    """One whose node has two devices."""
    for seed in range(1, 100, 3):
        workload = Workload((make_claim_node("n0"),), ())
        slices = _simulation(seed, workload).api.objects[SLICES].values()
        if sum(len(one.spec.devices) for one in slices if one.metadata.name == "gpu.sim-n0") == 2:
            return seed
    raise AssertionError("no seed has such a node")


def after_a_crash() -> list[str]:
    """Its process dies, after the fence was written once more; the next one has the devices for another."""
    story = Story()
    story.sim.api.create_pod(make_pod("c", gpus=1))
    story.sim.run_for(1.0)
    story.another_comes()
    story.sim.crash()
    return story.arrives()


def after_it_is_given_up() -> list[str]:
    """Its answer is lost, and its pod is deleted; the process has the devices for another."""
    return _given_up().arrives()


def _given_up() -> Story:
    story = Story()
    [patch] = story.held
    story.sim.api.delete_pod(story.sim.api.pods["d", "a"])
    story.sim.run_for(1.0)
    story.sim.deliver(ev.ClaimUnclear(patch.uid, patch.ticket, "timed out"))
    story.sim.api.claims._n_sent -= 1
    story.another_comes()
    return story


def test_devices_that_a_promise_keeps_for_ever_are_found_by_a_fresh_process() -> None:
    story = _given_up()
    story.sim.settle()
    assert story.sim.api.pods["d", "b"].spec.node_name
    with pytest.MonkeyPatch.context() as patch:
        a_promise_stays(patch)
        with pytest.raises(Broken, match="claims-found: "):
            _given_up().sim.settle()


def no_bump_of_claims(patch: pytest.MonkeyPatch) -> None:
    """A new leader bumps pods only."""
    bump = SimFence._bump_inherited

    def pods_only(fence: SimFence) -> None:
        listed = fence.fence.inherited or {}
        fence.fence.inherited = {uid: one for uid, one in listed.items() if one.kind != LISTED_CLAIMS}
        bump(fence)

    patch.setattr(SimFence, "_bump_inherited", pods_only)


def claims_are_not_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """The next list leaves out a claim whose write is not settled."""
    is_on_its_way = Scheduler.is_on_its_way

    def pods_only(scheduler: Scheduler, uid: str) -> bool:
        return uid in scheduler.shared.cache.pods and is_on_its_way(scheduler, uid)

    patch.setattr(Scheduler, "is_on_its_way", pods_only)


def given_up_without_a_bump(patch: pytest.MonkeyPatch) -> None:
    """A write without an answer counts as not done."""

    def over(writes: ClaimWrites, event: ev.ClaimUnclear) -> None:
        record = writes._expected(event.uid, event.ticket)
        if record is not None:
            record.write = ClaimWrite.NONE
            writes._shared.claim_uses.dirty[record.uid] = None
            writes.advance()

    patch.setattr(ClaimWrites, "unclear", over)


@pytest.mark.parametrize(
    ("story", "broken"),
    [
        (after_a_crash, no_bump_of_claims),
        (after_a_crash, claims_are_not_on_their_way),
        (after_it_is_given_up, given_up_without_a_bump),
    ],
)
def test_a_late_write_gives_a_device_twice(story: Callable[[], list[str]], broken: Break) -> None:
    assert not story()
    with pytest.MonkeyPatch.context() as patch:
        broken(patch)
        assert any(one.startswith("device-in-one-claim: ") for one in story())

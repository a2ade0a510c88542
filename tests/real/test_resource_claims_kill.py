"""kill -9 of the leader between any two writes of a gang with resource claims; the next leader ends what it
left: the gang is bound whole within 30 s, or not at all and without an allocation.

A proxy lets so many writes through and holds the later ones: at the time of the kill exactly these have
been answered. What was held is lost, or is let go when the next leader leads: then nothing of it may land.
Where the gang is contested, a more important one that wants the same devices has come meanwhile: one of them
is bound.

A gang of two is killed at each of its writes; a gang of eight at every third, others for each commit: each
takes some seconds. GANGSCHED_KILL_STEP=1 takes them all.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from gangsched.lab.sim.command import first_of_commit
from tests.proxy import Lie, Proxy, Rule, http_answer
from tests.real.claimed import EXTENDED, ClaimCluster, wipe_claims, wish
from tests.real.cluster import MERGE
from tests.real.picture import Json
from tests.real.process import Scheduler, service_account
from tests.real.test_preemption import CLASSES, priority_class
from tests.support.threads import in_a_thread

pytestmark = pytest.mark.real

LEASE = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases/gangsched"
ELECTION: Json = {
    "leaderElect": True,
    "resourceNamespace": "gangsched-system",
    "leaseDuration": "6s",
    "renewDeadline": "4s",
    "retryPeriod": "500ms",
}
SETTLED_S = 30.0
LANDED_S = 0.5
"""So long after it was let go everything has been answered."""
MOST = 80
"""Writes of a gang of eight, with room."""
KILLS = [
    pytest.param(2, False, id="2-lost"),
    pytest.param(2, True, id="2-late"),
    pytest.param(8, True, id="8-late", marks=pytest.mark.long),
]
"""Pods of the gang, and whether what the killed leader has sent lands late."""
STEP = int(os.environ.get("GANGSCHED_KILL_STEP", "3"))
TAKEN_BACK = range(4, 13)
"""Writes with which the claims of two pods are allocated, taken back, and allocated again."""
_STATUS = re.compile(r"PATCH /apis/resource\.k8s\.io/v1/namespaces/default/resourceclaims/([^/]+)/status$")
_WRITE = re.compile(
    r"PATCH /apis/resource\.k8s\.io/v1/namespaces/default/resourceclaims/"
    r"|POST /apis/resource\.k8s\.io/v1/namespaces/default/resourceclaims"
    r"|POST /api/v1/namespaces/default/pods/[^/]+/binding"
    r"|PUT /apis/coordination\.k8s\.io/v1/namespaces/[^/]+/leases/gangsched-fence"
)


class Gate:
    """The proxy before the API server that one leader goes through: how many of its writes of claims, pods
    and the fence pass."""

    def __init__(self, cluster: ClaimCluster, number: int) -> None:
        directory: Path = cluster.directory / f"gate-{number}"
        directory.mkdir()
        self.n_left = sys.maxsize
        self.refuses = ""
        """The API server allows no status of claims whose names begin so."""
        self.passed: list[str] = []
        self.held: list[str] = []
        self.refused: list[str] = []
        self._until = asyncio.Event()
        proxy, certificate = Proxy.before(cluster.plane, directory)
        proxy.rule(Rule(self._holds, times=sys.maxsize, until=self._until))
        proxy.lie = self._refusal
        self._links = proxy.links
        self._running = ExitStack()
        self._loop = self._running.enter_context(in_a_thread(proxy))
        self.kubeconfig = service_account(
            cluster.plane, directory / "account.yaml", server=proxy.url, ca_file=certificate
        )

    def _holds(self, request: str) -> bool:
        if _WRITE.match(request) is None:
            return False
        if len(self.passed) < self.n_left:
            self.passed.append(request)
            return False
        self.held.append(request)
        return True

    def _refusal(self, request: str) -> Lie | None:
        match = _STATUS.match(request)
        if match is None or not self.refuses or not match[1].startswith(self.refuses):
            return None
        self.refused.append(request)
        about = {"name": match[1], "group": "resource.k8s.io", "kind": "resourceclaims"}
        said = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "not today"}
        body = json.dumps({**said, "code": 403, "reason": "Forbidden", "details": about}).encode()
        return Lie(http_answer("403 Forbidden", body))

    def let(self, n: int, *, refuses: str = "") -> None:
        """From now on so many writes pass; one that is refused counts as well."""
        self.passed.clear()
        self.refused.clear()
        self.n_left, self.refuses = n, refuses

    def is_answered(self) -> bool:
        """Whether the API server has answered each write that has passed: with a conflict, it may be."""

        async def asked() -> bool:  # by the proxy's thread, so in none of its steps
            writes = [one for one in self._links if _WRITE.match(one.request)]
            return all(one.is_answered.is_set() or one.client.is_closing() for one in writes)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop).result()

    def let_go(self) -> None:
        """All that was held arrives."""
        self._loop.call_soon_threadsafe(self._until.set)

    def close(self) -> None:
        self._running.close()


class Rounds:
    """A leader and a follower, each behind a gate, and one kill after the other."""

    def __init__(self, cluster: ClaimCluster) -> None:
        self.cluster = cluster
        self._replicas: list[tuple[Scheduler, Gate]] = []
        self._n_made = 0
        self.n_late = 0
        """Writes that were let go when another led."""
        self.n_taken_back = 0
        """Gangs whose claims were taken back, and allocated again."""
        self.settle_s = 4
        self.asks = cluster.claiming
        """Makes a gang of that name, of so many pods."""
        self.n_won = 0
        """Gangs that were bound, of those that were contested."""

    def run(self, n: int, n_pods: int, *, late: bool, contested: bool = False, refused: bool = False) -> bool:
        """One gang, whose leader is killed when `n` writes have been answered; whether there were more.

        refused: its first leader may not write the last pod's claim, and takes back the others, time and
        again.
        """
        (leader, gate), (follower, _) = self._two()
        gang, picture = f"g{n}", self.cluster.picture
        gate.let(n, refuses=f"{gang}-{n_pods - 1}-own-" if refused else "")
        self.asks(gang, pods=n_pods)

        def is_there() -> bool:
            return bool(gate.held) or self.cluster.n_bound(gang) == n_pods

        picture.until(is_there, f"{n} writes have passed, the next is held")
        self.cluster.eventually(gate.is_answered, "what has passed has been answered")
        if contested:
            self.cluster.claiming(f"h{n}", pods=n_pods, priorityClassName="high")
            self.cluster.resolved(f"h{n}")
        leader.kill()
        more = bool(gate.held)
        self.n_late += len(gate.held) * late
        self.n_taken_back += len(gate.refused) > 1
        # As if the lease had run out.
        self.cluster.plane.request("PATCH", LEASE, {"spec": {"holderIdentity": ""}}, content_type=MERGE)
        self.cluster.eventually(lambda: " leading " in follower.said, "the follower leads")
        gangs = [gang, f"h{n}"][: 1 + contested]
        if contested and late:
            picture.until(lambda: self._is_whole(gangs, n_pods), "one of them is bound", timeout_s=SETTLED_S)
        if late:
            gate.let_go()
            time.sleep(LANDED_S)  # it is refused: there is nothing to be seen of that
        picture.until(lambda: self._is_whole(gangs, n_pods), f"{gang} is settled", timeout_s=SETTLED_S)
        for other in gangs:
            if not self.cluster.n_bound(other):
                self.cluster.freed(other)
        self.cluster.check_claims()
        self.n_won += self.cluster.n_bound(gang) > 0
        self._clear(gangs)
        leader.never_broke()
        self.cluster.schedulers.remove(leader)
        self._replicas.pop(0)
        gate.close()
        return more

    def run_all(self, n_pods: int, *, late: bool, contested: bool = False) -> int:
        """Gangs whose leader is killed after more and more writes; returns after how many none is left."""
        step = STEP if n_pods > 2 else 1
        first = first_of_commit() % step
        print(f"killed after {first}, {first + step}, ... writes")
        return next(
            n for n in range(first, MOST, step) if not self.run(n, n_pods, late=late, contested=contested)
        )

    def _is_whole(self, gangs: Sequence[str], n_pods: int) -> bool:
        """Whether one of the gangs is bound, and none in part."""
        bound = [self.cluster.n_bound(gang) for gang in gangs]
        return n_pods in bound and sum(bound) == n_pods

    def _two(self) -> list[tuple[Scheduler, Gate]]:
        while len(self._replicas) < 2:
            self._n_made += 1
            gate = Gate(self.cluster, self._n_made)
            scheduler = self.cluster.schedule(
                kubeconfig=gate.kubeconfig, election=ELECTION, settleSeconds=self.settle_s
            )
            self._replicas.append((scheduler, gate))
            self.cluster.eventually(lambda: "synced, " in scheduler.said, "a replica follows")  # noqa: B023
        leader = self._replicas[0][0]
        self.cluster.eventually(lambda: " leading " in leader.said, "the first one leads")
        return self._replicas

    def _clear(self, gangs: Sequence[str]) -> None:
        """Their pods, and then their claims: no garbage collector runs here."""
        self.cluster.delete(*gangs)
        for gang in gangs:
            del self.cluster.gangs[gang]
        self.cluster.eventually(self._are_wiped, "the claims are gone")
        self.cluster.picture.taken()
        self.cluster.claims.taken()

    def _are_wiped(self) -> bool:
        """Whether no claim is left. One may come after the others are gone: the controller makes it for a pod
        of which it does not know yet that it is gone."""
        wipe_claims(self.cluster.plane)
        return not self.cluster.claims.pods

    def close(self) -> None:
        for scheduler, gate in self._replicas:
            gate.let_go()
            scheduler.stop_cleanly()
            gate.close()


@pytest.fixture
def rounds(claim_cluster: ClaimCluster) -> Iterator[Rounds]:
    c = claim_cluster
    priority_class(c.plane, "high")
    try:
        c.device_class()
        c.template("one", wish())
        yield Rounds(c)
    finally:
        c.plane.request("DELETE", f"{CLASSES}/high")


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("n_pods", "late"), KILLS)
def test_a_leader_is_killed_between_any_two_writes(rounds: Rounds, n_pods: int, *, late: bool) -> None:
    rounds.cluster.offer(2, devices=4)
    n = rounds.run_all(n_pods, late=late)
    rounds.close()
    assert n >= 3 * n_pods, "a finalizer, an allocation and a Binding for each pod, and the fence"
    assert rounds.n_late > 0 or not late


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("n_pods", "late"), KILLS)
def test_a_leader_is_killed_while_it_makes_claims_of_its_own(
    rounds: Rounds, n_pods: int, *, late: bool
) -> None:
    """They are for extended resources that a class serves. The next leader gives back what was allocated for
    pods that are not bound, and makes claims of its own, which takes it longer than to go on with others."""
    rounds.settle_s = 15
    rounds.cluster.device_class("serving", extendedResourceName=EXTENDED)
    rounds.cluster.offer(2, devices=4)
    rounds.asks = rounds.cluster.asking
    n = rounds.run_all(n_pods, late=late)
    rounds.close()
    assert n >= 3 * n_pods, "a claim, its allocation and a Binding for each pod, and the fence"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("n_pods", "late"), KILLS)
def test_devices_that_a_more_important_gang_wants_are_in_one_claim(
    rounds: Rounds, n_pods: int, *, late: bool
) -> None:
    rounds.cluster.offer(2, devices=n_pods // 2)
    n = rounds.run_all(n_pods, late=late, contested=True)
    rounds.close()
    assert 0 < rounds.n_won < n, "the gang keeps what it has been given, or the other one has it"


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    "late", [pytest.param(False, marks=pytest.mark.long, id="lost"), pytest.param(True, id="late")]
)
def test_a_leader_is_killed_while_it_takes_claims_back(rounds: Rounds, *, late: bool) -> None:
    rounds.cluster.offer(1, devices=2)
    for n in TAKEN_BACK:
        rounds.run(n, 2, late=late, refused=True)
    rounds.close()
    assert rounds.n_taken_back > 2

"""In storms what others have borrowed of a guarantee is given back, and when the checker reports that it is
not."""

from __future__ import annotations

from gangsched.lab.sim.judges.queueing.given_back import GivenBack
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.reading.received import Received
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.lab.sim.runs.storms import STORMS, case
from gangsched.lab.sim.workloads.queues.guaranteed import QUEUE_KEY
from gangsched.model import events as ev
from gangsched.model.objects import Pod
from tests.support.scenario import on_node

LENDING = STORMS["lending"]


def test_borrowers_give_back_what_is_guaranteed_to_others() -> None:
    n_evicted = 0
    for seed in range(53_000, 53_003):
        sim = case(LENDING, seed).run()
        assert isinstance(sim, Simulation)
        n_evicted += sum(b"EvictPod" in one for one in sim.history)
    assert n_evicted, "nobody was evicted"


def test_a_group_within_the_guarantee_does_not_wait_for_borrowers() -> None:
    assert late(running(8, "c"), asking(2, "b")) == ["d/g"]


def test_a_group_beyond_the_guarantee_waits() -> None:
    assert not late(running(8, "c"), asking(3, "b"))


def test_what_others_are_guaranteed_is_not_given_back() -> None:
    assert not late([*running(4, "a"), *running(2, "b"), *running(2, "c")], asking(3, "b"))
    assert not late([*running(4, "a"), *running(4, "b")], asking(1, "a"))


def test_what_a_queue_has_lent_to_one_with_a_guarantee_of_its_own_is_given_back() -> None:
    assert late([*running(6, "b"), *running(2, "a")], asking(2, "a")) == ["d/g"]


def test_a_borrower_that_would_go_below_its_guarantee_as_a_whole_stays() -> None:
    whole = running(6, "b", gang="lent")
    assert not late([*whole, *running(2, "a")], asking(2, "a"))


def test_the_time_restarts_when_the_guarantee_is_used_otherwise() -> None:
    received, judge = received_from([*running(8, "c"), *asking(2, "b")]), GivenBack()
    assert not list(judge.too_late(received, 1.0))
    received.apply([ev.PodAdded(on_node(make_pod("first", gpus=1, annotations={QUEUE_KEY: "b"})))])
    assert not list(judge.too_late(received, 20.0)), "three are not within the guarantee any more"
    received.apply([ev.PodDeleted(received.pods["uid-d-first"])])
    assert not list(judge.too_late(received, 30.0)), "it could have its room since now"
    assert list(judge.too_late(received, 60.0))


def late(there: list[Pod], waiting: list[Pod]) -> list[str]:
    """The groups that have waited too long, after a minute."""
    received, judge = received_from([*there, *waiting]), GivenBack()
    assert not list(judge.too_late(received, 1.0))
    return [problem.split()[1] for problem in judge.too_late(received, 61.0)]


def received_from(pods: list[Pod]) -> Received:
    """One node of eight devices, and these pods."""
    received = Received()
    received.apply([ev.NodeAdded(make_node("n0", gpus=8, listed=False)), *map(ev.PodAdded, pods)])
    return received


def running(n: int, queue: str, *, gang: str = "") -> list[Pod]:
    own = {QUEUE_KEY: queue}
    names = (f"{queue}-{k}" for k in range(n))
    some = (make_pod(one, group=gang, min_members=n if gang else 0, annotations=own) for one in names)
    return [on_node(pod) for pod in some]


def asking(n: int, queue: str) -> list[Pod]:
    own = {QUEUE_KEY: queue}
    return [make_pod(f"g-{k}", group="g", min_members=n, annotations=own) for k in range(n)]

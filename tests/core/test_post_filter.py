"""PostFilter: only where nothing fits, in order, the first that makes room wins; and failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import Code, DryRun, PostFilterResult, Status
from gangsched.core.framework.plan import FitError, Plan
from gangsched.core.framework.profile import Demand
from gangsched.lab.sim.objects import make_pod
from tests.core.plugins import with_plugins
from tests.core.test_points import Noting
from tests.support.scenario import Cluster, gang

Says = Callable[[Sequence[Demand], Trial, FitError, DryRun], PostFilterResult | Status]
FULL = 4


class Maker:
    """A PostFilter that answers as told, and notes for whom it was asked."""

    def __init__(self, name: str, says: Says) -> None:
        self.name = name
        self.says = says
        self.asked: list[str] = []

    def post_filter(
        self, unit: Sequence[Demand], trial: Trial, error: FitError, dry_run: DryRun
    ) -> PostFilterResult | Status:
        self.asked.append(error.message)
        return self.says(unit, trial, error, dry_run)


def no(why: str) -> Says:
    return lambda *_: Status.unschedulable(why)


def takes_node_0(
    unit: Sequence[Demand], trial: Trial, error: FitError, dry_run: DryRun
) -> PostFilterResult | Status:
    """Whoever is on the first node goes, whatever his priority."""
    victims = tuple(trial.pods_on(0))
    without = trial.fork()
    without.remove(*victims)
    plan = dry_run.place(without)
    return PostFilterResult(plan, victims) if isinstance(plan, Plan) else Status.unschedulable("of no use")


def full(*plugins: Maker) -> Cluster:
    """Four nodes, each with a pod that fills it."""
    c = with_plugins(*plugins)
    return c.submit([make_pod(f"old-{k}", gpus=8) for k in range(FULL)]).run().clear()


def test_it_is_not_asked_where_a_node_is_left() -> None:
    maker = Maker("A", no("never"))
    c = with_plugins(maker).submit(gang("g", pods=4, gpus=8)).run()
    assert c.placed("g")
    assert not maker.asked


def test_reasons_are_added_to_that_of_the_filters_in_the_order_of_the_plugins() -> None:
    first, second = Maker("A", no("A knows no way.")), Maker("B", no("Nor does B."))
    c = full(first, second).submit(make_pod("new", gpus=8)).run()
    assert len(first.asked) == len(second.asked) == 1
    assert first.asked[0].startswith("0/4 nodes are available")
    assert c.said("new").endswith("A knows no way. Nor does B.")
    assert not c.evicted()


def test_the_first_that_makes_room_wins_and_the_unit_waits_for_it() -> None:
    first, second, third = Maker("A", no("no")), Maker("B", takes_node_0), Maker("C", no("no"))
    c = full(first, second, third)
    c.evictions = "slow"
    c.submit(make_pod("new", gpus=8)).run()
    assert len(first.asked) == len(second.asked) == 1
    assert not third.asked
    [victim] = c.evicted()
    assert c.pod(victim).spec.node_name == "n0"
    assert c.state("new") == "waiting"
    c.delete(victim).run()
    assert c.pod("new").spec.node_name == "n0"


def test_what_it_tries_is_the_whole_gang() -> None:
    c = full(Maker("A", takes_node_0)).submit(gang("g", pods=2, gpus=8)).run()
    assert "of no use" in c.said("g-0")
    assert not c.evicted()


def test_a_refusal_that_no_eviction_helps_does_not_ask_it() -> None:
    maker = Maker("A", takes_node_0)
    final = Noting("B", pre_filter=lambda *_: Status(Code.UNRESOLVABLE, "never here"))
    c = with_plugins(maker, final).submit(make_pod("new", gpus=8)).run()
    assert "never here" in c.said("new")
    assert not maker.asked


def test_one_that_fails_is_named_and_costs_this_attempt_alone() -> None:
    def fails(*_: object) -> Status:
        raise ZeroDivisionError("division by zero")

    maker = Maker("A", fails)
    c = full(maker).submit(make_pod("new", gpus=8)).run()
    assert "A" in c.said("new")
    assert "division by zero" in c.said("new")
    maker.says = no("not today")
    c.delete("old-0").run().wait(20).run()
    assert c.pod("new").spec.node_name


def test_one_that_answers_nonsense_is_named() -> None:
    maker = Maker("A", lambda *_: "perhaps")  # type: ignore[arg-type]
    c = full(maker).submit(make_pod("new", gpus=8)).run()
    assert "A" in c.said("new")
    assert not c.evicted()

"""Gangs with claims that something else than room keeps out: plugins, their set. No room is kept for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import SUCCESS, BoolArray, CycleState, Status
from gangsched.core.kept import claim_plans
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_node
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from gangsched.model.pod_group import MAX_START_TOGETHER
from gangsched.model.walltime import WALLTIME_KEY
from tests.core.plugins import Permitter, Reserver, with_plugins
from tests.core.test_kept_now import on
from tests.core.test_start_together import chain, listing, tell_all
from tests.support.scenario import Cluster, cluster, gang, lone, with_annotations


class Admitting:
    """An Admit that fails on the gang while it `fails`, or refuses it."""

    name = "Own"
    fails = refuses = False

    def admit(self, group: Group, members: Sequence[PodInfo], view: QueueView) -> Status:
        if self.fails and group.key.name == "large":
            raise ValueError("broken")
        is_out = self.refuses and group.key.name == "large"
        return Status.unschedulable("over its limit") if is_out else SUCCESS


class Filtering:
    """A Filter that fails on the gang while it `fails`."""

    name = "Own"
    fails = False

    def sign(self, pod: Pod) -> bool:
        return pod.metadata.name.startswith("large")

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        if self.fails and template.pod.metadata.name.startswith("large"):
            raise ValueError("broken")
        return SUCCESS

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray | None:
        return None

    def reasons(self, *asked: Any) -> Mapping[str, int]:
        return {}


def bounded(*plugins: Any, bound: int | None = 1, nodes: int = 2) -> Cluster:
    settings = Settings(queueing=QueueingSettings(bound, mode="hard"))
    c = with_plugins(*plugins, nodes=0, settings=settings)
    for i in range(nodes):
        c.node(make_node(f"n{i}", gpus=8, rack=f"n{i}"))
    return c


def at_bound(c: Cluster) -> Cluster:
    """A gang of both nodes was passed once: one node is free, on the other a pod ends after 600 s."""
    c.submit(lone("holds", 8, "600s")).run()
    c.submit(gang("large", pods=2, gpus=8)).run()
    return c.submit(lone("before", 8, "10s")).run().delete("before").run()


def claimed(c: Cluster) -> Cluster:
    at_bound(c).submit(lone("passes", 8, "2h")).run()
    assert c.claim("large").start_s == 601.0
    assert not c.pod("passes").spec.node_name
    return c


def blamed(c: Cluster) -> list[tuple[str, str]]:
    return [(one.point, one.cause_id.split("#")[0]) for one in c.all(ef.BlamePlugin)]


def refusing(group: Group) -> Status:
    return Status.unschedulable("not today") if group.key.name == "large" else SUCCESS


KEEPING_OUT: Mapping[str, Callable[[], Any]] = {
    "Reserve": lambda: Reserver("Own", [], says=refusing),
    "Permit": lambda: Permitter("Own", refusing),
}


@pytest.mark.parametrize("point", KEEPING_OUT)
def test_a_gang_that_fits_and_is_refused_by_a_plugin_is_not_tried_in_a_circle(point: str) -> None:
    """What it held in its turn, and gave back, is no reason to try it again at once."""
    c = claimed(bounded(KEEPING_OUT[point]())).wait(500.0)
    c.delete("holds").run()
    before = c.scheduler.statistics()["attempts"]
    assert "room is kept for it on 2 nodes. not today" in c.said("large-0")
    c.wait(100.0)
    assert c.scheduler.statistics()["attempts"] - before <= 3
    assert c.claim("large").start_s == 601.0
    assert not c.pod("passes").spec.node_name, "the plugin may still say yes in time"


@pytest.mark.parametrize("point", KEEPING_OUT)
def test_the_claim_of_a_gang_that_a_plugin_refuses_ends_when_it_is_late(point: str) -> None:
    c = claimed(bounded(KEEPING_OUT[point]())).wait(600.0)
    c.delete("holds").run().wait(60.0)
    assert c.claims().all == []
    assert c.pod("passes").spec.node_name
    c.submit(lone("next", 8, "2h")).run()
    assert c.pod("next").spec.node_name, "it is no lack of room that keeps the gang waiting"


@pytest.mark.parametrize("plugin", [Admitting, Filtering])
def test_the_claim_of_a_gang_that_a_plugin_fails_on_ends_when_it_is_late(plugin: type[Any]) -> None:
    own = plugin()
    c = claimed(bounded(own))
    own.fails = True
    c.wait(600.0).delete("holds").run()
    assert "room is kept for it on 2 nodes. plugin Own failed in" in c.said("large-0")
    assert not c.pod("passes").spec.node_name
    c.wait(60.0)
    assert c.claims().all == []
    assert c.pod("passes").spec.node_name
    own.fails = False
    c.delete("passes").run().wait(15.0)
    assert c.placed("large", on=2)


@pytest.mark.parametrize("plugin", [Admitting, Filtering])
def test_a_gang_at_its_bound_on_which_a_plugin_fails_keeps_nobody_waiting(plugin: type[Any]) -> None:
    own = plugin()
    c = at_bound(bounded(own))
    own.fails = True
    for name in ("first", "second"):
        c.submit(lone(name, 8, "100s")).run()
        assert ("PreFilter" if plugin is Filtering else "Admit", "d/large") in blamed(c)
        c.wait(5.0)
        assert c.pod(name).spec.node_name, c.said(name)
        own.fails = name == "first"
        c.delete(name).run()
    assert {about for _, about in blamed(c)} == {"d/large"}
    c.wait(60.0)
    assert "1 of 2 fit" in c.said("large-0")
    c.submit(lone("third", 8, "2h")).run()
    assert c.claim("large").is_promise
    assert not c.pod("third").spec.node_name


def test_the_claim_of_a_gang_whose_set_has_become_too_large_ends_when_it_is_late() -> None:
    c = bounded().submit(lone("holds", 8, "600s")).run()
    c.submit(listing("large", ["g0"], pods=2, gpus=8)).run()
    c.submit(lone("before", 8, "10s")).run().delete("before").run().submit(lone("passes", 8, "2h")).run()
    assert c.claim("large").start_s == 601.0
    others = chain(MAX_START_TOGETHER)
    tell_all(c, [listing("g0", ["large", "g1"]), *others[1:]]).run()
    c.wait(600.0).delete("holds").run()
    assert "starts together with more than 63 other groups" in c.said("large-0")
    assert not c.pod("passes").spec.node_name
    c.wait(60.0)
    assert c.claims().all == []
    assert c.pod("passes").spec.node_name


def test_a_plugin_that_fails_on_a_gang_with_a_claim_refuses_nobody_else() -> None:
    """The claim could be moved off the node that is asked for, if the plugin did not fail on its gang."""
    own = Filtering()
    c = bounded(own, bound=None, nodes=4)
    for node, walltime in (("n0", "600s"), ("n1", "600s"), ("n3", "20h")):
        c.submit(on(lone(f"holds-{node}", 8, walltime), node)).run()
    c.submit(with_annotations(gang("large", pods=3, gpus=8), {WALLTIME_KEY: "1h"})).run()
    c.submit(lone("asks", 8, "2h")).run()
    assert sorted(c.claim("large").nodes) == ["n0", "n1", "n2"]
    c.delete("asks", "holds-n3").run()
    c.submit(on(lone("fills", 8, "300s"), "n3")).run()
    own.fails = True
    c.submit(on(lone("asks-again", 8, "2h"), "n2")).run()
    assert "are kept for d/large" in c.said("asks-again")
    assert "failed" not in c.said("asks-again")
    assert {about for _, about in blamed(c)} == {"d/large"}


def first_in_line(c: Cluster) -> Cluster:
    """The bound is far away, and the start of the first in line could be promised."""
    return c.submit(lone("holds", 8, "600s")).run().submit(gang("large", pods=2, gpus=8)).run()


def is_passed(c: Cluster) -> bool:
    """It has no claim, and another has started although it would keep the first in line waiting."""
    c.submit(lone("passes", 8, "2h")).run()
    return bool(c.pod("passes").spec.node_name) and not c.claims().by_key


def test_the_first_in_line_that_a_plugin_fails_on_is_passed_until_its_bound() -> None:
    own = Admitting()
    c = first_in_line(bounded(own, bound=None))
    own.fails = True
    assert is_passed(c)
    assert ("Admit", "d/large") in blamed(c)


def test_the_first_in_line_that_is_not_admitted_any_more_is_passed_until_its_bound() -> None:
    own = Admitting()
    c = first_in_line(bounded(own, bound=None))
    own.refuses = True
    assert is_passed(c)
    c.wait(5.0)
    assert "over its limit" in c.said("large-0"), "it is tried again, and told so"


def test_where_no_more_claims_may_be_made_the_first_in_line_is_passed_until_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_plans, "MAX_CLAIMS", 0)
    c = first_in_line(bounded(bound=None)).submit(lone("passes", 8, "2h")).run()
    assert c.pod("passes").spec.node_name
    assert not c.claims().by_key


def test_in_mode_budget_the_first_in_line_is_passed_until_what_it_would_keep_idle_is_earned() -> None:
    own = Settings(queueing=QueueingSettings(mode="budget", idle_share=0.01))
    c = first_in_line(cluster(nodes=2, settings=own)).submit(lone("passes", 8, "2h")).run()
    assert c.pod("passes").spec.node_name
    assert not c.claims().by_key
    c = first_in_line(cluster(nodes=2, settings=own).wait(200_000.0)).submit(lone("passes", 8, "2h")).run()
    assert not c.pod("passes").spec.node_name
    assert c.claim("large").is_promise

"""QueueSort that sees usage: lanes by tenant, keyed again only where what they have read has changed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.cache.queues.namespace_usage import QueueView
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.core.state.line.lanes import Lanes
from gangsched.core.state.line.queue_order import LAST
from gangsched.core.types.group import Group
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import make_node
from gangsched.model.effects import BindPod
from gangsched.model.objects import Node, Pod
from gangsched.model.stated.load import LOAD_KEY
from tests.support.inside import Inside
from tests.support.scenario import Cluster, gang

GPU = "nvidia.com/gpu"


class ByShare:
    """The tenant with the smallest share of the GPUs first; notes each of its calls."""

    name = "ByShare"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def sort_key(self, group: Group) -> tuple[Any, ...]:
        return (-group.priority, group.first_complete_s)

    def lane(self, group: Group) -> str:
        return group.key.namespace

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        self.asked.append(first.key.namespace)
        return (view.dominant_share(first.key.namespace, GPU),)


class ByWait(ByShare):
    """The tenant whose first gang has waited longest, in whole minutes."""

    rekey_s = 60.0

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        self.asked.append(first.key.namespace)
        return (-(view.waited_s(first) // 60.0),)


def sorted_by(sort: Any, *, nodes: int = 1, settings: Settings | None = None) -> Cluster:
    def make(settings: Settings) -> Scheduler:
        made = make_scheduler(settings)
        profiles = {
            name: Profile(name, replace(one.points, queue_sort=sort))
            for name, one in Inside(made).profiles().items()
        }
        return Scheduler(profiles, settings, node_capacity=4)

    c = Cluster(settings, make=make)
    for i in range(nodes):
        c.node(make_node(f"n{i}", gpus=8))
    return c


def lanes_of(c: Cluster) -> Lanes:
    lanes = c.scheduler.shared.queue.lanes
    assert lanes is not None
    return lanes


def line_of(c: Cluster) -> list[str]:
    return [group.key.name for group in c.scheduler.in_line()]


def of(namespace: str, name: str, *, pods: int = 1, gpus: int = 1, priority: int = 0) -> list[Pod]:
    made = gang(name, pods=pods, gpus=gpus, priority=priority)
    return [
        replace(
            pod, metadata=replace(pod.metadata, namespace=namespace, uid=f"{namespace}-{pod.metadata.uid}")
        )
        for pod in made
    ]


def binds(c: Cluster) -> list[BindPod]:
    return c.all(BindPod)


def test_tenants_take_turns_by_what_they_hold() -> None:
    c = sorted_by(ByShare())
    c.submit(*(of("a", f"a{i}") for i in range(4)), *(of("b", f"b{i}") for i in range(4))).run()
    assert [bind.name[0] for bind in binds(c)] == list("abababab")


def test_a_gang_in_a_lane_goes_by_priority_and_age() -> None:
    c = sorted_by(ByShare())
    c.submit(of("a", "old"), of("a", "young"), of("a", "high", priority=5)).run()
    assert [bind.name for bind in binds(c)] == ["high-0", "old-0", "young-0"]


def test_the_line_is_reported_by_turns_as_far_as_it_can_be_guessed() -> None:
    c = sorted_by(ByShare())
    c.submit(of("b", "b-holds", gpus=2), of("a", "a-holds", gpus=1)).run()
    c.submit(of("a", "a2"), of("b", "b1"), of("a", "a1"), of("a", "a0", priority=5), of("c", "c1"))
    c.delete("a1-0")
    assert sorted(line_of(c)) == ["a0", "a2", "b1", "c1"], "no lane has a key yet"
    first = c.scheduler.pop()
    assert first is not None
    assert first.key.name == "c1"
    assert line_of(c) == ["a0", "b1", "a2"]
    assert not line_of(sorted_by(ByShare()))


def test_what_a_tenant_gives_back_counts_at_once() -> None:
    c = sorted_by(ByShare())
    c.submit(of("a", "a0", gpus=3), of("b", "b0", gpus=1)).run()
    c.delete("a0-0")
    c.submit(of("b", "b1"), of("a", "a1")).run()
    assert binds(c)[2].name == "a1-0"


def test_only_lanes_that_read_what_has_changed_are_keyed_again() -> None:
    sort, n_tenants, n_each = ByShare(), 20, 9
    c = sorted_by(sort, nodes=24)  # 192 GPUs: all 180 gangs fit
    pods = [of(f"t{t}", f"g{i}") for i in range(n_each) for t in range(n_tenants)]
    c.submit(*pods)
    assert not sort.asked, "nobody's turn has come yet"
    c.run()
    n_started = n_tenants * n_each
    assert len(binds(c)) == n_started
    lanes = lanes_of(c)
    assert lanes.n_keys == len(sort.asked)
    assert n_started <= lanes.n_keys <= 2 * n_started, "a start costs its own lane's key, and no other's"
    sort.asked.clear()
    for node in list(c.nodes.values()):
        c.node(node)  # a heartbeat
    c.submit(of("t3", "late", gpus=8)).run()
    assert len(sort.asked) <= 3


def test_lanes_by_waiting_time_are_keyed_again_as_time_passes_and_not_more_often() -> None:
    sort = ByWait()
    c = sorted_by(sort)
    c.submit(of("a", "full", gpus=8)).run()
    c.submit(of("b", "b0", gpus=8)).wait(200.0)
    c.submit(of("c", "c0", gpus=8))
    sort.asked.clear()
    c.delete("full-0").run()
    assert binds(c)[-1].name == "b0-0"
    c.delete("b0-0").wait(15.0).run()
    assert binds(c)[-1].name == "c0-0"
    assert len(sort.asked) <= 6


def test_a_lane_whose_key_fails_goes_last_and_its_plugin_is_named() -> None:
    class Fails(ByShare):
        def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
            if first.key.namespace == "a":
                raise ZeroDivisionError("division by zero")
            return super().lane_key(first, view)

    c = sorted_by(Fails())
    c.submit(of("a", "a0"), of("b", "b0")).run()
    assert [bind.name for bind in binds(c)] == ["b0-0", "a0-0"]
    assert c.count("plugin_errors/ByShare/QueueSort")


@pytest.mark.parametrize("answer", [None, 7, ZeroDivisionError("division by zero")])
@pytest.mark.parametrize("method", ["sort_key", "lane", "lane_key"])
def test_what_queue_sort_does_not_answer_puts_its_group_last_and_names_it(method: str, answer: Any) -> None:
    """All are asked in the same words, in line and by those who ask where a group would stand."""

    class Fails(ByShare): ...

    def ask(self: Any, group: Group, *view: QueueView) -> Any:
        if group.key.namespace != "a":
            return getattr(ByShare, method)(self, group, *view)
        if isinstance(answer, Exception):
            raise answer
        return answer

    setattr(Fails, method, ask)
    c = sorted_by(Fails(), settings=Settings(queueing=QueueingSettings(3)))
    c.submit(of("a", "a0"), of("b", "b0"))
    a, b = c.group("a0"), c.group("b0")
    order = c.scheduler.shared.queue.order
    problem = (
        "ZeroDivisionError" if isinstance(answer, Exception) else f"{method} answered {answer}, expected"
    )
    key, error = order.key_among_all(a)
    assert problem in str(error)
    assert order.key_among_all(b)[0] < key == LAST
    assert order.key_among_all(b)[1] is None
    if method == "lane_key":
        assert order.lane_place(b) < order.lane_place(a) == LAST
    else:
        assert order.passing(b)[1] < order.passing(a)[1] == LAST
    c.run()
    assert sorted(bind.name for bind in binds(c)) == ["a0-0", "b0-0"]
    assert c.count("plugin_errors/ByShare/QueueSort")
    assert any(problem in text for text in c.told("PluginFailed"))
    if method == "lane_key":
        assert [bind.name for bind in binds(c)] == ["b0-0", "a0-0"]


def test_a_key_for_passing_that_fails_counts_as_last_and_harms_nobody() -> None:
    class Fails(ByShare):
        def passing_key(self, group: Group, view: QueueView) -> Any:
            return {"b": (group.first_complete_s,), "c": 7}[group.key.namespace]

    c = sorted_by(Fails(), settings=Settings(queueing=QueueingSettings(3)))
    c.submit(of("a", "a0"), of("b", "b0"), of("c", "c0"))
    passing = c.scheduler.shared.queue.order.passing
    assert passing(c.group("a0")) == passing(c.group("c0")) == ("", LAST, False)
    assert passing(c.group("b0")) == ("b", (0, (c.now_s,)), True)
    c.run()
    assert c.n_bound() == 3


def test_a_group_that_leaves_the_line_leaves_its_lane() -> None:
    sort = ByShare()
    c = sorted_by(sort)
    c.submit(of("a", "a0"), of("a", "a1"), of("b", "b0"))
    c.delete("a0-0")
    c.run()
    assert sorted(bind.name for bind in binds(c)) == ["a1-0", "b0-0"]
    lanes = lanes_of(c)
    assert lanes.pop() is None
    assert not any((lanes._lanes, lanes._readers, lanes._stale)), "nothing is kept of empty lanes"


def test_the_view_counts_what_pods_hold_and_forgets_nodes_that_go() -> None:
    c = sorted_by(ByShare(), nodes=2)
    c.submit(of("a", "a0", gpus=3), of("b", "b0", pods=2, gpus=2)).run()
    view = c.queue_view()
    assert (view.used("a")[GPU], view.used("b")[GPU], view.used("c").get(GPU)) == (3, 4, None)
    assert (view.totals()[GPU], view.largest()[GPU]) == (16, 8)
    assert view.dominant_share("b", GPU) == 0.25
    c.drop_node("n0").drop_node("n1")
    assert not view.used("a")
    assert not view.totals()


def test_another_queue_sort_takes_over_those_in_line() -> None:
    c = sorted_by(ByShare())
    c.submit(of("a", "a0"), of("a", "a1"), of("b", "b0"))
    plain = Inside(make_scheduler(c.settings)).profiles()
    c.reconfigure(c.settings, plain)
    assert c.scheduler.shared.queue.lanes is None
    assert c.scheduler.shared.queue_view is None
    c.run()
    assert [bind.name for bind in binds(c)] == ["a0-0", "a1-0", "b0-0"]


class CalmFirst(ByShare):
    """While the nodes' processors are busy, the tenant `batch` goes last."""

    def lane_key(self, first: Group, view: QueueView) -> tuple[Any, ...]:
        self.asked.append(first.key.namespace)
        busy = view.measured_load("cpu")
        return (first.key.namespace == "batch" and busy is not None and busy > 0.5, first.first_complete_s)


def loaded(name: str, cpu: float, at_s: float) -> Node:
    when = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=at_s)).isoformat().replace("+00:00", "Z")
    report = {"utilisation": {"cpu": cpu}, "performance": {"cores": 16}, "observedAt": when}
    return make_node(name, gpus=8, annotations={LOAD_KEY: json.dumps(report)})


def test_an_order_may_go_by_what_agents_measure_while_their_reports_are_fresh() -> None:
    sort = CalmFirst()
    c = sorted_by(sort, nodes=1)  # this node reports nothing
    c.node(loaded("a", 0.9, 0.0)).node(loaded("b", 0.9, 0.0))  # two equal reports are two nodes
    c.node(loaded("c", 0.3, 0.0))
    c.submit(of("batch", "b0"), of("web", "w0")).run()
    assert [bind.name for bind in binds(c)] == ["w0-0", "b0-0"], "0.7 on average"
    view = c.queue_view()
    assert view.measured_load("cpu") == pytest.approx(0.7)
    assert view.measured_load("disk") == 0.0
    c.node(loaded("a", 0.2, 5.0)).node(loaded("b", 0.2, 5.0))
    c.submit(of("batch", "b1"), of("web", "w1")).run()
    assert [bind.name for bind in binds(c)][2:] == ["b1-0", "w1-0"], "the load has fallen"
    c.drop_node("a").node(make_node("b", gpus=8))  # its agent's report is gone
    assert view.measured_load("cpu") == pytest.approx(0.3)
    c.node(make_node("c", gpus=8, annotations={LOAD_KEY: '{"utilisation": {"cpu": 7}}'}))
    assert view.measured_load("cpu") is None, "a report that cannot be read counts for nothing"
    c.node(loaded("c", 0.9, 10.0)).wait(120.0).submit(of("web", "w2")).run()
    assert view.measured_load("cpu") is None, "nor does one from two minutes ago"

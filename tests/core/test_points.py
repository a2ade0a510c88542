"""PreFilter, Filter, PreScore, Score and NormalizeScore: order, skip, failure; arrays, and node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import (
    SKIP,
    SUCCESS,
    BoolArray,
    Change,
    CycleState,
    FloatArray,
    IntArray,
    NodeSubset,
    Status,
)
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.model.objects import Pod
from tests.core.plugins import with_plugins
from tests.support.scenario import Cluster, gang

Answer = Callable[..., Any]


class Noting:
    """Serves the points for which it is given an answer, and notes each call."""

    def __init__(self, name: str, diary: list[str] | None = None, **answers: Answer) -> None:
        self.name = name
        diary = [] if diary is None else diary
        self.diary = diary
        for method, answer in answers.items():
            setattr(self, method, self._noting(method, answer))
        if ("filter" in answers or "capacity" in answers) and "reasons" not in answers:
            self.reasons: Answer = lambda *_: ()

    def _noting(self, method: str, answer: Answer) -> Answer:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.diary.append(f"{self.name}.{method}")
            return answer(*args, **kwargs)

        return call


def everywhere(state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
    return np.ones(view.n_rows, dtype=np.bool_)


def only(*rows: int) -> Answer:
    def mask(state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        found = np.zeros(view.n_rows, dtype=np.bool_)
        found[list(rows)] = True
        return found

    return mask


def node_of(c: Cluster, pod: str) -> str:
    return c.pod(pod).spec.node_name


# -- order and skip --------------------------------------------------------------------------------------


def test_points_are_asked_in_order_and_plugins_in_theirs() -> None:
    diary: list[str] = []
    answers: dict[str, Answer] = {
        "pre_filter": lambda *_: SUCCESS,
        "filter": everywhere,
        "pre_score": lambda *_: SUCCESS,
        "score": lambda state, template, view, rows: np.zeros(len(rows)),
        "normalize": lambda state, template, scores: scores,
    }
    c = with_plugins(Noting("A", diary, **answers), Noting("B", diary, **answers))
    c.submit(make_pod("p")).run()
    order = ["pre_filter", "filter", "pre_score"]
    assert diary[: 2 * len(order)] == [f"{name}.{point}" for point in order for name in "AB"]
    assert diary[2 * len(order) :] == ["A.score", "A.normalize", "B.score", "B.normalize"]


def test_a_prefilter_that_skips_is_not_asked_to_filter() -> None:
    plugin = Noting("A", pre_filter=lambda *_: SKIP, filter=only())
    c = with_plugins(plugin).submit(make_pod("p")).run()
    assert plugin.diary == ["A.pre_filter"]
    assert node_of(c, "p")


def test_a_prefilter_that_says_no_ends_it_and_is_named() -> None:
    first = Noting("A", pre_filter=lambda *_: Status.unschedulable("not on Sundays"))
    second = Noting("B", pre_filter=lambda *_: SUCCESS)
    c = with_plugins(first, second).submit(make_pod("p")).run()
    assert not second.diary
    assert c.said("p").startswith("not on Sundays")
    assert c.group("p").rejected_by[0][0] == "A"


def test_prefilters_that_name_nodes_leave_what_they_agree_on() -> None:
    def named(*rows: int) -> Answer:
        return lambda *args: NodeSubset(only(*rows)(*args), f"node(s) were not among {rows}")

    c = with_plugins(Noting("A", pre_filter=named(1, 2)), Noting("B", pre_filter=named(2, 3)))
    c.submit(gang("g", pods=2, gpus=4)).run()
    assert {node_of(c, "g-0"), node_of(c, "g-1")} == {"n2"}
    c.submit(make_pod("large", gpus=8)).run()
    assert "2 node(s) were not among (1, 2)" in c.said("large")
    assert "1 node(s) were not among (2, 3)" in c.said("large")


def test_a_prescore_that_skips_is_not_asked_to_score() -> None:
    plugin = Noting("A", pre_score=lambda *_: SKIP, score=lambda *_: 1 / 0)
    c = with_plugins(plugin).submit(make_pod("p")).run()
    assert plugin.diary == ["A.pre_score"]
    assert node_of(c, "p")


def test_scores_are_weighted_and_any_range_is_normalized() -> None:
    def by_row(state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray) -> FloatArray:
        return -1000.0 * rows.astype(np.float64)

    def to_100(state: CycleState, template: PodTemplate, scores: FloatArray) -> FloatArray:
        low, high = scores.min(), scores.max()
        within: FloatArray = 100 * (scores - low) / (high - low)
        return within

    against = Noting("Against", score=lambda s, t, v, rows: np.where(rows == 3, 100.0, 0.0))
    normalized = Noting("Normalized", score=by_row, normalize=to_100)
    normalized.weight = 1000.0  # type: ignore[attr-defined]
    c = with_plugins(against, normalized).submit(make_pod("p")).run()
    assert node_of(c, "p") == "n0"
    normalized.weight = 0.001  # type: ignore[attr-defined]
    against.weight = 1000.0  # type: ignore[attr-defined]
    c = with_plugins(against, normalized).submit(make_pod("p")).run()
    assert node_of(c, "p") == "n3"


# -- a filter that sees pods -------------------------------------------------------------------------------


class OneEach:
    """At most one pod a node, of those that it has heard of in this cycle; keeps its counts in the state."""

    name = "OneEach"
    sees_pods = True

    def pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        state.data[self.name] = Taken([row for row, _, _ in view.placed])
        return SUCCESS

    def add_pod(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        state.data[self.name].rows.append(row)

    def remove_pod(
        self, state: CycleState, template: PodTemplate, other: PodTemplate, row: int, view: ClusterView
    ) -> None:
        state.data[self.name].rows.remove(row)

    def filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> BoolArray:
        mask = np.ones(view.n_rows, dtype=np.bool_)
        mask[state.data[self.name].rows] = False
        return mask

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> Sequence[tuple[str, BoolArray]]:
        return (("node(s) had one already", ~self.filter(state, template, view)),)


class Taken:
    def __init__(self, rows: Sequence[int] = ()) -> None:
        self.rows = list(rows)

    def clone(self) -> Taken:
        return Taken(self.rows)


def test_a_filter_that_counts_by_itself_hears_of_each_sibling_in_every_order() -> None:
    c = with_plugins(OneEach())
    c.submit([*gang("g", pods=2, min_members=4), *gang("g", pods=2, gpus=2, min_members=4, first=2)]).run()
    assert c.placed("g", on=4)
    c.submit(gang("h", pods=5)).run()
    assert c.untouched("h")
    said = c.said("h-0")
    assert said.startswith("gang d/h: 4 of 5 fit; member h-4: 0/4 nodes are available: 4 node(s) had one")
    assert "No placement exists: every order of placing them ends like this." in said


# -- node by node ------------------------------------------------------------------------------------------


class Owned:
    """The ten lines of the plugin author's page."""

    name = "Owned"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        self.asked.append(node_info.name)
        wanted = (pod.metadata.labels or {}).get("owner")
        if wanted in (None, (node_info.annotations or {}).get("owner")):
            return SUCCESS
        return Status.unschedulable("node(s) belonged to somebody else")


def owned(name: str, owner: str = "", **more: Any) -> Any:
    return make_node(name, annotations={"owner": owner}, listed=False, **more)


def test_a_node_filter_is_asked_about_nodes_that_all_others_let_by() -> None:
    plugin = Owned()
    c = with_plugins(plugin, nodes=0)
    c.node(owned("full", "ann", gpus=0)).node(owned("bobs", "bob")).node(owned("anns", "ann"))
    c.submit(make_pod("p", labels={"owner": "ann"})).run()
    assert plugin.asked == ["bobs", "anns"]
    assert node_of(c, "p") == "anns"


def test_pods_that_differ_in_labels_alone_are_distinguished_by_it() -> None:
    c = with_plugins(Owned(), nodes=0)
    c.node(owned("bobs", "bob")).node(owned("anns", "ann"))
    c.submit(make_pod("a", labels={"owner": "ann"}), make_pod("b", labels={"owner": "bob"})).run()
    assert (node_of(c, "a"), node_of(c, "b")) == ("anns", "bobs")


def test_its_reason_is_reported_and_its_answers_are_not_asked_for_again() -> None:
    plugin = Owned()
    c = with_plugins(plugin, nodes=0)
    c.node(owned("n0", "bob")).node(owned("n1", "bob", gpus=0)).node(owned("n2", "bob"))
    c.submit(make_pod("p", labels={"owner": "ann"})).run()
    said = c.said("p")
    assert "2 node(s) belonged to somebody else" in said
    assert "1 Insufficient" in said
    plugin.asked.clear()
    c.submit(make_pod("q", labels={"owner": "bob"})).run()
    c.submit(make_pod("r", labels={"owner": "bob"})).run()
    # Only where a pod came it is asked again.
    assert sorted(plugin.asked) == sorted(["n0", "n2", node_of(c, "q")]), (
        "only where a pod came is asked again"
    )


class AtMost:
    """As many pods a node as it says, siblings included."""

    name = "AtMost"

    def __init__(self, n: int) -> None:
        self.n = n

    def sign(self, pod: Pod) -> tuple[()]:
        return ()

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        if len(node_info.pods) < self.n:
            return SUCCESS
        return Status.unschedulable(f"node(s) had {self.n} pods")


def test_members_of_a_gang_are_seen_by_it_as_they_are_placed() -> None:
    c = with_plugins(AtMost(2), nodes=3)
    c.submit(gang("g", pods=5)).run()
    assert c.placed("g", on=3)
    c.submit(gang("h", pods=2)).run()
    assert c.untouched("h")
    assert "1 of 2 fit" in c.said("h-0")


class Emptiest:
    """A score of one line."""

    name = "Emptiest"
    weight = 1000.0

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 100.0 - len(node_info.pods)


def test_a_node_score_is_added_up_with_the_others() -> None:
    c = with_plugins(Emptiest(), nodes=3)
    for i in range(6):
        c.submit(make_pod(f"p{i}")).run()
    assert sorted(node_of(c, f"p{i}") for i in range(6)) == ["n0", "n0", "n1", "n1", "n2", "n2"]


class Normalized:
    name = "Normalized"
    weight = 1000.0

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return 1e6 if node_info.name == "n1" else -1e6

    def normalize(self, state: CycleState, template: PodTemplate, scores: FloatArray) -> FloatArray:
        return np.clip(scores, 0.0, 100.0)


def test_a_node_score_of_any_range_is_normalized() -> None:
    assert node_of(with_plugins(Normalized()).submit(make_pod("p")).run(), "p") == "n1"


def test_what_a_node_info_tells() -> None:
    told: list[tuple[dict[str, int], dict[str, int], dict[str, int], list[str]]] = []

    class Looking:
        name = "Looking"

        def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
            assert (node_info.name, node_info.row, node_info.taints, node_info.images) == ("n0", 0, (), ())
            assert "r1" in node_info.labels.values()
            pods = [one.metadata.name for one in node_info.pods]
            told.append((node_info.allocatable, node_info.free, node_info.requested, pods))
            return SUCCESS

    c = with_plugins(Looking(), nodes=0)
    c.node(make_node("n0", gpus=4, cpu=8, rack="r1")).submit(gang("g", pods=2, gpus=1)).run()
    assert c.placed("g")
    assert told[0] == ({**told[0][0], "cpu": 8000}, told[0][0], dict.fromkeys(told[0][0], 0), [])
    # A member that is placed before stands for itself, or for one that is equal to it.
    allocatable, free, requested, pods = told[1]
    assert (allocatable["cpu"], free["cpu"], requested["cpu"]) == (8000, 7000, 1000)
    assert pods == ["g-0"]


# -- plugins that fail -------------------------------------------------------------------------------------


def _write(array: Any) -> None:
    array[0] = 0


class Untold(Exception):
    """Has lost what it was about."""

    def __str__(self) -> str:
        raise KeyError("path")


def _raise(error: Exception) -> Any:
    raise error


def _refusing(reasons: Answer) -> dict[str, Answer]:
    return {"filter": lambda s, t, view: np.zeros(view.n_rows, dtype=np.bool_), "reasons": reasons}


FAULTS: dict[str, tuple[dict[str, Answer], str]] = {
    "raises in PreFilter": ({"pre_filter": lambda *_: 1 / 0}, "PreFilter: ZeroDivisionError"),
    "no Status": ({"pre_filter": lambda *_: True}, "PreFilter: answered bool, expected a Status"),
    "an exception for a reason": (
        {"pre_filter": lambda *_: Status.unschedulable(KeyError("tier"))},  # type: ignore[arg-type]
        "PreFilter: answered a Status with KeyError for its reason, expected a text",
    ),
    "a word for a code": (
        {"pre_filter": lambda *_: Status("Success")},  # type: ignore[arg-type]
        "PreFilter: answered a Status with str for its code, expected a Code",
    ),
    "a subset for nothing that can be read": (
        {"pre_filter": lambda s, t, view: NodeSubset(np.zeros(view.n_rows, dtype=np.bool_), None)},  # type: ignore[arg-type]
        "PreFilter: answered a NodeSubset with NoneType for its reason, expected a text",
    ),
    "an exception for a reason about a node": (
        {"filter_node": lambda s, p, info: Status.unschedulable(KeyError(info.name))},  # type: ignore[arg-type]
        "Filter: answered a Status with KeyError for its reason, expected a text, about node n0",
    ),
    "Wait in PreFilter": ({"pre_filter": lambda *_: Status.wait("x")}, "Wait, which means nothing here"),
    "a subset of another size": (
        {"pre_filter": lambda *_: NodeSubset(np.ones(77, dtype=np.bool_), "")},
        "PreFilter: answered bool(77,)",
    ),
    "raises what cannot be told": (
        {"pre_filter": lambda *_: _raise(Untold())},
        "PreFilter: Untold, whose message cannot be read",
    ),
    "raises what cannot be told about a node": (
        {"filter_node": lambda *_: _raise(Untold())},
        "Filter: Untold, whose message cannot be read, about node n0",
    ),
    "raises in Filter": ({"filter": lambda *_: [][1]}, "Filter: IndexError"),
    "numbers for a mask": ({"filter": lambda s, t, view: np.ones(view.n_rows)}, "Filter: answered float64"),
    "a list for a mask": ({"filter": lambda s, t, view: [True] * view.n_rows}, "Filter: answered list"),
    "raises about a node": (
        {"filter_node": lambda *_: 1 / 0},
        "Filter: ZeroDivisionError: division by zero, about node n0",
    ),
    "raises about a later node": (
        {"filter_node": lambda s, p, info: SUCCESS if info.name < "n2" else 1 / 0},
        "Filter: ZeroDivisionError: division by zero, about node n2",
    ),
    "True about a node": (
        {"filter_node": lambda s, p, info: SUCCESS if info.name == "n0" else True},
        "Filter: answered bool, expected a Status, about node n1",
    ),
    "Skip about a node": ({"filter_node": lambda *_: SKIP}, "Skip, which means nothing here, about node n0"),
    "no in PreScore": (
        {"pre_score": lambda *_: Status.unschedulable("x"), "score": lambda *_: None},
        "Unschedulable, which means nothing here",
    ),
    "NaN": ({"score": lambda s, t, v, rows: np.full(len(rows), np.nan)}, "not within 0..100"),
    "a score above 100": ({"score": lambda s, t, v, rows: np.full(len(rows), 101.0)}, "not within 0..100"),
    "scores for too few": (
        {"score": lambda s, t, v, rows: np.zeros(len(rows) - 1)},
        "Score: answered float64",
    ),
    "NaN for a node": ({"score_node": lambda *_: float("nan")}, "not within 0..100"),
    "a word for a node": (
        {"score_node": lambda s, p, info: "good" if info.name == "n1" else 1.0},
        "Score: answered str, expected a number, about node n1",
    ),
    "raises when it scores a node": (
        {"score_node": lambda s, p, info: info.labels["tier"]},
        "Score: KeyError: 'tier', about node n0",
    ),
    "nothing for a node": ({"score_node": lambda *_: None}, "not within 0..100"),
    "nonsense in NormalizeScore": (
        {"score": lambda s, t, v, rows: np.zeros(len(rows)), "normalize": lambda *_: None},
        "NormalizeScore: answered NoneType",
    ),
    "writes to what is free": ({"filter": lambda s, t, view: _write(view.free(0))}, "read-only"),
    "writes to what is allocatable": (
        {"filter": lambda s, t, view: _write(view.allocatable(0))},
        "read-only",
    ),
    "writes to which rows live": ({"filter": lambda s, t, view: _write(view.live)}, "read-only"),
    "writes to labels": ({"filter": lambda s, t, view: _write(view.label("x")[0])}, "read-only"),
    "writes to rows": ({"score": lambda s, t, v, rows: _write(rows)}, "read-only"),
    "no reasons": (_refusing(lambda *_: None), "Filter: TypeError: 'NoneType' object is not iterable"),
    "raises while its reasons are read": (
        _refusing(lambda *_: (1 / 0 for _ in "x")),
        "Filter: ZeroDivisionError",
    ),
    "an exception among its reasons": (
        _refusing(lambda s, t, view: [(KeyError("tier"), view.live)]),
        "Filter: reasons has tuple, expected (text, array)",
    ),
    "reasons of another size": (
        _refusing(lambda *_: [("x", np.ones(77, dtype=np.bool_))]),
        "Filter: answered bool(77,)",
    ),
    "counts of another size": (
        {"capacity": lambda s, t, view, rows=None: np.ones(77, dtype=np.int64)},
        "Filter: answered int64(77,)",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_plugin_that_fails_is_named_and_costs_this_attempt_alone(fault: str) -> None:
    answers, said = FAULTS[fault]
    broken = Noting("Broken", None, **answers)
    c = with_plugins(broken).submit(make_pod("p")).run()
    reason = c.said("p")
    assert "plugin Broken failed in " in reason
    assert said in reason
    assert c.untouched("p")
    assert broken.diary


@pytest.mark.parametrize("method", ["cures", "concerns"])
def test_a_plugin_that_answers_with_many_yes_and_no_is_named(method: str) -> None:
    """An array is neither."""
    answers: dict[str, Answer] = {
        "pre_filter": lambda *_: Status.unschedulable("no"),
        method: lambda *_: np.ones(4, dtype=np.bool_),
    }
    broken = Noting("Broken", None, **answers)
    broken.cured_by = Change.NODE_ADDED  # type: ignore[attr-defined]
    c = with_plugins(broken).submit(make_pod("p")).run().node(make_node("n9", gpus=8)).run()
    assert c.untouched("p")
    assert "Broken" in {blamed.plugin for blamed in c.all(ef.BlamePlugin)}


def test_a_plugin_that_counts_one_node_in_words_is_named() -> None:
    broken = Noting(
        "Broken",
        None,
        capacity=lambda s, t, view, rows=slice(None): np.full(view.n_rows, 9)[rows],
        capacity_on=lambda *_: "many",
    )
    c = with_plugins(broken).submit(make_pod("p-0")).run()
    assert c.placed("p")
    c.submit(make_pod("q-0")).run()
    assert "plugin Broken failed in Filter: answered str, expected an int" in c.said("q-0")
    assert c.untouched("q")


def test_a_pod_that_a_plugin_cannot_sign_is_refused_with_the_reason() -> None:
    class Unsure:
        name = "Unsure"

        def sign(self, pod: Pod) -> Any:
            return [pod.metadata.name]

        def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
            return SUCCESS

    c = with_plugins(Unsure()).submit(make_pod("p")).run()
    reason = c.said("p")
    assert "plugin Unsure failed in sign: TypeError: unhashable type" in reason

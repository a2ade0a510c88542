"""TaintToleration: taint classes over arrays, compared with a plain reference per node."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gangsched.core.cache.nodes import table
from gangsched.model.objects import Taint, Toleration
from gangsched.plugins.nodes.taint_toleration import TaintToleration, Tolerations
from tests.plugins.build import Cluster, Compared, node, pod


@pytest.mark.parametrize(
    ("toleration", "taint", "accepted"),
    [
        (Toleration(key="k", value="v"), Taint("k", "v", "NoSchedule"), True),
        (Toleration(key="k", value="v", operator=""), Taint("k", "v", "NoSchedule"), True),
        (Toleration(key="k", value="w"), Taint("k", "v", "NoSchedule"), False),
        (Toleration(key="k", operator="Exists"), Taint("k", "v", "NoExecute"), True),
        (Toleration(operator="Exists"), Taint("any", "thing", "NoExecute"), True),
        (Toleration(key="k", operator="Exists", effect="NoSchedule"), Taint("k", "", "NoExecute"), False),
        (Toleration(key="k", operator="Nonsense"), Taint("k", "", "NoSchedule"), False),
        (Toleration(key="k", operator="Lt", value="10"), Taint("k", "9", "NoSchedule"), True),
        (Toleration(key="k", operator="Lt", value="10"), Taint("k", "10", "NoSchedule"), False),
        (Toleration(key="k", operator="Gt", value="-3"), Taint("k", "0", "NoSchedule"), True),
        (Toleration(key="k", operator="Gt", value="1"), Taint("k", "007", "NoSchedule"), False),
        (Toleration(key="k", operator="Gt", value="1"), Taint("k", "9" * 19, "NoSchedule"), False),
        (Toleration(key="k", operator="Gt", value="x"), Taint("k", "5", "NoSchedule"), False),
    ],
)
def test_one_toleration_and_one_taint(toleration: Toleration, taint: Taint, accepted: bool) -> None:
    assert Tolerations([toleration]).accept(taint) is accepted


def test_untolerated_taints_keep_the_pod_away() -> None:
    gpu = Taint("gpu", "yes", "NoSchedule")
    cluster = Cluster(
        node("plain"), node("gpu", taints=[gpu]), node("soft", taints=[Taint("s", "", "PreferNoSchedule")])
    )
    plugin, template = TaintToleration(), cluster.template()
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["plain", "soft"]
    ((reason, rows),) = plugin.reasons(cluster.state, template, cluster.view)
    assert str(reason) == "node(s) had untolerated taint(s) {gpu=yes:NoSchedule}"
    assert cluster.names(rows) == ["gpu"]
    tolerant = cluster.template(pod(tolerations=[{"key": "gpu", "operator": "Exists"}]))
    assert plugin.filter(cluster.state, tolerant, cluster.view) is None
    assert plugin.reasons(cluster.state, tolerant, cluster.view) == ()


def test_fewer_soft_taints_score_higher() -> None:
    soft = [Taint(f"s{i}", "", "PreferNoSchedule") for i in range(3)]
    cluster = Cluster(node("none"), node("one", taints=soft[:1]), node("three", taints=soft))
    plugin = TaintToleration()
    rows = cluster.rows(["none", "one", "three"])
    scores = plugin.score(cluster.state, cluster.template(), cluster.view, rows)
    assert scores is not None
    assert scores.tolist() == [100.0, 67.0, 0.0]  # 100 - 100 * 1 // 3
    assert plugin.score(cluster.state, cluster.template(), cluster.view, rows[:1]) is None
    tolerant = cluster.template(pod(tolerations=[{"operator": "Exists"}]))
    assert plugin.score(cluster.state, tolerant, cluster.view, rows) is None


def test_a_soft_taint_that_appears_later_is_noticed() -> None:
    cluster = Cluster(node("a"), node("b"))
    plugin, rows = TaintToleration(), cluster.rows(["a", "b"])
    assert plugin.score(cluster.state, cluster.template(), cluster.view, rows) is None
    cluster.put(node("b", taints=[Taint("s", "", "PreferNoSchedule")]))
    scores = plugin.score(cluster.state, cluster.template(), cluster.view, rows)
    assert scores is not None
    assert scores.tolist() == [100.0, 0.0]


def test_taints_that_no_node_has_any_more_are_forgotten_and_the_others_still_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Taints with the time as their value come for ever. The same story is told to a table that keeps all."""
    monkeypatch.setattr(table, "_MAX_TAINT_CLASSES", 6)
    rng, plugins = Random(1), (TaintToleration(), TaintToleration())
    small, large = Cluster(), Cluster()
    large.cache.nodes._most_taint_classes = 10_000
    tolerant = pod(tolerations=[{"key": "t", "operator": "Exists", "effect": "NoSchedule"}])
    for step in range(200):
        name = f"n{rng.randrange(8)}"
        if rng.random() < 0.2 and name in small.cache.nodes.row_of:
            for c in (small, large):
                c.cache.remove_node(name)
        else:
            effects = rng.sample(["NoSchedule", "NoExecute", "PreferNoSchedule"], rng.randrange(3))
            made = node(name, taints=[Taint("t", str(step), effect) for effect in effects])
            for c in (small, large):
                c.put(made)
        answers = []
        for c, plugin in zip((small, large), plugins, strict=True):
            template, rows = c.template(tolerant), c.rows(sorted(c.cache.nodes.row_of))
            scores = plugin.score(c.state, template, c.view, rows)
            why = plugin.reasons(c.state, template, c.view)
            answers.append(
                (
                    c.names(plugin.filter(c.state, template, c.view)),
                    scores if scores is None else scores.tolist(),
                    sorted((str(one), *c.names(there)) for one, there in why),
                )
            )
        assert answers[0] == answers[1], step
    assert len(large.view.taint_classes) > 100
    assert len(small.view.taint_classes) <= 6 + 2 * 9


def test_taints_that_nodes_had_once_leave_the_names_to_those_they_have() -> None:
    c = Cluster(node("a"))
    for step in range(20):
        c.put(node("a", taints=[Taint("t", str(step), "NoSchedule")]))
    ((reason, rows),) = TaintToleration().reasons(c.state, c.template(), c.view)
    assert str(reason) == "node(s) had untolerated taint(s) {t=19:NoSchedule}"
    assert c.names(rows) == ["a"]


def test_more_sets_of_taints_in_use_than_the_limit_are_not_read_again_at_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(table, "_MAX_TAINT_CLASSES", 6)
    c = Cluster(*(node(f"n{i}", taints=[Taint("t", str(i), "NoSchedule")]) for i in range(20)))
    codes = c.view.taint_classes
    n_read = 0
    for step in range(100):
        c.put(node("n0", taints=[Taint("t", f"x{step}", "NoSchedule")]))
        n_read += c.view.taint_classes is not codes
        codes = c.view.taint_classes
    assert 1 <= n_read <= 5


def test_hundreds_of_tolerations_are_not_compared_with_hundreds_of_taints_one_by_one() -> None:
    """An autoscaler's taints have the time as their value, so each node has had others."""
    n = 200
    c = Cluster(*(node(f"n{i}", taints=[Taint("leaves", str(i), "NoSchedule")]) for i in range(n)))
    template = c.template()
    never = [Toleration(Compared("leaves"), "Equal", Compared(f"never-{i}")) for i in range(n)]
    template.spec = replace(template.spec, tolerations=never)
    before = Compared.n
    ((reason, rows), *_) = TaintToleration().reasons(c.state, template, c.view)
    assert str(reason) == "node(s) had untolerated taint(s) {leaves=0:NoSchedule}"
    assert c.names(rows) == ["n0"]
    assert Compared.n - before < 20 * n


def test_only_a_node_whose_taints_are_tolerated_cures() -> None:
    gpu = Taint("gpu", "", "NoExecute")
    cluster = Cluster(node("a", taints=[gpu]))
    plugin, template = TaintToleration(), cluster.template()
    (tainted,) = cluster.put(node("b", taints=[gpu]))
    assert not plugin.cures(tainted, template, cluster.view)
    (clean,) = cluster.put(node("a"))
    assert clean.what & plugin.cured_by
    assert plugin.cures(clean, template, cluster.view)


_KEYS = st.sampled_from(["a", "b", "c"])
_VALUES = st.sampled_from(["", "1", "2", "x"])
_EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
_TAINTS = st.lists(st.builds(Taint, key=_KEYS, value=_VALUES, effect=_EFFECTS), max_size=3)
_TOLERATIONS = st.lists(
    st.builds(
        Toleration,
        key=st.one_of(st.just(""), _KEYS),
        operator=st.sampled_from(["", "Equal", "Exists", "Lt", "Gt"]),
        value=_VALUES,
        effect=st.one_of(st.just(""), _EFFECTS),
    ),
    max_size=3,
)


def accepts_slowly(tolerations: list[Toleration], taint: Taint) -> bool:
    """KEP-166 and KEP-5471 in the plainest words."""
    for t in tolerations:
        if t.effect not in ("", taint.effect) or t.key not in ("", taint.key):
            continue
        if t.operator == "Exists" or (t.operator in ("", "Equal") and t.value == taint.value):
            return True
        numeric = t.value in ("1", "2") and taint.value in ("1", "2")
        if t.operator == "Lt" and numeric and int(taint.value) < int(t.value):
            return True
        if t.operator == "Gt" and numeric and int(taint.value) > int(t.value):
            return True
    return False


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(_TAINTS, min_size=1, max_size=6), _TOLERATIONS)
def test_classes_answer_as_every_node_by_itself(
    taints: list[list[Taint]], tolerations: list[Toleration]
) -> None:
    cluster = Cluster(*(node(f"n{i}", taints=own) for i, own in enumerate(taints)))
    one = pod()
    one.spec.tolerations = tolerations
    plugin, template = TaintToleration(), cluster.template(one)
    hard = [
        all(t.effect == "PreferNoSchedule" or accepts_slowly(tolerations, t) for t in own) for own in taints
    ]
    mask = plugin.filter(cluster.state, template, cluster.view)
    assert (np.ones(len(taints), bool) if mask is None else mask).tolist() == hard
    soft = [
        sum(t.effect == "PreferNoSchedule" and not accepts_slowly(tolerations, t) for t in own)
        for own in taints
    ]
    scores = plugin.score(cluster.state, template, cluster.view, np.arange(len(taints)))
    if max(soft) == 0:
        assert scores is None
    else:
        assert scores is not None
        assert scores.tolist() == [100 - 100 * count // max(soft) for count in soft]
    for change in cluster.changes:
        assert plugin.cures(change, template, cluster.view) is hard[change.row]

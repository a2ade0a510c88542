"""NodeAffinity: selectors over label codes, compared with a plain reference per node."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.core.framework.interface import Change
from gangsched.plugins.nodes.node_affinity import Args, NodeAffinity
from tests.plugins.build import Cluster, node, pod

Requirement = dict[str, Any]
Term = dict[str, list[Requirement]]


def required(*terms: Term) -> dict[str, Any]:
    return {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    }


def preferred(*weighted: tuple[int, Term]) -> dict[str, Any]:
    terms = [{"weight": weight, "preference": term} for weight, term in weighted]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def label(key: str, operator: str, *values: str) -> Requirement:
    return {"key": key, "operator": operator, "values": list(values)}


def expressions(*requirements: Requirement) -> Term:
    return {"matchExpressions": list(requirements)}


def fields(*requirements: Requirement) -> Term:
    return {"matchFields": list(requirements)}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(
        node("a", labels={"zone": "z1", "size": "4"}),
        node("b", labels={"zone": "z2", "size": "16"}),
        node("c", labels={"zone": "z1", "size": "big"}),
        node("d"),
    )


@pytest.mark.parametrize(
    ("requirement", "names"),
    [
        (label("zone", "In", "z1"), ["a", "c"]),
        (label("zone", "In", "z1", "z2", "z9"), ["a", "b", "c"]),
        (label("zone", "In", "z9"), []),
        (label("zone", "NotIn", "z1"), ["b", "d"]),
        (label("zone", "NotIn", "z1", "z2"), ["d"]),
        (label("zone", "NotIn", "z9"), ["a", "b", "c", "d"]),
        (label("zone", "Exists"), ["a", "b", "c"]),
        (label("zone", "DoesNotExist"), ["d"]),
        (label("size", "Gt", "4"), ["b"]),
        (label("size", "Lt", "16"), ["a"]),
        (label("size", "Gt", "+3"), ["a", "b"]),
        (label("nowhere", "Exists"), []),
        (label("nowhere", "NotIn", "x"), ["a", "b", "c", "d"]),
    ],
)
def test_operators(cluster: Cluster, requirement: Requirement, names: list[str]) -> None:
    template = cluster.template(pod(affinity=required(expressions(requirement))))
    assert cluster.names(NodeAffinity().filter(cluster.state, template, cluster.view)) == names


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([], []),
        ([{}], []),
        ([{}, expressions(label("zone", "Exists"))], ["a", "b", "c"]),
        ([expressions(label("zone", "In", "z1"), label("size", "Exists", *[])), fields()], ["a", "c"]),
        ([expressions(label("zone", "In", "z2")), fields(label("metadata.name", "In", "d"))], ["b", "d"]),
        ([fields(label("metadata.name", "NotIn", "a"))], ["b", "c", "d"]),
        ([fields(label("metadata.name", "In", "nobody"))], []),
        ([{**expressions(label("zone", "In", "z1")), **fields(label("metadata.name", "In", "c"))}], ["c"]),
    ],
    ids=str,
)
def test_terms_are_alternatives_and_expressions_add_up(
    cluster: Cluster, terms: list[Term], names: list[str]
) -> None:
    template = cluster.template(pod(affinity=required(*terms)))
    assert cluster.names(NodeAffinity().filter(cluster.state, template, cluster.view)) == names


@pytest.mark.parametrize(
    "wrong",
    [
        expressions(label("zone", "In")),
        expressions(label("zone", "Exists", "z1")),
        expressions(label("size", "Gt", "4", "5")),
        expressions(label("size", "Lt", "many")),
        expressions(label("size", "Gt", str(2**63))),
        expressions(label("zone", "Like", "z1")),
        fields(label("metadata.name", "In", "a", "b")),
        fields(label("metadata.name", "Exists")),
        fields(label("metadata.uid", "In", "a")),
    ],
    ids=str,
)
def test_a_term_with_a_mistake_matches_nothing_and_leaves_the_others(cluster: Cluster, wrong: Term) -> None:
    plugin = NodeAffinity()
    alone = cluster.template(pod(affinity=required(wrong)))
    assert cluster.names(plugin.filter(cluster.state, alone, cluster.view)) == []
    beside = cluster.template(pod(affinity=required(wrong, expressions(label("zone", "In", "z2")))))
    assert cluster.names(plugin.filter(cluster.state, beside, cluster.view)) == ["b"]


def test_node_selector_and_affinity_must_both_hold(cluster: Cluster) -> None:
    plugin = NodeAffinity()
    assert plugin.filter(cluster.state, cluster.template(), cluster.view) is None
    one = pod(nodeSelector={"zone": "z1"}, affinity=required(expressions(label("size", "Gt", "1"))))
    template = cluster.template(one)
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["a"]
    ((reason, rows),) = plugin.reasons(cluster.state, template, cluster.view)
    assert reason == "node(s) didn't match Pod's node affinity/selector"
    assert cluster.names(rows) == ["b", "c", "d"]


def test_labels_that_change_are_seen(cluster: Cluster) -> None:
    plugin, template = NodeAffinity(), cluster.template(pod(nodeSelector={"zone": "z1"}))
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["a", "c"]
    (change,) = cluster.put(node("d", labels={"zone": "z1"}))
    assert change.what & plugin.cured_by
    assert plugin.cures(change, template, cluster.view)
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["a", "c", "d"]
    (elsewhere,) = cluster.put(node("d", labels={"zone": "z2"}))
    assert elsewhere.what is Change.NODE_LABELS
    assert not plugin.cures(elsewhere, template, cluster.view)


def test_preferred_terms_add_their_weights_and_are_normalised(cluster: Cluster) -> None:
    plugin = NodeAffinity()
    in_z1, sized = expressions(label("zone", "In", "z1")), expressions(label("size", "Exists"))
    template = cluster.template(pod(affinity=preferred((10, in_z1), (5, sized), (100, {}))))
    scores = plugin.score(cluster.state, template, cluster.view, cluster.rows(["a", "b", "d"]))
    assert scores is not None
    assert scores.tolist() == [100.0, 33.0, 0.0]
    assert plugin.score(cluster.state, template, cluster.view, cluster.rows(["d"])) is None
    assert plugin.score(cluster.state, cluster.template(), cluster.view, cluster.rows(["a"])) is None
    cluster.put(node("d", labels={"zone": "z1", "size": "1"}))
    again = plugin.score(cluster.state, template, cluster.view, cluster.rows(["b", "d"]))
    assert again is not None
    assert again.tolist() == [33.0, 100.0]


def added(**rules: Any) -> Args:
    return msgspec.convert({"addedAffinity": rules}, Args)


def test_added_affinity_holds_for_every_pod(cluster: Cluster) -> None:
    in_z1 = expressions(label("zone", "In", "z1"))
    args = added(requiredDuringSchedulingIgnoredDuringExecution={"nodeSelectorTerms": [in_z1]})
    plugin = NodeAffinity(args)
    assert cluster.names(plugin.filter(cluster.state, cluster.template(), cluster.view)) == ["a", "c"]
    template = cluster.template(pod(nodeSelector={"size": "4"}))
    assert cluster.names(plugin.filter(cluster.state, template, cluster.view)) == ["a"]
    said = [(why, cluster.names(rows)) for why, rows in plugin.reasons(cluster.state, template, cluster.view)]
    assert said == [
        ("node(s) didn't match scheduler-enforced node affinity", ["b", "d"]),
        ("node(s) didn't match Pod's node affinity/selector", ["c"]),
    ]
    assert [plugin.cures(change, template, cluster.view) for change in cluster.changes] == [
        True,
        False,
        False,
        False,
    ]


def test_added_preferences_score_too(cluster: Cluster) -> None:
    term = {"weight": 7, "preference": expressions(label("zone", "In", "z2"))}
    plugin = NodeAffinity(added(preferredDuringSchedulingIgnoredDuringExecution=[term]))
    scores = plugin.score(cluster.state, cluster.template(), cluster.view, cluster.rows(["a", "b"]))
    assert scores is not None
    assert scores.tolist() == [0.0, 100.0]


def test_an_unusable_added_term_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"nodeSelectorTerms\[0\]: Gt needs exactly one value"):
        added(
            requiredDuringSchedulingIgnoredDuringExecution={
                "nodeSelectorTerms": [expressions(label("size", "Gt", "x"))]
            }
        )


_KEYS = st.sampled_from(["k", "l", "m"])
_VALUES = st.sampled_from(["1", "2", "10", "-1", "x", ""])
_LABELS = st.dictionaries(_KEYS, _VALUES)
_REQUIREMENTS = st.one_of(
    st.builds(
        lambda k, o, v: label(k, o, *v),
        _KEYS,
        st.sampled_from(["In", "NotIn"]),
        st.lists(_VALUES, max_size=3),
    ),
    st.builds(lambda k, o: label(k, o), _KEYS, st.sampled_from(["Exists", "DoesNotExist"])),
    st.builds(lambda k, o, v: label(k, o, v), _KEYS, st.sampled_from(["Gt", "Lt"]), _VALUES),
)
_NAMES = st.builds(
    lambda o, v: label("metadata.name", o, v),
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "n9"]),
)
_TERMS = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(_REQUIREMENTS, max_size=3),
        "matchFields": st.lists(_NAMES, max_size=2),
    },
)


def matches_slowly(term: Term, labels: dict[str, str], name: str) -> bool:
    """The API reference's words on NodeSelectorTerm, for one node."""
    all_of = [(r, labels) for r in term.get("matchExpressions", [])]
    all_of += [(r, {"metadata.name": name}) for r in term.get("matchFields", [])]
    return bool(all_of) and all(_holds_slowly(r, where) for r, where in all_of) and not _invalid(term)


def _invalid(term: Term) -> bool:
    return any(
        (r["operator"] in ("In", "NotIn") and not r["values"])
        or (r["operator"] in ("Gt", "Lt") and r["values"][0] in ("x", ""))
        for r in term.get("matchExpressions", [])
    )


def _holds_slowly(requirement: Requirement, labels: dict[str, str]) -> bool:
    value, values = labels.get(requirement["key"]), requirement["values"]
    match requirement["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
    if value in (None, "x", "") or values[0] in ("x", ""):
        return False
    assert value is not None
    return int(value) > int(values[0]) if requirement["operator"] == "Gt" else int(value) < int(values[0])


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(_LABELS, min_size=1, max_size=5), st.lists(_TERMS, max_size=3), _LABELS)
def test_arrays_answer_as_every_node_by_itself(
    labels: list[dict[str, str]], terms: list[Term], selector: dict[str, str]
) -> None:
    cluster = Cluster(*(node(f"n{i}", labels=own) for i, own in enumerate(labels)))
    weighted = [(3**i, term) for i, term in enumerate(terms)]
    affinity = {"nodeAffinity": {**required(*terms)["nodeAffinity"], **preferred(*weighted)["nodeAffinity"]}}
    plugin, template = NodeAffinity(), cluster.template(pod(affinity=affinity, nodeSelector=selector))
    matched = [[matches_slowly(term, own, f"n{i}") for term in terms] for i, own in enumerate(labels)]
    expected = [
        any(row) and selector.items() <= own.items() for row, own in zip(matched, labels, strict=True)
    ]
    mask = plugin.filter(cluster.state, template, cluster.view)
    assert mask is not None
    assert mask.tolist() == expected
    assert [plugin.cures(change, template, cluster.view) for change in cluster.changes] == expected
    sums = [sum(w for (w, _), hit in zip(weighted, row, strict=True) if hit) for row in matched]
    scores = plugin.score(cluster.state, template, cluster.view, np.arange(len(labels)))
    assert (np.zeros(len(labels)) if scores is None else scores).tolist() == [
        100 * one // max(sums) if max(sums) else 0 for one in sums
    ]


def test_a_label_that_no_node_has_is_found_as_soon_as_one_has_it() -> None:
    c = Cluster(*(node(f"n{i}") for i in range(3)))
    selecting = c.template(pod(nodeSelector={"disk": "ssd"}))
    lacking = c.template(pod(affinity=required(expressions(label("disk", "DoesNotExist")))))

    def found() -> list[list[str]]:
        plugin = NodeAffinity()
        return [c.names(plugin.filter(c.state, one, c.view)) for one in (selecting, lacking)]

    assert found() == [[], ["n0", "n1", "n2"]]
    for i in range(100):  # more rows than there are at first
        c.put(node(f"m{i:02}", labels={"disk": "hdd"} if i == 70 else {}))
    assert found()[0] == []
    assert "m70" not in found()[1]
    c.put(node("n1", labels={"disk": "ssd"}))
    assert found()[0] == ["n1"]
    c.cache.remove_node("m70")
    c.put(node("n1"))
    assert found()[0] == []
    assert len(found()[1]) == 102
    assert not c.cache.nodes.label_column("disk").values
    c.put(node("n2", labels={"disk": "ssd"}))
    assert found()[0] == ["n2"]

"""The dialects of other systems, as their users and controllers write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from gangsched.errors import ParseError
from gangsched.model import pod_group as pg
from gangsched.model.objects import CustomObject
from gangsched.model.pod_group import GroupKey, PodGroup, group_from_pod, group_key, identity_of, role_of
from gangsched.model.stated.topology import TopologyLevel
from tests.model.test_pod_group import pod

KOORDINATOR = "gang.scheduling.koordinator.sh/"
YUNIKORN = "yunikorn.apache.org/"


def from_object(dialect: str, spec: Any, annotations: dict[str, str] | None = None) -> PodGroup:
    metadata = {"name": "g", "namespace": "team-a", "uid": "u", "annotations": annotations}
    item = msgspec.convert({"metadata": metadata, "spec": spec}, CustomObject)
    return pg.group_from_object(dialect, "v", item)


def said(labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None) -> PodGroup:
    one = pod(labels, annotations)
    return group_from_pod(group_key(one), one)


# -- Volcano -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
def test_volcano_names_the_group_in_an_annotation(key: str) -> None:
    one = pod(annotations={key: "job-1", "volcano.sh/task-spec": "worker"})
    found = group_key(one)
    assert found == GroupKey("volcano", "team-a", "job-1")
    assert pg.needs_object(found)
    assert role_of(found, one) == "worker"


def test_volcanos_pod_group() -> None:
    spec = {
        "minMember": 5,
        "minTaskMember": {"ps": 1, "worker": 4},
        "queue": "q",
        "minResources": {"cpu": "5"},
    }
    found = from_object("volcano", spec)
    assert (found.min_count, found.roles) == (5, {"ps": 1, "worker": 4})
    assert found.min_resources == {"cpu": 5000}
    assert not found.unsupported


def test_volcanos_tasks_have_no_minimum_where_the_gang_may_start_with_fewer() -> None:
    """As in Volcano: an elastic job's tasks say all their replicas, its minMember fewer."""
    assert from_object("volcano", {"minMember": 3, "minTaskMember": {"ps": 1, "worker": 4}}).roles == {}
    assert from_object("volcano", {"minMember": 5, "minTaskMember": {"ps": 0, "worker": 4}}).roles == {
        "worker": 4
    }


@pytest.mark.parametrize("spec", [{}, {"minMember": 0}, {"minMember": None}, None])
def test_volcanos_pod_group_without_a_number_starts_with_one(spec: Any) -> None:
    assert from_object("volcano", spec).min_count == 1


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ({"subGroupPolicy": [{"name": "a", "subGroupSize": 2}]}, "spec.subGroupPolicy"),
        ({"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}, "spec.networkTopology"),
        ({"networkTopology": {"highestTierAllowed": 1}}, "spec.networkTopology"),
    ],
    ids=str,
)
def test_features_of_volcano_that_we_lack_are_reported(spec: Any, what: str) -> None:
    (told,) = from_object("volcano", {"minMember": 2, **spec}).unsupported
    assert told.startswith(what)
    assert from_object("volcano", {"networkTopology": {"mode": "soft"}}).unsupported == ()


def test_our_annotation_states_in_labels_volcanos_topology_in_tiers() -> None:
    spec = {"minMember": 2, "networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
    found = from_object("volcano", spec, {"gangsched.io/topology": "required: example.com/rack"})
    assert (found.topology, found.unsupported) == ((TopologyLevel("example.com/rack"),), ())
    # What is only preferred is no constraint, and would be one fewer than its user asked for.
    found = from_object("volcano", spec, {"gangsched.io/topology": "preferred: example.com/rack"})
    assert len(found.unsupported) == 1


# -- KAI ---------------------------------------------------------------------------------------------


def test_kai_names_the_group_in_an_annotation_and_the_subgroup_in_a_label() -> None:
    one = pod({"kai.scheduler/subgroup-name": "workers"}, {"pod-group-name": "pg-1"})
    found = group_key(one)
    assert found == GroupKey("kai", "team-a", "pg-1")
    assert role_of(found, one) == "workers"


def test_kais_subgroups_say_how_many_start_together() -> None:
    groups = [
        {"name": "decode", "minMember": 7},
        {"name": "leaders", "minMember": 1, "parent": "Decode"},
        {"name": "workers", "minMember": 4, "parent": "decode"},
        {"name": "router"},
    ]
    found = from_object("kai", {"minMember": 9, "queue": "q", "subGroups": groups})
    assert found.roles == {"leaders": 1, "workers": 4}
    assert found.known_roles == ("leaders", "workers", "router")
    assert found.min_count == 5
    assert from_object("kai", {"minMember": 9}).min_count == 9
    assert from_object("kai", {}).min_count == 1


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ("ab", "needs a name"),
        ({"a": 1}, "not a list"),
        ([{"minMember": 1}], "needs a name"),
        ([{"name": 3}], "needs a name"),
        ([{"name": "a"}, {"name": "a"}], "twice"),
        ([{"name": "a", "parent": "z"}], "does not exist"),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "its own ancestor"),
        ([{"name": "a", "parent": "a"}], "its own ancestor"),
        ([{"name": "a", "minMember": -1}], "whole number"),
        ([{"name": str(i), "minMember": 100_000} for i in range(2)], "more than 100000"),
        ([{"name": str(i)} for i in range(1001)], "at most 1000"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_subgroups_that_make_no_sense_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        from_object("kai", {"subGroups": groups})
    assert str(caught.value.field).startswith("spec.subGroups")


def test_features_of_kai_that_we_lack_are_reported() -> None:
    in_a_rack = {"name": "a", "topologyConstraint": {"requiredTopologyLevel": "rack"}}
    rather = {"name": "a", "topologyConstraint": {"preferredTopologyLevel": "rack"}}
    for spec in (
        {"subGroups": [in_a_rack, {"name": "b"}]},
        {"subGroups": [rather, {"name": "b"}]},
        {"preemptibility": "non-preemptible"},
    ):
        assert len(from_object("kai", spec).unsupported) == 1


def test_kais_levels_of_topology_are_labels_of_nodes() -> None:
    asked = {"topology": "t", "preferredTopologyLevel": "example.com/rack", "requiredTopologyLevel": "zone"}
    levels = (TopologyLevel("zone"), TopologyLevel("example.com/rack", required=False))
    found = from_object("kai", {"topologyConstraint": asked})
    assert (found.topology, found.unsupported) == (levels, ())
    only = [{"name": "a", "minMember": 2, "topologyConstraint": asked}]
    assert from_object("kai", {"subGroups": only}).topology == levels
    own = {"gangsched.io/topology": "preferred: host"}
    assert from_object("kai", {"topologyConstraint": asked}, own).topology == (
        *levels,
        TopologyLevel("host", required=False),
    )


@pytest.mark.parametrize("level", ["no label", 7, ["zone"], {"a": 1}])
def test_a_level_of_kais_that_is_no_label_is_refused(level: Any) -> None:
    with pytest.raises(ParseError, match="is not a label key") as caught:
        from_object("kai", {"topologyConstraint": {"requiredTopologyLevel": level}})
    assert caught.value.field == "spec.topologyConstraint.requiredTopologyLevel"
    with pytest.raises(ParseError, match="is not an object"):
        from_object("kai", {"topologyConstraint": [level]})


# -- Koordinator -------------------------------------------------------------------------------------


def test_koordinators_annotations() -> None:
    own = {
        "name": "a", "min-available": "3", "total-number": "5", "waiting-time": "10m", "mode": "NonStrict",
        "groups": '["team-a/a","team-b/b"]', "match-policy": "once-satisfied",
    }  # fmt: skip
    one = pod(annotations={KOORDINATOR + key: value for key, value in own.items()})
    assert group_key(one) == GroupKey("koordinator", "team-a", "a")
    found = group_from_pod(group_key(one), one)
    assert (found.min_count, found.total_count, found.schedule_timeout_s) == (3, 0, 600.0)
    assert found.start_together == ("team-a/a", "team-b/b")
    assert not found.unsupported


@pytest.mark.parametrize("time", ["0", "0s", ""])
def test_koordinators_waiting_time_of_nothing_is_none_given(time: str) -> None:
    own = {KOORDINATOR + "name": "a", KOORDINATOR + "min-available": "3", KOORDINATOR + "waiting-time": time}
    assert said(annotations=own).schedule_timeout_s is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("min-available", None),
        ("min-available", "many"),
        ("total-number", "2"),
        ("waiting-time", "soon"),
        ("mode", "strict"),
        ("groups", "b"),
        ("match-policy", "always"),
    ],
    ids=str,
)
def test_mistakes_in_koordinators_annotations_name_their_key(key: str, value: str | None) -> None:
    own = {KOORDINATOR + "name": "a", KOORDINATOR + "min-available": "3"}
    own |= {} if value is None else {KOORDINATOR + key: value}
    if value is None:
        del own[KOORDINATOR + key]
    with pytest.raises(ParseError) as caught:
        said(annotations=own)
    assert caught.value.field == KOORDINATOR + key


@pytest.mark.parametrize("policy", ["only-waiting", "waiting-and-running"])
@pytest.mark.parametrize(
    "key", [KOORDINATOR + "match-policy", "pod-group.scheduling.sigs.k8s.io/match-policy"]
)
def test_koordinators_other_match_policies_are_reported(key: str, policy: str) -> None:
    (told,) = said(
        annotations={KOORDINATOR + "name": "a", KOORDINATOR + "min-available": "3", key: policy}
    ).unsupported
    assert told.startswith(f"{key}: {policy}")
    (again,) = from_object("coscheduling", {"minMember": 2}, {key: policy}).unsupported
    assert again == told


def test_koordinators_pod_group_lists_the_gangs_that_start_together() -> None:
    found = from_object("coscheduling", {"minMember": 2}, {KOORDINATOR + "groups": '["team-a/g","team-a/b"]'})
    assert found.start_together == ("team-a/b", "team-a/g")


# -- YuniKorn ----------------------------------------------------------------------------------------


def tasks(**groups: int) -> str:
    found = [
        {"name": name, "minMember": n, "minResource": {"cpu": "1"}, "tolerations": []}
        for name, n in groups.items()
    ]
    return json.dumps(found)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"applicationId": "app-1"}, {}),
        ({YUNIKORN + "app-id": "app-1"}, {}),
        ({"spark-app-selector": "app-1"}, {}),
        ({}, {YUNIKORN + "app-id": "app-1"}),
        ({YUNIKORN + "app-id": "app-1", "applicationId": "other"}, {YUNIKORN + "app-id": "third"}),
    ],
    ids=str,
)
def test_yunikorns_application_with_task_groups_is_a_gang(labels: Any, annotations: Any) -> None:
    own = {YUNIKORN + "task-group-name": "w", YUNIKORN + "task-groups": tasks(w=3, d=1), **annotations}
    one = pod(labels, own)
    assert group_key(one) == GroupKey("yunikorn", "team-a", "app-1")
    assert role_of(group_key(one), one) == "w"
    found = group_from_pod(group_key(one), one)
    assert (found.min_count, found.roles, found.known_roles) == (4, {"w": 3, "d": 1}, ("", "w", "d"))


def test_yunikorns_application_without_task_groups_is_no_gang() -> None:
    assert group_key(pod({"applicationId": "app-1"})).dialect == "pod"


def test_yunikorns_timeout() -> None:
    own = {
        YUNIKORN + "task-groups": tasks(w=2),
        YUNIKORN + "schedulingPolicyParameters": "placeholderTimeoutInSeconds=30 gangSchedulingStyle=Hard",
    }
    assert said({"applicationId": "a"}, own).schedule_timeout_s == 30.0


@pytest.mark.parametrize(
    "text",
    [
        "", "w", "{}", "[]", "[1]", '[{"name": "w"}]', '[{"name": "w", "minMember": "2"}]', "[" * 1000,
        '[{"name": "w", "minMember": 0}]', '[{"name": "", "minMember": 1}]', " " * 300_000,
        '[{"name": "w", "minMember": 1}, {"name": "w", "minMember": 2}]', tasks(a=100_000, b=1),
        '[{"name": "w", "minMember": 1e400}]',
    ],
    ids=lambda text: text[:40],
)  # fmt: skip
def test_task_groups_that_make_no_sense_are_refused(text: str) -> None:
    own = {YUNIKORN + "task-group-name": "w", YUNIKORN + "task-groups": text}
    with pytest.raises(ParseError) as caught:
        said({"applicationId": "a"}, own)
    assert str(caught.value.field).startswith(YUNIKORN + "task-groups")


def test_a_spark_driver_that_makes_its_own_executors_gets_a_message() -> None:
    own = {YUNIKORN + "task-group-name": "driver", YUNIKORN + "task-groups": tasks(driver=1, executor=2)}
    with pytest.raises(ParseError, match="could never gather"):
        said({"applicationId": "a", "spark-role": "driver"}, own)


# -- all of them -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", pg.DIALECTS, ids=lambda dialect: dialect.name)
def test_what_puts_a_pod_into_its_group_is_part_of_what_identifies_it(dialect: Any) -> None:
    plain = identity_of(pod())
    for key in (*dialect.labels, *dialect.role_labels, *dialect.stated_labels):
        assert identity_of(pod({key: "x"})) != plain
    for key in (*dialect.annotations, *dialect.role_annotations, *dialect.stated_annotations):
        assert identity_of(pod(annotations={key: "x"})) != plain


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({"volcano.sh/task-spec": "w"}, {}),
        ({}, {"volcano.sh/task-spec": "w"}),
        ({}, {"scheduling.volcano.sh/group-min-member": "3"}),
        ({"kai.scheduler/subgroup-name": "w"}, {}),
        ({}, {KOORDINATOR + "min-available": "3"}),
        ({}, {YUNIKORN + "task-groups": "[]"}),
        ({}, {YUNIKORN + "task-group-name": "w"}),
        ({"pod-group.scheduling.sigs.k8s.io/min-available": "2"}, {}),
        ({"kueue.x-k8s.io/pod-group-name": "g"}, {}),
    ],
    ids=str,
)
def test_a_mark_without_a_group_is_reported(labels: dict[str, str], annotations: dict[str, str]) -> None:
    one = pod(labels, annotations)
    key = group_key(one)
    assert key.dialect == "pod"
    (told,) = group_from_pod(key, one).unsupported
    assert told.startswith(next(iter({**labels, **annotations})))
    assert identity_of(one) != identity_of(pod())


def test_marks_that_ask_for_nothing_together_are_no_matter() -> None:
    serving = {"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-serving": "true"}
    for marks in (serving, ({"kai.scheduler/queue": "q"}, {}), ({"applicationId": "a"}, {})):
        assert said(*marks).unsupported == ()

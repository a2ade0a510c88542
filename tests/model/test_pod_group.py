"""Pod groups: which group a pod names, and what the dialects say it asks for."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.model import pod_group as pg
from gangsched.model.dialects.numbers import parse_duration_s
from gangsched.model.objects import CustomObject, Pod
from gangsched.model.pod_group import GroupKey, group_from_pod, group_key, needs_object


def pod(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None, group: str | None = None
) -> Pod:
    metadata = {
        "name": "p-0",
        "namespace": "team-a",
        "uid": "u",
        "labels": labels,
        "annotations": annotations,
    }
    spec: dict[str, Any] = {"schedulingGroup": {"podGroupName": group}} if group is not None else {}
    return msgspec.convert({"metadata": metadata, "spec": spec}, Pod)


# -- which group -------------------------------------------------------------------------------------


def test_a_pod_that_names_no_group_is_a_group_of_one() -> None:
    key = group_key(pod())
    assert key == GroupKey("pod", "team-a", "p-0", "u")
    assert str(key) == "team-a/p-0"
    assert not needs_object(key)
    assert group_from_pod(key, pod()).min_count == 1
    assert group_key(pod(labels={pg.GROUP_LABEL: ""}, group="")) == key


@pytest.mark.parametrize(
    ("labels", "dialect", "has_object"),
    [
        ({"gangsched.io/pod-group": "g"}, "gangsched", False),
        ({"scheduling.x-k8s.io/pod-group": "g"}, "coscheduling", True),
        ({"pod-group.scheduling.sigs.k8s.io": "g"}, "coscheduling", True),
        ({"pod-group.scheduling.sigs.k8s.io/name": "g"}, "lightweight", False),
    ],
)
def test_every_dialect_names_the_group_by_its_label(
    labels: dict[str, str], dialect: str, has_object: bool
) -> None:
    key = group_key(pod(labels))
    assert key == GroupKey(dialect, "team-a", "g")
    assert needs_object(key) is has_object


def test_the_core_api_names_it_in_the_spec() -> None:
    key = group_key(pod(group="g"))
    assert key == GroupKey("core", "team-a", "g")
    assert needs_object(key)


def test_one_name_in_two_dialects_is_the_group_with_an_object() -> None:
    both = {"gangsched.io/pod-group": "g", "scheduling.x-k8s.io/pod-group": "g"}
    assert group_key(pod(both)).dialect == "coscheduling"
    assert group_key(pod(both, group="g")).dialect == "core"


def test_two_names_are_refused_and_both_are_reported() -> None:
    labels = {"gangsched.io/pod-group": "a", "scheduling.x-k8s.io/pod-group": "b"}
    with pytest.raises(ParseError) as caught:
        group_key(pod(labels))
    assert "gangsched.io/pod-group names 'a'" in str(caught.value)
    assert "scheduling.x-k8s.io/pod-group names 'b'" in str(caught.value)


def test_groups_of_two_dialects_or_namespaces_are_never_one() -> None:
    ours, light = group_key(pod({pg.GROUP_LABEL: "g"})), group_key(pod({pg.LIGHTWEIGHT_NAME: "g"}))
    assert ours != light
    assert str(ours) == str(light) == "team-a/g"


# -- numbers on the pod ------------------------------------------------------------------------------


def numbers(annotations: dict[str, str]) -> pg.PodGroup:
    one = pod({pg.GROUP_LABEL: "g"}, annotations)
    return group_from_pod(group_key(one), one)


def test_our_annotations() -> None:
    found = numbers(
        {
            "gangsched.io/min-members": "8",
            "gangsched.io/total-members": "10",
            "gangsched.io/schedule-timeout": "1m30s",
            "gangsched.io/groups": '["data","other/train"]',
            "gangsched.io/on-partial-bind": "unwind",
        }
    )
    assert (found.min_count, found.total_count, found.schedule_timeout_s) == (8, 10, 90.0)
    assert found.start_together == ("other/train", "team-a/data", "team-a/g")
    assert found.on_partial_bind == "unwind"


def test_our_label_without_a_number_is_refused_with_what_to_write() -> None:
    with pytest.raises(ParseError, match="does not say how many pods start together") as caught:
        numbers({})
    assert caught.value.field == "gangsched.io/min-members"


def test_a_group_that_lists_only_itself_waits_for_no_other() -> None:
    one = {"gangsched.io/min-members": "1"}
    assert numbers({**one, "gangsched.io/groups": '["g"]'}).start_together == ()
    assert numbers({**one, "gangsched.io/groups": "[]"}).start_together == ()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("min-members", "0", "whole number from 1 to 100000"),
        ("min-members", "-1", "whole number"),
        ("min-members", "8.0", "whole number"),
        ("min-members", "eight", "whole number"),
        ("min-members", "٨", "whole number"),
        ("min-members", "8\n", "whole number"),
        ("min-members", "100001", "whole number"),
        ("total-members", "x", "whole number from 0"),
        ("schedule-timeout", "soon", "is not a duration"),
        ("schedule-timeout", "", "is not a duration"),
        ("schedule-timeout", "0s", "is not a positive duration"),
        ("schedule-timeout", "-5s", "is not a duration"),
        ("groups", "a,b", "is not a JSON list of groups"),
        ("groups", "[1]", "is not a JSON list of groups"),
        ("groups", str([f"g{i}" for i in range(65)]).replace("'", '"'), "at most 64"),
        ("on-partial-bind", "give-up", "neither complete nor unwind"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_mistakes_name_their_key(key: str, value: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        numbers({"gangsched.io/min-members": "1", f"gangsched.io/{key}": value})
    assert caught.value.field == f"gangsched.io/{key}"


def test_total_members_below_min_members_is_a_mistake() -> None:
    with pytest.raises(ParseError, match=r"4 is less than gangsched\.io/min-members, 8"):
        numbers({"gangsched.io/min-members": "8", "gangsched.io/total-members": "4"})


def test_the_lightweight_label_carries_the_number() -> None:
    one = pod({pg.LIGHTWEIGHT_NAME: "g", pg.LIGHTWEIGHT_MIN: "3"})
    assert group_from_pod(group_key(one), one).min_count == 3
    bad = pod({pg.LIGHTWEIGHT_NAME: "g", pg.LIGHTWEIGHT_MIN: "three"})
    with pytest.raises(ParseError):
        group_from_pod(group_key(bad), bad)


# -- numbers on an object ----------------------------------------------------------------------------


def from_object(dialect: str, spec: Any, annotations: dict[str, str] | None = None) -> pg.PodGroup:
    api_version = "scheduling.k8s.io/v1beta1" if dialect == pg.CORE else "scheduling.x-k8s.io/v1alpha1"
    metadata = {"name": "g", "namespace": "team-a", "uid": "u", "generation": 3, "annotations": annotations}
    item = msgspec.convert({"metadata": metadata, "spec": spec}, CustomObject)
    return pg.group_from_object(dialect, api_version, item)


def test_the_core_object() -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 8}}, "priority": 7}
    found = from_object(pg.CORE, spec, {"gangsched.io/total-members": "9"})
    assert (found.key, found.uid, found.generation) == (GroupKey("core", "team-a", "g"), "u", 3)
    assert (found.min_count, found.total_count, found.priority) == (8, 9, 7)
    assert found.status == {}


@pytest.mark.parametrize(
    "spec", [None, {}, {"schedulingPolicy": {"basic": {}}}, {"schedulingPolicy": "gang"}]
)
def test_a_core_object_without_a_gang_policy_schedules_its_pods_one_by_one(spec: Any) -> None:
    assert from_object(pg.CORE, spec).min_count == 1


def test_the_coscheduling_object() -> None:
    spec = {"minMember": 4, "scheduleTimeoutSeconds": 30, "minResources": {"cpu": "500m", "memory": "1Gi"}}
    found = from_object(pg.COSCHEDULING, spec)
    assert (found.min_count, found.schedule_timeout_s) == (4, 30.0)
    assert found.min_resources == {"cpu": 500, "memory": 2**30}
    assert from_object(pg.COSCHEDULING, {}).min_count == 1


@pytest.mark.parametrize("unsaid", [{}, {"scheduleTimeoutSeconds": 0}, {"scheduleTimeoutSeconds": None}])
def test_a_timeout_of_zero_seconds_is_a_timeout_not_given(unsaid: Any) -> None:
    """The MPI operator writes 0 unless its user writes a number."""
    assert from_object(pg.COSCHEDULING, {"minMember": 4, **unsaid}).schedule_timeout_s is None


@pytest.mark.parametrize(
    ("dialect", "spec", "field"),
    [
        (pg.CORE, {"schedulingPolicy": {"gang": {"minCount": 0}}}, "spec.schedulingPolicy.gang.minCount"),
        (pg.CORE, {"schedulingPolicy": {"gang": {"minCount": True}}}, "spec.schedulingPolicy.gang.minCount"),
        (pg.COSCHEDULING, {"minMember": "many"}, "spec.minMember"),
        (pg.COSCHEDULING, {"minMember": 1.5}, "spec.minMember"),
        (pg.COSCHEDULING, {"scheduleTimeoutSeconds": -1}, "spec.scheduleTimeoutSeconds"),
        (pg.COSCHEDULING, {"minResources": {"cpu": "x"}}, "spec.minResources.cpu"),
        (pg.COSCHEDULING, {"minResources": {"cpu": None}}, "spec.minResources.cpu"),
    ],
    ids=str,
)
def test_mistakes_in_objects_name_their_field(dialect: str, spec: Any, field: str) -> None:
    with pytest.raises(ParseError) as caught:
        from_object(dialect, spec)
    assert caught.value.field == field


def test_total_members_below_the_objects_number_is_a_mistake() -> None:
    with pytest.raises(ParseError) as caught:
        from_object(pg.COSCHEDULING, {"minMember": 8}, {"gangsched.io/total-members": "4"})
    assert caught.value.field == "gangsched.io/total-members"


# -- durations ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1h0m1.5s", 3601.5), ("45", 45), ("0.5s", 0.5)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text, "f") == seconds


@pytest.mark.parametrize("text", ["", "s", "1d", "5 m", "1m1h", "0", "0s", "٥", "1_0s", "1e3", "5ms", "²"])
def test_a_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        parse_duration_s(text, "f")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.text(max_size=20))
def test_any_text_is_a_finite_duration_or_a_parse_error(text: str) -> None:
    with contextlib.suppress(ParseError):
        assert 0 < parse_duration_s(text, "f") < float("inf")


def test_endless_digits_are_no_crash() -> None:
    for text in ("9" * 400 + "h", "9" * 5000, "9" * 5000 + "s"):
        with pytest.raises(ParseError, match="is not a duration"):
            parse_duration_s(text, "f")

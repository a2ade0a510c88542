"""`queues` in the configuration file: what it means, and each mistake with its place."""

from __future__ import annotations

import pytest
import yaml

from gangsched.config import parse_config
from gangsched.config.effective import effective_yaml
from gangsched.errors import ConfigError
from gangsched.plugins import IN_TREE
from tests.core.queued import settings_of

KUBE = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: one%s}]
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
"""
TREE = """
queueing: {}
fairness: {halfLife: 12h, compare: [cpu], otherQueues: read, reclaim: fair}
queues:
- name: top
  share: 2
  guaranteed: {nvidia.com/gpu: 4, cpu: 1500m}
  limit: {nvidia.com/gpu: "8"}
  queues:
  - {name: low, guaranteed: {nvidia.com/gpu: 4}, namespaces: [x, "y-*"], order: shortest, defaultWalltime: 1h}
  - {name: other, namespaces: [z], bound: 9}
"""


def test_without_queues_everything_is_as_it_was() -> None:
    config, settings = settings_of("")
    assert settings.queues is None
    assert config.profiles[0].plugins["queueSort"] == ("PrioritySort",)
    assert "Fairness" not in config.profiles[0].plugins["preEnqueue"]
    assert (
        not {"queues", "fairness"}
        & next(
            one
            for one in yaml.safe_load_all(effective_yaml(config))
            if one["kind"] == "GangschedConfiguration"
        ).keys()
    )


def test_the_tree_is_read_with_parents_first_and_written_as_it_was_read() -> None:
    config, settings = settings_of(TREE)
    known = settings.queues
    assert known is not None
    assert [(one.name, one.parent) for one in known.queues] == [("top", ""), ("low", "top"), ("other", "top")]
    assert known.queues[0].guaranteed == {"nvidia.com/gpu": 4, "cpu": 1500}
    assert (known.half_life_s, known.compare, known.reads_others) == (43_200.0, ("cpu",), True)
    assert known.reclaim == "fair"
    assert known.queues[1].default_walltime_s == 3600.0
    assert config.profiles[0].plugins["queueSort"] == ("Fairness",)
    again = parse_config(effective_yaml(config), source="again.yaml", plugins=IN_TREE)
    assert (again.settings, again.profiles) == (config.settings, config.profiles)


def test_a_queue_sort_that_the_file_names_stays() -> None:
    plugins = ", plugins: {queueSort: {enabled: [{name: Mine}], disabled: [{name: PrioritySort}]}}"
    known = {
        **IN_TREE,
        "Mine": type(IN_TREE["PrioritySort"])("Mine", frozenset(("queueSort",)), None, 0, False),
    }
    config = parse_config(KUBE % plugins + TREE, source="f.yaml", plugins=known)
    assert config.profiles[0].plugins["queueSort"] == ("Mine",)
    assert config.profiles[0].plugins["preEnqueue"][-1] == "Fairness"
    assert any("Mine orders the line" in note for note in config.notes)


def test_the_plugin_needs_queues() -> None:
    plugins = ", plugins: {preEnqueue: {enabled: [{name: Fairness}]}}"
    with pytest.raises(ConfigError, match="Fairness needs queues"):
        parse_config(KUBE % plugins, source="f.yaml", plugins=IN_TREE)


@pytest.mark.parametrize(
    ("queues", "path", "said"),
    [
        ("- {name: A, namespaces: [x]}", "queues[0].name", "'A' is not a name of 1 to 63"),
        ("- {name: a}", "queues[0]", "needs namespaces, or queues below it"),
        ("- {name: a, namespaces: [x], share: 0}", "queues[0].share", "0 is not greater than 0"),
        ("- {name: a, namespaces: [x], share: .nan}", "queues[0].share", "nan is not greater than 0"),
        ("- {name: a, namespaces: [X]}", "queues[0].namespaces[0]", "neither a namespace nor a prefix"),
        ("- {name: a, namespaces: ['*-x']}", "queues[0].namespaces[0]", "neither a namespace nor a prefix"),
        (
            "- {name: a, namespaces: [x]}\n- {name: b, namespaces: [y, x]}",
            "queues[1].namespaces[1]",
            "'x' is in queues[0].namespaces[0] already",
        ),
        (
            "- {name: a, namespaces: [x]}\n- {name: b, queues: [{name: a, namespaces: [y]}]}",
            "queues[1].queues[0].name",
            "'a' is the name of queues[0] already",
        ),
        (
            "- {name: a, namespaces: [x], queues: [{name: b, namespaces: [y]}]}",
            "queues[0]",
            "only a queue without queues below it has namespaces",
        ),
        (
            "- {name: a, guaranteed: {cpu: 1},"
            " queues: [{name: b, guaranteed: {cpu: 1500m}, namespaces: [y]}]}",
            "queues[0].guaranteed",
            "cpu: the queues below it are guaranteed 1500m together, it is guaranteed 1",
        ),
        (
            "- {name: a, guaranteed: {cpu: 2}, limit: {cpu: 1}, namespaces: [x]}",
            "queues[0].guaranteed.cpu",
            "2 is more than its limit, 1",
        ),
        (
            "- {name: a, guaranteed: {memory: 1.5Ti}, limit: {memory: 512Gi}, namespaces: [x]}",
            "queues[0].guaranteed.memory",
            "1536Gi is more than its limit, 512Gi",
        ),
        ("- {name: a, limit: {cpu: -1}, namespaces: [x]}", "queues[0].limit.cpu", "is less than 0"),
        ("- {name: a, limit: {cpu: much}, namespaces: [x]}", "queues[0].limit.cpu", "is not a quantity"),
        ("- {name: a, limit: {'a b': 1}, namespaces: [x]}", "queues[0].limit.a b", "is not the name of a"),
        ("- {name: a, bound: 0, namespaces: [x]}", "queues[0].bound", "0 is not auto or within 1..1000000"),
        ("- {name: a, queues: [{name: b, nmespaces: [y]}]}", "queues[0].queues[0].nmespaces", "namespaces?"),
    ],
)
def test_each_mistake_is_named_with_its_place(queues: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of(f"queues:\n{queues}\n")
    assert raised.value.path == path
    assert said in raised.value.message


@pytest.mark.parametrize("field", ["order: shortest", "defaultWalltime: 1h", "bound: 3"])
def test_what_needs_walltimes_is_refused_where_they_are_off(field: str) -> None:
    own = f"queues: [{{name: a, {field}, namespaces: [x]}}]\n"
    assert settings_of(own)[1].queues is not None
    with pytest.raises(ConfigError, match="needs queueing, which is off") as raised:
        settings_of(f"queueing: {{bound: {{mode: off}}}}\n{own}")
    assert raised.value.path == f"queues[0].{field.partition(':')[0]}"


def test_depth_and_number_are_bounded() -> None:
    deep = "{name: q9, namespaces: [x]}"
    for level in range(8, 0, -1):
        deep = f"{{name: q{level}, queues: [{deep}]}}"
    with pytest.raises(ConfigError, match="more than 8 levels deep"):
        settings_of(f"queues: [{deep}]\n")
    many = "".join(f"- {{name: q{i}, namespaces: [n{i}]}}\n" for i in range(1001))
    with pytest.raises(ConfigError, match="more than 1000 queues"):
        settings_of(f"queues:\n{many}")


def test_fairness_needs_queues_and_sensible_values() -> None:
    for ours, path in (
        ("fairness: {}\n", "fairness"),
        ("fairness: {halfLife: -1s}\nqueues: [{name: a, namespaces: [x]}]\n", "fairness.halfLife"),
        ("fairness: {compare: []}\nqueues: [{name: a, namespaces: [x]}]\n", "fairness.compare"),
    ):
        with pytest.raises(ConfigError) as raised:
            settings_of(ours)
        assert raised.value.path == path


GUARANTEED = (
    "queues: [{name: a, guaranteed: {nvidia.com/gpu: 8}, namespaces: [x]}, {name: b, namespaces: [z]}]\n"
)
_LEFT = "what others have borrowed of a guarantee is got back only as their pods end"


@pytest.mark.parametrize(
    ("ours", "note"),
    [
        (GUARANTEED, ""),
        (f"allowEviction: false\n{GUARANTEED}", f"queues: allowEviction is false, so {_LEFT}"),
        (f"fairness: {{reclaim: never}}\n{GUARANTEED}", f"fairness.reclaim: never: {_LEFT}"),
        (
            GUARANTEED.replace("namespaces: [x]", "limit: {cpu: 0}, namespaces: [x]"),
            "queue a: its limit of 0 cpu keeps out all pods that ask for cpu, whatever is guaranteed to it",
        ),
    ],
)
def test_a_guarantee_that_nothing_gives_back_is_noted(ours: str, note: str) -> None:
    notes = settings_of(ours)[0].notes
    assert (note in notes) if note else not any("guarantee" in one for one in notes)


def test_a_profile_that_does_not_preempt_is_noted() -> None:
    off = ", plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}"
    notes = parse_config(KUBE % off + GUARANTEED, source="f.yaml", plugins=IN_TREE).notes
    assert any("postFilter: DefaultPreemption is disabled" in one for one in notes)


@pytest.mark.parametrize(
    ("tree", "path"),
    [
        ("{name: a, limit: {cpu: 4}, guaranteed: {cpu: 8}, namespaces: [x]}", "queues[0].guaranteed.cpu"),
        (
            "{name: a, limit: {cpu: 4}, queues: [{name: b, guaranteed: {cpu: 8}, namespaces: [x]}]}",
            "queues[0].guaranteed",
        ),
        (
            "{name: a, limit: {cpu: 8}, guaranteed: {cpu: 8}, queues: ["
            "{name: b, guaranteed: {cpu: 6}, namespaces: [x]}, "
            "{name: c, guaranteed: {cpu: 6}, namespaces: [y]}]}",
            "queues[0].guaranteed",
        ),
        (
            "{name: a, limit: {cpu: 4}, guaranteed: {cpu: 8}, queues: [{name: b, guaranteed: {cpu: 8}, "
            "queues: [{name: c, guaranteed: {cpu: 8}, namespaces: [x]}]}]}",
            "queues[0].guaranteed.cpu",
        ),
    ],
)
def test_no_guarantee_is_above_a_limit_of_its_queue_or_of_one_above_it(tree: str, path: str) -> None:
    with pytest.raises(ConfigError) as raised:
        settings_of(f"queues: [{tree}]\n")
    assert raised.value.path == path

"""`queueing` in the configuration file: what it means, and each mistake with its path."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.config import Settings, on_trial, parse_config
from gangsched.config.queueing import QueueingSettings
from gangsched.errors import ConfigError
from gangsched.plugins import IN_TREE

TEXT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: one}, {schedulerName: two}, {schedulerName: three}]
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
"""


def queueing(ours: str) -> QueueingSettings | None:
    return parse_config(TEXT + ours, source="f.yaml", plugins=IN_TREE).settings.queueing


def test_gangs_are_protected_unless_it_is_off() -> None:
    default = QueueingSettings(mode="budget", gangs_alone=True)
    assert queueing("") == replace(default, writes_estimates=False)
    assert queueing("queueing: {}") == default
    assert queueing("queueing: {bound: {groups: 7}}") == replace(default, bound=7)
    assert queueing("queueing: {defaultWalltime: 1h}") == replace(
        default, default_walltime_s=dict.fromkeys(("one", "two", "three"), 3600.0)
    )
    assert queueing("queueing: {bound: {protects: all}, estimates: asked}") == QueueingSettings(
        mode="budget", writes_estimates=False
    )
    assert queueing("queueing: {bound: {mode: hard, protects: gangs}}") == QueueingSettings(
        mode="hard", gangs_alone=True
    )


@pytest.mark.parametrize("text", ["off", "'off'", "OFF", "no", "false"])
def test_off_is_off_with_and_without_quotes(text: str) -> None:
    assert queueing(f"queueing: {{bound: {{mode: {text}}}}}") is None


def test_a_mode_that_is_written_protects_lone_pods_too() -> None:
    assert queueing("queueing: {bound: {groups: auto, mode: shadow}}") == QueueingSettings()
    assert queueing("queueing: {bound: {mode: budget}}") == QueueingSettings(mode="budget", idle_share=0.1)
    assert queueing("queueing: {bound: {mode: hard}, onOverrun: yield}") == QueueingSettings(
        mode="hard", on_overrun="yield"
    )
    assert queueing("queueing: {bound: {mode: shadow}, onOverrun: evict}") == QueueingSettings(
        on_overrun="evict"
    )
    assert queueing("queueing: {bound: {mode: budget, idlePercent: 25}}") == QueueingSettings(
        mode="budget", idle_share=0.25
    )


def test_a_profiles_default_goes_before_that_of_all_and_may_be_none() -> None:
    found = queueing(
        "queueing: {bound: {mode: shadow}, defaultWalltime: 24h}\n"
        "profiles:\n"
        "- {schedulerName: two, defaultWalltime: 1h30m}\n"
        "- {schedulerName: three, defaultWalltime: ''}\n"
    )
    assert found == QueueingSettings(None, {"one": 86_400.0, "two": 5400.0})


@pytest.mark.parametrize(
    ("ours", "path", "said"),
    [
        ("queueing: {bound: {groups: 0}}", "queueing.bound.groups", "0 is not auto or within 1..1000000"),
        ("queueing: {bound: {groups: many}}", "queueing.bound.groups", "many"),
        ("queueing: {bound: {mode: harder}}", "queueing.bound.mode", "harder"),
        (
            "queueing: {bound: {mode: hard, idlePercent: 5}}",
            "queueing.bound.idlePercent",
            "needs mode: budget",
        ),
        ("queueing: {bound: {mode: budget, idlePercent: 0}}", "queueing.bound.idlePercent", "within 1..100"),
        ("queueing: {bound: {mode: shadow}, onOverrun: yield}", "queueing.onOverrun", "needs claims"),
        ("queueing: {bound: {mode: shadow}, onOverrun: none}", "queueing.onOverrun", "needs claims"),
        ("queueing: {bound: {mode: hard}, onOverrun: kill}", "queueing.onOverrun", "kill"),
        ("queueing: {bounds: {}}", "queueing", "bounds"),
        ("queueing: {defaultWalltime: 24 hours}", "queueing.defaultWalltime", "is not a duration"),
        ("queueing: {defaultWalltime: 0s}", "queueing.defaultWalltime", "'0s' is not longer than 0"),
        ("queueing: {defaultWalltime: -1h}", "queueing.defaultWalltime", "'-1h' is not longer than 0"),
        ("queueing: {defaultWalltime: 99999999h}", "queueing.defaultWalltime", "at most 87840h"),
        (
            "queueing: {}\nprofiles: [{schedulerName: two, defaultWalltime: x}]",
            "profiles[0].defaultWalltime",
            "'x' is not a duration",
        ),
        (
            "queueing: {bound: {mode: off}}\nprofiles: [{schedulerName: two, defaultWalltime: 1h}]",
            "profiles[0].defaultWalltime",
            "needs queueing, which is off: queueing.bound.mode is off",
        ),
        ("queueing: {bound: {mode: off, groups: 9}}", "queueing.bound.groups", "needs queueing"),
        ("queueing: {bound: {mode: off, protects: all}}", "queueing.bound.protects", "needs queueing"),
        ("queueing: {bound: {mode: off}, onOverrun: evict}", "queueing.onOverrun", "needs queueing"),
        ("queueing: {bound: {mode: off}, estimates: asked}", "queueing.estimates", "needs queueing"),
        ("queueing: {bound: {mode: off}, defaultWalltime: 1h}", "queueing.defaultWalltime", "needs queueing"),
        ("queueing: {bound: {mode: on}}", "queueing.bound.mode", "True is not one of off, shadow"),
        ("queueing: {bound: {protects: pods}}", "queueing.bound.protects", "is not one of gangs, all"),
    ],
)
def test_a_mistake_names_its_place(ours: str, path: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        queueing(ours)
    assert caught.value.path.startswith(path)
    assert said in str(caught.value)


def test_a_question_evicts_for_who_starts_and_for_no_walltime() -> None:
    own = QueueingSettings(on_overrun="evict")
    found = on_trial(Settings(queueing=own), allow_eviction=True)
    assert found.queueing == QueueingSettings(on_overrun="yield")
    assert found.allow_eviction
    assert not on_trial(Settings(queueing=own), allow_eviction=False).allow_eviction
    assert not on_trial(Settings(allow_eviction=False), allow_eviction=True).allow_eviction

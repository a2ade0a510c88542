"""The in-tree table and the profiles built from it."""

from __future__ import annotations

from gangsched.config import default_config, parse_config
from gangsched.core.framework.interface import CuringPlugin, Plugin
from gangsched.plugins import IN_TREE, build_profiles

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_the_default_profile_runs_everything_in_kube_schedulers_order() -> None:
    profile = build_profiles(default_config(IN_TREE))["gangsched"]
    assert profile.queue_sort.name == "PrioritySort"
    assert [plugin.name for plugin in profile.pre_enqueue] == ["SchedulingGates"]
    assert [plugin.name for plugin in profile.filtering.fixed] == [
        "NodeName",
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeDeclaredFeatures",
    ]
    capacities = [plugin.name for plugin in profile.filtering.capacities]
    assert capacities == [
        *("NodePorts", "NodeResourcesFit", "DynamicResources", "Devices", "RemainingBandwidth"),
    ]
    assert [(plugin.name, weight) for plugin, weight in profile.scoring.scores] == [
        ("TaintToleration", 3.0),
        ("NodeAffinity", 2.0),
        ("NodeResourcesFit", 1.0),
        ("VolumeBinding", 1.0),
        ("PodTopologySpread", 2.0),
        ("InterPodAffinity", 2.0),
        ("DynamicResources", 2.0),
        ("NodeResourcesBalancedAllocation", 1.0),
        ("ImageLocality", 1.0),
        ("RemainingBandwidth", 1.0),
    ]
    assert [plugin.name for plugin in profile.permits] == ["GangScheduling"]


def test_one_plugin_object_serves_all_points_of_a_profile_and_no_other_profile() -> None:
    text = HEAD + "profiles: [{schedulerName: one}, {schedulerName: two}]\n"
    profiles = build_profiles(parse_config(text, source="x", plugins=IN_TREE))
    one, two = profiles["one"], profiles["two"]
    assert id(one.filtering.capacities[1]) == id(one.scoring.scores[2][0])
    assert id(one.filtering.capacities[1]) != id(two.filtering.capacities[1])


def test_every_plugin_is_named_as_the_table_says_and_says_what_cures_it() -> None:
    profile = build_profiles(default_config(IN_TREE))["gangsched"]
    made: list[Plugin] = [*profile.filtering.fixed, *profile.filtering.capacities, *profile.permits]
    assert all(isinstance(plugin, CuringPlugin) for plugin in made)
    assert {plugin.name for plugin in made} <= set(IN_TREE)
    assert all(name == info.name for name, info in IN_TREE.items())

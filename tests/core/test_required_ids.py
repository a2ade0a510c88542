"""Required device IDs: pods that need them go only to nodes that list their devices, and say why not."""

from __future__ import annotations

import json

import pytest

from gangsched.config import Settings, parse_config
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError
from gangsched.lab.sim.objects import GPU, make_node, make_pod, make_pod_group
from gangsched.model.devices.required_ids import REQUIRE_IDS_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster, gang, with_annotations

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
REASON = f"node(s) did not list their {GPU}, whose IDs must be known"
REQUIRED = {REQUIRE_IDS_KEY: GPU}


def configured(profile: str = "", ours: str = "") -> Cluster:
    """With the plugins and the settings of a file."""
    text = f"{HEAD}profiles: [{{schedulerName: gangsched{profile}}}]\n"
    text += f"---\napiVersion: gangsched.io/v1\nkind: GangschedConfiguration\n{ours}\n" if ours else ""

    def make(settings: Settings) -> Scheduler:
        return Scheduler(build_profiles(parse_config(text, source="", plugins=IN_TREE)), settings)

    return Cluster(make=make)


def counted_and_listed(c: Cluster) -> Cluster:
    """Two nodes of which only devices' number is known, and one, `listed`, with fewer that have IDs."""
    for name in ("counts-0", "counts-1"):
        c.node(make_node(name, gpus=8, listed=False))
    return c.node(make_node("listed", gpus=4))


@pytest.mark.parametrize("said", [GPU, "true", f" {GPU} "])
def test_a_pod_that_requires_ids_goes_where_they_are_listed(said: str) -> None:
    c = counted_and_listed(Cluster())
    c.submit(make_pod("p", gpus=4, annotations={REQUIRE_IDS_KEY: said})).run()
    assert c.pod("p").spec.node_name == "listed"
    assert len(c.ids("p")) == 4


def test_it_waits_with_the_reason_until_a_node_lists_them() -> None:
    c = Cluster().node(make_node("n", gpus=8, listed=False))
    c.submit(with_annotations(gang("a", pods=2, gpus=4), REQUIRED)).run()
    assert c.n_bound() == 0
    assert f"1 {REASON}" in c.said("a-0")
    c.node(make_node("n", gpus=8)).wait(12.0)
    assert c.n_bound() == 2
    assert len({*c.ids("a-0"), *c.ids("a-1")}) == 8


def test_without_the_demand_a_node_that_counts_will_do() -> None:
    c = Cluster().node(make_node("n", gpus=8, listed=False))
    c.submit(make_pod("p", gpus=4), make_pod("q", gpus=4, annotations={REQUIRE_IDS_KEY: "false"})).run()
    assert [c.pod(name).spec.node_name for name in ("p", "q")] == ["n", "n"]
    assert not c.ids("p")


def test_a_group_requires_them_for_all_its_members() -> None:
    c = Cluster().node(make_node("n", gpus=8, listed=False))
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2}, annotations=REQUIRED))
    label = {"scheduling.x-k8s.io/pod-group": "a"}
    c.submit([make_pod(f"a-{k}", gpus=2, labels=label) for k in range(2)]).run()
    assert c.n_bound() == 0
    assert REASON in c.said("a-0")
    c.object("coscheduling", make_pod_group("a", spec={"minMember": 2})).wait(12.0)
    assert c.n_bound() == 2


@pytest.mark.parametrize(
    ("profile", "ours"),
    [
        (f", pluginConfig: [{{name: Devices, args: {{require: [{GPU}]}}}}]", ""),
        ("", f"devices: {{require: [{GPU}]}}"),
    ],
    ids=["profile", "all profiles"],
)
def test_a_profile_or_the_settings_require_them(profile: str, ours: str) -> None:
    c = counted_and_listed(configured(profile, ours))
    c.submit(make_pod("p", gpus=4), make_pod("cpu", gpus=0), make_pod("q", gpus=8)).run()
    assert c.pod("p").spec.node_name == "listed"
    assert c.pod("cpu").spec.node_name
    assert f"2 {REASON}" in c.said("q")


def test_no_pod_is_evicted_for_a_node_that_lists_nothing() -> None:
    c = Cluster().node(make_node("n", gpus=8, listed=False))
    c.submit(make_pod("low", gpus=8)).run()
    c.submit(make_pod("high", gpus=8, priority=9, annotations=REQUIRED)).run()
    assert c.pod("low").spec.node_name == "n"
    assert not c.pod("high").spec.node_name


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("gpus", "'gpus' is neither an extended resource such as nvidia.com/gpu nor true or false"),
        ("example.com/fpga", "no container asks for example.com/fpga"),
        ("x" * 3000, "has 3000 characters, at most 2048"),
    ],
    ids=["no resource", "not requested", "too long"],
)
def test_what_cannot_be_required_is_refused_with_the_reason(said: str, told: str) -> None:
    c = counted_and_listed(Cluster())
    c.submit(make_pod("p", gpus=4, annotations={REQUIRE_IDS_KEY: said})).run()
    assert not c.pod("p").spec.node_name
    assert told in c.said("p")
    assert REQUIRE_IDS_KEY in c.said("p")


def test_a_profile_without_the_plugin_refuses_pods_that_require_them() -> None:
    c = configured(", plugins: {multiPoint: {disabled: [{name: Devices}]}}").node(make_node("n", gpus=8))
    c.submit(make_pod("p", gpus=1, annotations=REQUIRED)).run()
    assert not c.pod("p").spec.node_name
    assert f"{REQUIRE_IDS_KEY}: the plugin Devices is off" in c.said("p")


@pytest.mark.parametrize(
    ("profile", "ours", "path", "told"),
    [
        ("", "devices: {require: [gpu]}", "devices.require[0]", "'gpu' is not an extended resource"),
        ("", f"devices: {{require: [{GPU}], handOff: {{{GPU}: count}}}}", "devices.require[0]", "counts"),
        (", plugins: {multiPoint: {disabled: [{name: Devices}]}}", f"devices: {{require: [{GPU}]}}",
         "devices.require", "profiles[0] does not run the plugin Devices"),
        (", pluginConfig: [{name: Devices, args: {require: [gpu]}}]", "",
         "profiles[0].pluginConfig[0].args.require[0]", "'gpu' is not an extended resource"),
        (f", pluginConfig: [{{name: Devices, args: {{require: [{GPU}]}}}}]",
         f"devices: {{handOff: {{{GPU}: count}}}}", "profiles[0].pluginConfig: Devices.args.require",
         "counts"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_met_names_its_place(profile: str, ours: str, path: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(profile, ours)
    assert caught.value.path == path
    assert told in caught.value.message


def test_a_drawn_cluster_never_gives_a_pod_that_requires_ids_a_node_without() -> None:
    """All of 40 pods on ten nodes of which every other lists its devices."""
    c = Cluster()
    for i in range(10):
        c.node(make_node(f"n{i}", gpus=8, listed=i % 2 == 0))
    pods = [make_pod(f"p{i}", gpus=1 + i % 3, annotations=REQUIRED if i % 2 else {}) for i in range(40)]
    c.submit(pods).run()
    for i, pod in enumerate(pods):
        at = c.pod(pod.metadata.name)
        if i % 2 and at.spec.node_name:
            assert int(at.spec.node_name[1:]) % 2 == 0
            assert json.loads((at.metadata.annotations or {})["gangsched.io/allocated-devices"])
    assert c.n_bound() > 20

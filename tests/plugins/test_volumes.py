"""Disks, claims and what drivers say; tests/differential compares case by case with kube-scheduler."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.interface import SKIP, SUCCESS, Change, ClusterChange, Code
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.kube.watch.decode import objects
from gangsched.model import storage as kinds
from gangsched.model.objects import IscsiVolume, Pod, Volume
from gangsched.model.pod_group import GroupKey
from gangsched.plugins.volumes import node_volume_limits, volume_binding, volume_zone
from gangsched.plugins.volumes.claims import BIND_COMPLETED
from gangsched.plugins.volumes.node_volume_limits import NodeVolumeLimits
from gangsched.plugins.volumes.volume_binding import REASON_BIND, REASON_SPACE, Args, VolumeBinding
from gangsched.plugins.volumes.volume_matching import Matching
from gangsched.plugins.volumes.volume_restrictions import REASON_POD, VolumeRestrictions
from gangsched.plugins.volumes.volume_zone import VolumeZone
from tests.plugins.build import Cluster, Compared, node, pod

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
Json = dict[str, Any]


def cluster(**zones: str) -> Cluster:
    """Nodes by name, in these zones; "" is a node without the label."""
    return Cluster(
        *(node(name, labels={HOST: name} | ({ZONE: zone} if zone else {})) for name, zone in zones.items())
    )


def put(c: Cluster, kind: str, name: str, **body: Any) -> None:
    namespace = "default" if kind in (kinds.CLAIMS, kinds.CAPACITIES) else ""
    meta = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "7"}
    meta |= body.pop("metadata", {})
    raw = msgspec.json.encode({"metadata": meta, **body})
    c.cache.objects.put(kind, objects(kind).decode_object(raw))


def volume(
    c: Cluster, name: str, *, host: str = "", size: str = "5Gi", phase: str = "Available", **more: Any
) -> None:
    spec: Json = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
    }
    if host:
        expression = {"key": HOST, "operator": "In", "values": [host]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    labels = more.pop("labels", {})
    put(c, kinds.VOLUMES, name, metadata={"labels": labels}, spec=spec | more, status={"phase": phase})


def claim(
    c: Cluster, name: str, *, of: str = "", storage_class: str = "local", size: str = "1Gi", **more: Any
) -> None:
    spec: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    spec |= {"storageClassName": storage_class, "volumeName": of}
    meta = {"annotations": {BIND_COMPLETED: "yes"} if of else {}} | more.pop("metadata", {})
    put(c, kinds.CLAIMS, name, metadata=meta, spec=spec | more)


def local(c: Cluster) -> None:
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    put(c, kinds.CLASSES, "local", provisioner="kubernetes.io/no-provisioner", **waits)


def using(*names: str, name: str = "p") -> Pod:
    sources = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": one}} for i, one in enumerate(names)]
    return pod(name, volumes=sources)


def allowed(c: Cluster, plugin: Any, one: Pod, view: Any = None) -> list[str] | str:
    template, view = c.template(one), view or c.view
    status = plugin.pre_filter(c.state, template, view)
    if status is SKIP:
        return c.names(None)
    return c.names(plugin.filter(c.state, template, view)) if status is SUCCESS else status.reason


def reasons(c: Cluster, plugin: Any, one: Pod) -> dict[str, list[str]]:
    return {
        reason: c.names(rows)
        for reason, rows in plugin.reasons(c.state, c.template(one), c.view)
        if rows.any()
    }


# -- VolumeRestrictions ----------------------------------------------------------------------------------


def disk(name: str = "d", **source: Json) -> Pod:
    return pod(name, volumes=[{"name": "v", **source}])


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        ({"gcePersistentDisk": {"pdName": "x"}}, {"gcePersistentDisk": {"pdName": "x"}}, True),
        ({"gcePersistentDisk": {"pdName": "x"}}, {"gcePersistentDisk": {"pdName": "y"}}, False),
        ({"awsElasticBlockStore": {"volumeID": "x"}}, {"awsElasticBlockStore": {"volumeID": "x"}}, True),
        ({"iscsi": {"iqn": "x"}}, {"iscsi": {"iqn": "x", "readOnly": True}}, True),
        ({"rbd": {"monitors": ["a"], "image": "i"}}, {"rbd": {"monitors": ["a", "b"], "image": "i"}}, True),
        ({"rbd": {"monitors": ["a"], "image": "i"}}, {"rbd": {"monitors": ["b"], "image": "i"}}, False),
    ],
)
def test_a_disk_is_mounted_on_one_node_at_a_time(one: Json, other: Json, conflict: bool) -> None:
    c = cluster(a="", b="")
    c.run(disk("there", **other), on="a")
    assert allowed(c, VolumeRestrictions(), disk(**one)) == (["b"] if conflict else ["a", "b"])


def test_read_only_mounts_do_not_exclude_each_other() -> None:
    c = cluster(a="", b="")
    source: Json = {"gcePersistentDisk": {"pdName": "x", "readOnly": True}}
    c.run(disk("there", **source), on="a")
    assert allowed(c, VolumeRestrictions(), disk(**source)) == ["a", "b"]


def test_disks_by_the_hundred_are_not_compared_pair_by_pair() -> None:
    c, n = cluster(a="", b=""), 200
    there = c.run(disk("there", iscsi={"iqn": "x"}), on="a").template
    mine = c.template(disk("mine", iscsi={"iqn": "y"}))
    for template, name in ((there, "its"), (mine, "mine")):
        template.volumes = tuple(Volume(iscsi=IscsiVolume(Compared(f"{name}-{i}"))) for i in range(n))
    before = Compared.n
    assert c.names(VolumeRestrictions().filter(c.state, mine, c.view)) == ["a", "b"]
    assert Compared.n - before < 20 * n


def test_a_claim_for_one_pod_is_one_pods_in_the_whole_cluster() -> None:
    c = cluster(a="", b="")
    claim(c, "one", of="pv", accessModes=["ReadWriteOncePod"])
    plugin = VolumeRestrictions()
    assert allowed(c, plugin, using("one")) == ["a", "b"]
    trial = Trial(c.view)
    trial.place(1, c.template(using("one")))
    assert allowed(c, plugin, using("one"), trial) == []
    there = c.run(using("one", name="there"), on="a")
    assert allowed(c, plugin, using("one")) == []
    assert reasons(c, plugin, using("one")) == {REASON_POD: ["a", "b"]}
    trial = Trial(c.view)
    trial.remove(there)
    assert allowed(c, plugin, using("one"), trial) == ["a", "b"]
    template = c.template(using("one"))
    assert plugin.cures(ClusterChange(Change.ROOM_FREED, 0, pod=there.pod), template, c.view)
    assert not plugin.cures(ClusterChange(Change.ROOM_FREED, 0, pod=pod("other")), template, c.view)
    assert not list(c.cache.index.recount(one for one in c.cache.pods.values() if one.row >= 0))


def test_a_claim_that_is_not_there_keeps_the_pod_away() -> None:
    c = cluster(a="")
    said = 'persistentvolumeclaim "gone" not found'
    assert allowed(c, VolumeRestrictions(), using("gone")) == said
    assert allowed(c, VolumeBinding(), using("gone")) == said


# -- VolumeZone ------------------------------------------------------------------------------------------


def test_a_pod_goes_where_its_volumes_zone_is() -> None:
    c = cluster(a="1", b="2", c="3", d="")
    volume(c, "pv", labels={ZONE: "1__3"}, phase="Bound")
    claim(c, "mine", of="pv")
    assert allowed(c, VolumeZone(), using("mine")) == ["a", "c", "d"], "d says nothing of zones"
    volume(c, "old", labels={"failure-domain.beta.kubernetes.io/zone": "2"}, phase="Bound")
    claim(c, "older", of="old")
    assert allowed(c, VolumeZone(), using("older")) == ["b", "d"]
    assert VolumeZone().pre_filter(c.state, c.template(pod()), c.view) is SKIP


def test_nodes_of_other_zones_are_named_with_the_reason() -> None:
    c = cluster(a="1", b="2", c="3", d="")
    volume(c, "pv", labels={ZONE: "1__3"}, phase="Bound")
    claim(c, "mine", of="pv")
    plugin = VolumeZone()
    assert allowed(c, plugin, using("mine")) == ["a", "c", "d"]
    assert reasons(c, plugin, using("mine")) == {volume_zone.REASON: ["b"]}


@pytest.mark.parametrize(
    ("name", "more", "answer"),
    [
        ("", {}, "PersistentVolumeClaim had no name"),
        ("gone", {}, 'persistentvolumeclaim "gone" not found'),
        ("c", {"of": "pv"}, 'persistentvolume "pv" not found'),
        ("c", {"storage_class": ""}, "PersistentVolumeClaim had no pv name and storageClass name"),
        ("c", {}, 'storageclass.storage.k8s.io "local" not found'),
        ("c", {"storage_class": "at-once"}, "PersistentVolume had no name"),
        ("c", {"storage_class": "late"}, ["a"]),
    ],
)
def test_a_volume_that_cannot_be_found_yet_has_no_zone(
    name: str, more: Json, answer: str | list[str]
) -> None:
    """In kube-scheduler's words; no node cures it, but the object that is missing does."""
    c, plugin = cluster(a="1"), VolumeZone()
    put(c, kinds.CLASSES, "at-once", provisioner="x", volumeBindingMode="Immediate")
    put(c, kinds.CLASSES, "late", provisioner="x", volumeBindingMode="WaitForFirstConsumer")
    claim(c, "c", **more)
    assert allowed(c, plugin, using(name)) == answer
    template = c.template(using(name))
    for kind in (kinds.CLAIMS, kinds.VOLUMES, kinds.CLASSES):
        assert plugin.cures(ClusterChange(Change.OBJECT, kind=kind), template, c.view)
    assert not plugin.cures(ClusterChange(Change.OBJECT, kind="services"), template, c.view)
    if isinstance(answer, str):
        assert plugin.pre_filter(c.state, template, c.view).code is Code.UNRESOLVABLE


# -- NodeVolumeLimits ------------------------------------------------------------------------------------


def driver(c: Cluster, name: str, count: int) -> None:
    listed = [{"name": "d.example.com", "nodeID": name, "allocatable": {"count": count}}]
    put(c, kinds.NODES, name, spec={"drivers": listed})


def attached(c: Cluster, *handles: str) -> None:
    for handle in handles:
        volume(c, handle, phase="Bound", csi={"driver": "d.example.com", "volumeHandle": handle})
        claim(c, handle, of=handle)


def test_no_more_volumes_of_a_driver_than_its_node_says() -> None:
    c = cluster(a="", b="", c="")
    driver(c, "a", 1)
    driver(c, "b", 2)
    attached(c, "v1", "v2", "v3")
    c.run(using("v1", name="1"), on="a")
    c.run(using("v1", name="2"), on="b")
    plugin = NodeVolumeLimits()
    assert allowed(c, plugin, using("v2")) == ["b", "c"]
    assert allowed(c, plugin, using("v1")) == ["a", "b", "c"], "it is attached already"
    assert allowed(c, plugin, using("v2", "v3")) == ["c"]
    left_over = {"attacher": "d.example.com", "nodeName": "b", "source": {"persistentVolumeName": "v3"}}
    put(c, kinds.ATTACHMENTS, "x", spec=left_over)
    assert allowed(c, plugin, using("v2")) == ["c"]
    trial = Trial(c.view)
    trial.place(2, c.template(using("v3")))
    assert allowed(c, plugin, using("v2"), trial) == ["c"]


@pytest.mark.parametrize(("count", "expected"), [(10**18, ["a"]), (10**30, ["a"]), (-(10**30), [])])
def test_a_limit_is_any_number(count: int, expected: list[str]) -> None:
    c = cluster(a="")
    driver(c, "a", count)
    attached(c, "v1")
    assert allowed(c, NodeVolumeLimits(), using("v1")) == expected


def test_nodes_that_know_nothing_of_csi_take_what_their_cloud_attaches() -> None:
    c = cluster(a="", b="")
    driver(c, "b", 2)
    many = [{"name": f"v{i}", "gcePersistentDisk": {"pdName": f"pd-{i}"}} for i in range(16)]
    c.run(pod("full", volumes=many), on="a")
    c.run(pod("as-full", volumes=many), on="b")
    assert allowed(c, NodeVolumeLimits(), disk(gcePersistentDisk={"pdName": "one-more"})) == ["b"]
    assert allowed(c, NodeVolumeLimits(), disk(gcePersistentDisk={"pdName": "pd-3"})) == ["a", "b"]


@pytest.mark.parametrize("source", ["gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder"])
def test_what_such_a_node_takes_can_be_set_for_each_kind_of_disk(source: str) -> None:
    key = {"gcePersistentDisk": "pdName", "azureDisk": "diskURI"}.get(source, "volumeID")
    c = cluster(a="", b="")
    for i in range(2):
        c.run(pod(f"there-{i}", volumes=[{"name": "v", source: {key: f"d-{i}"}}]), on="a")
    plugin = NodeVolumeLimits(node_volume_limits.Args(max_pd_volumes=2))
    for own, expected in (("one-more", ["b"]), ("d-1", ["a", "b"])):
        assert allowed(c, plugin, pod("p", volumes=[{"name": "v", source: {key: own}}])) == expected


# -- VolumeBinding ---------------------------------------------------------------------------------------


def test_a_claim_that_waits_gets_the_smallest_volume_of_its_node() -> None:
    c = cluster(a="", b="", c="")
    local(c)
    volume(c, "large", host="a", size="9Gi")
    volume(c, "small", host="a", size="2Gi")
    volume(c, "tiny", host="b", size="500Mi")
    claim(c, "mine")
    plugin = VolumeBinding()
    assert allowed(c, plugin, using("mine")) == ["a"]
    assert reasons(c, plugin, using("mine")) == {REASON_BIND: ["b", "c"]}
    scored = plugin.score(c.state, c.template(using("mine")), c.view, np.array([0]))
    assert scored is not None
    assert scored.tolist() == [50.0], "one of two: half of it is used"


def promised(c: Cluster, plugin: VolumeBinding, one: Pod, row: int) -> PodInfo:
    """Reserved, as the cycle does it."""
    template = c.template(one)
    assert plugin.pre_filter(c.state, template, c.view) is SUCCESS
    info = PodInfo(one, template, one.metadata.uid)
    group = Group(GroupKey("pod", "default", one.metadata.name), "gangsched")
    assert plugin.reserve(c.state, group, [Placement(info, row, {})]) is SUCCESS
    return info


def test_promised_volumes_and_those_of_siblings_are_not_given_again() -> None:
    c = cluster(a="", b="")
    local(c)
    volume(c, "one", host="a")
    volume(c, "two", host="b")
    claim(c, "first")
    claim(c, "second")
    plugin = VolumeBinding()
    trial = Trial(c.view)
    trial.place(0, c.template(using("first")))
    assert allowed(c, plugin, using("second"), trial) == ["b"]
    assert allowed(c, plugin, using("second")) == ["a", "b"]
    info = promised(c, plugin, using("first"), 0)
    assert allowed(c, plugin, using("second")) == ["b"]
    assert plugin.pre_bind_pre_flight(info.template) is SUCCESS
    assert plugin.pre_bind_pre_flight(c.template(pod())) is SKIP
    group = Group(GroupKey("pod", "default", "p"), "gangsched")
    plugin.unreserve(group, [info])
    plugin.unreserve(group, [info])
    assert allowed(c, plugin, using("second")) == ["a", "b"]


def calls_of(monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> list[None]:
    """Grows by one with each call."""
    calls: list[None] = []
    asked = getattr(of, name)

    def noted(*args: Any, **more: Any) -> Any:
        calls.append(None)
        return asked(*args, **more)

    monkeypatch.setattr(of, name, noted)
    return calls


def test_what_a_member_costs_does_not_grow_with_the_siblings_that_were_placed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each with a claim of its own: what its siblings get was worked out again for each, and their promises
    were gone through."""
    chosen = calls_of(monkeypatch, Matching, "choice")
    read = calls_of(monkeypatch, node_volume_limits, "volumes_of")
    looked = calls_of(monkeypatch, volume_binding, "_is_over")
    costs = []
    for n in (10, 40):
        c = cluster(a="", b="")
        local(c)
        for name in "ab":
            driver(c, name, 100)
        plugin, limits, trial = VolumeBinding(), NodeVolumeLimits(), Trial(c.view)
        for i in range(n):
            volume(c, f"free-{i}", host="ab"[i % 2])
            volume(c, f"disk-{i}", csi={"driver": "d.example.com", "volumeHandle": f"h{i}"})
            claim(c, f"wants-{i}")
            claim(c, f"has-{i}", of=f"disk-{i}")
        for i in range(n):  # promised to a gang before
            volume(c, f"other-{i}", host="a", size="9Gi")
            claim(c, f"other-{i}", size="8Gi")
            promised(c, plugin, using(f"other-{i}", name=f"other-{i}"), 0)
        for calls in (chosen, read, looked):
            calls.clear()
        for i in range(n):
            mine = using(f"wants-{i}", f"has-{i}", name=f"p{i}")
            assert allowed(c, plugin, mine, trial) == ["a", "b"]
            assert allowed(c, limits, mine, trial) == ["a", "b"]
            trial.place(i % 2, c.template(mine))
        costs.append((len(chosen), len(read), len(looked)))
    few, many = costs
    assert max(b / a for a, b in zip(few, many, strict=True)) < 5.0, costs


def test_who_shares_a_claim_uses_the_volume_that_was_chosen_for_it() -> None:
    """All of a gang whose data are in one claim: it would wait for ever for a volume for each."""
    c = cluster(a="1", b="1", c="2", d="1")
    local(c)
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["1"]}]}
    volume(c, "data", size="2Gi", nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    volume(c, "of-c", host="c", size="9Gi")
    volume(c, "of-d", host="d", size="9Gi")
    claim(c, "shared")
    claim(c, "own")
    plugin = VolumeBinding()
    trial = Trial(c.view)
    trial.place(0, c.template(using("shared")))
    assert allowed(c, plugin, using("shared"), trial) == ["a", "b", "d"]
    assert allowed(c, plugin, using("own"), trial) == ["c", "d"]
    assert allowed(c, plugin, using("shared", "own"), trial) == ["d"]
    for name, row in (("p", 0), ("q", 1)):
        info = promised(c, plugin, using("shared", name=name), row)
        [(_, given)] = plugin._promised[info.uid].volumes
        assert given.metadata.name == "data"
    assert allowed(c, plugin, using("shared")) == ["a", "b", "d"]
    assert allowed(c, plugin, using("own")) == ["c", "d"]


def test_a_volume_stays_promised_until_it_is_known_to_be_bound_too() -> None:
    """Claims and volumes are watched apart: the claim may be seen bound first."""
    c = cluster(a="")
    local(c)
    volume(c, "one", host="a")
    claim(c, "first")
    claim(c, "second")
    plugin = VolumeBinding()
    promised(c, plugin, using("first"), 0)
    changed = {"resourceVersion": "8", "annotations": {BIND_COMPLETED: "yes"}}
    bound: Json = {"storageClassName": "local", "volumeName": "one"}
    put(c, kinds.CLAIMS, "first", metadata=changed, spec=bound)
    assert allowed(c, plugin, using("second")) == []
    assert plugin._promised
    owner = {"namespace": "default", "name": "first", "uid": "uid-first"}
    put(c, kinds.VOLUMES, "one", metadata={"resourceVersion": "8"}, spec={"claimRef": owner})
    assert allowed(c, plugin, using("second")) == []
    assert not plugin._promised


def test_a_claim_recreated_under_its_name_gets_the_volume_of_the_one_before() -> None:
    """As when a database is deleted with its claim and made again: its node may have no other disk."""
    c = cluster(a="")
    local(c)
    volume(c, "disk", host="a")
    claim(c, "data")
    plugin = VolumeBinding()
    promised(c, plugin, using("data"), 0)
    plugin._to_bind.clear()  # PreBind has ended
    claim(c, "data", metadata={"uid": "uid-anew"})
    assert allowed(c, plugin, using("data", name="anew")) == ["a"]


def test_volumes_are_made_where_the_class_allows_and_where_there_is_space() -> None:
    c = cluster(a="1", b="2", c="3")
    zones = [{"matchLabelExpressions": [{"key": ZONE, "values": ["1", "3"]}]}]
    put(
        c,
        kinds.CLASSES,
        "made",
        provisioner="d.example.com",
        volumeBindingMode="WaitForFirstConsumer",
        allowedTopologies=zones,
    )
    claim(c, "mine", storage_class="made", size="4Gi")
    plugin = VolumeBinding()
    assert allowed(c, plugin, using("mine")) == ["a", "c"]
    put(c, kinds.DRIVERS, "d.example.com", spec={"storageCapacity": True})
    for zone, capacity in (("1", "3Gi"), ("3", "40Gi")):
        topology = {"matchLabels": {ZONE: zone}}
        put(c, kinds.CAPACITIES, zone, storageClassName="made", capacity=capacity, nodeTopology=topology)
    assert allowed(c, plugin, using("mine")) == ["c"]
    assert reasons(c, plugin, using("mine")) == {REASON_BIND: ["b"], REASON_SPACE: ["a"]}


def test_a_claim_that_should_be_bound_already_keeps_the_pod_away() -> None:
    c = cluster(a="")
    put(c, kinds.CLASSES, "now", provisioner="d.example.com")
    claim(c, "mine", storage_class="now")
    assert allowed(c, VolumeBinding(), using("mine")) == "pod has unbound immediate PersistentVolumeClaims"


def test_a_claim_of_the_pods_own_is_waited_for_and_must_be_its_own() -> None:
    c = cluster(a="")
    one = pod("p", volumes=[{"name": "scratch", "ephemeral": {}}])
    waiting = 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"'
    assert allowed(c, VolumeBinding(), one) == waiting
    claim(c, "p-scratch", of="pv")
    assert "pod is not owner" in str(allowed(c, VolumeBinding(), one))
    other = pod("q", volumes=[{"name": "scratch", "ephemeral": {}}])
    assert c.template(one) is not c.template(other)


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match="bindTimeoutSeconds: -1 is below 0"):
        Args(bind_timeout_seconds=-1)


# -- drivers that a node lacks ---------------------------------------------------------------------------

SECRETS = "secrets-store.csi.k8s.io"


def missing(c: Cluster, one: Pod) -> list[str]:
    plugin, template = NodeVolumeLimits(), c.template(one)
    if not plugin.concerns(template) or plugin.pre_filter(c.state, template, c.view) is SKIP:
        return c.names(np.ones(c.view.n_rows, dtype=np.bool_))
    mask = plugin.filter(c.state, template, c.view)
    assert mask is not None
    said = [reason for reason, rows in plugin.reasons(c.state, template, c.view) if rows.any()]
    assert all("CSI driver is not installed on the node" in reason for reason in said)
    return c.names(mask)


@pytest.mark.parametrize("prevents", [True, False, None])
def test_a_driver_keeps_pods_off_nodes_without_it_if_it_asks_for_that(prevents: bool | None) -> None:
    c = cluster(a="", b="", c="")
    put(c, kinds.CLASSES, "fast", provisioner="fast.example.com")
    spec = {} if prevents is None else {"preventPodSchedulingIfMissing": prevents}
    for name in ("fast.example.com", SECRETS):
        put(c, kinds.DRIVERS, name, spec=spec)
    put(c, kinds.NODES, "a", spec={"drivers": [{"name": "fast.example.com"}, {"name": SECRETS}]})
    put(c, kinds.NODES, "b", spec={"drivers": [{"name": "other.example.com"}]})
    claim(c, "data", storage_class="fast")
    claim(c, "plain", storage_class="none")
    inline = pod("q", volumes=[{"name": "s", "csi": {"driver": SECRETS}}])
    everywhere = ["a", "b", "c"]
    assert missing(c, using("data")) == (["a"] if prevents else everywhere)
    assert missing(c, inline) == (["a"] if prevents else everywhere)
    assert missing(c, using("plain", name="r")) == everywhere
    put(c, kinds.NODES, "c", spec={"drivers": [{"name": SECRETS}]})
    assert missing(c, inline) == (["a", "c"] if prevents else everywhere)


def test_inline_volumes_of_different_drivers_tell_pods_apart() -> None:
    c = cluster(a="")
    one, other = (pod(n, volumes=[{"name": "s", "csi": {"driver": n}}]) for n in ("x", "y"))
    assert c.template(one) is not c.template(other)

"""Random pods with volumes, on nodes that drivers and disks say something of.

As in draw: each from a seed, and nothing here decides anything. Claims, volumes, classes and what drivers say
are there before kube-scheduler starts; whatever a pod may change (a claim that waits for it, a volume that
waits for a claim) is that one seed's own.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.differential.draw import Given, Json

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODES = tuple(f"v-n{i}" for i in range(8))
N_SEEDS, N_PODS = 12, 14
GI = 2**30
_DRIVERS = ("one.example.com", "two.example.com")
_MANY, _ONE, _POD = "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"


def _volume(name: str, source: Json, **spec: Any) -> Json:
    labels = spec.pop("labels", {})
    body = {"accessModes": [_ONE, _MANY], "capacity": {"storage": "5Gi"}, **source, **spec}
    return {"metadata": {"name": name, "labels": labels}, "spec": body}


def _csi(driver: int, handle: str) -> Json:
    return {"csi": {"driver": _DRIVERS[driver], "volumeHandle": handle}}


def _near(key: str, *values: str) -> Json:
    expression = {"key": key, "operator": "In", "values": list(values)}
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


PROVISIONERS = {
    "now": "slow.example.com",
    "local": "kubernetes.io/no-provisioner",
    "made": _DRIVERS[0],
    "made-in-a": _DRIVERS[0],
    "space": "space.example.com",
    "either": _DRIVERS[1],
}
# Claims that are bound: name -> (what the volume is, the claim's access mode).
BOUND: dict[str, tuple[Json, str]] = {
    "anywhere": (_volume("pv-anywhere", _csi(0, "h0")), _MANY),
    "zone-a": (_volume("pv-zone-a", _csi(0, "h1") | _near(ZONE, "a")), _MANY),
    "zone-bc": (_volume("pv-zone-bc", _csi(1, "h2") | _near(ZONE, "b", "c")), _MANY),
    "host": (_volume("pv-host", _csi(1, "h3") | _near(HOST, NODES[1], NODES[4])), _MANY),
    "label": (_volume("pv-label", _csi(0, "h4"), labels={ZONE: "a__b"}), _MANY),
    "beta": (_volume("pv-beta", _csi(1, "h5"), labels={BETA_ZONE: "b"}), _MANY),
    "disk": (_volume("pv-disk", {"awsElasticBlockStore": {"volumeID": "vol-9"}}), _ONE),
    "google": (_volume("pv-google", {"gcePersistentDisk": {"pdName": "pd-9"}}), _ONE),
    "more": (_volume("pv-more", _csi(0, "h6")), _MANY),
    "single": (_volume("pv-single", _csi(0, "h7"), accessModes=[_POD]), _POD),
    "alone": (_volume("pv-alone", _csi(1, "h8") | _near(ZONE, "a", "b"), accessModes=[_POD]), _POD),
}
# Claims that keep every pod away.
BROKEN = ("lost", "now", "no-volume", "nowhere")
WAITING = ("local", "made", "made-in-a", "space", "either")


def background() -> list[tuple[str, Json]]:
    """(path to create it at, object), what PersistentVolumes and claims say of themselves included."""
    storage, core = "/apis/storage.k8s.io/v1", "/api/v1"
    made: list[tuple[str, Json]] = []
    for name, more in (
        ("now", {"volumeBindingMode": "Immediate"}),
        ("local", {}),
        ("made", {}),
        ("made-in-a", {"allowedTopologies": [_allowed("a"), _allowed("c")]}),
        ("space", {}),
        ("either", {"allowedTopologies": [_allowed("b")]}),
    ):
        body: Json = {"metadata": {"name": name}, "provisioner": PROVISIONERS[name]}
        made.append(
            (f"{storage}/storageclasses", body | {"volumeBindingMode": "WaitForFirstConsumer"} | more)
        )
    driver = {"attachRequired": False, "storageCapacity": True}
    made.append((f"{storage}/csidrivers", {"metadata": {"name": "space.example.com"}, "spec": driver}))
    for zone, capacity, largest in (("a", "100Gi", None), ("b", "2Gi", None), ("c", "50Gi", "3Gi")):
        body = {"metadata": {"name": f"space-{zone}"}, "storageClassName": "space", "capacity": capacity}
        body |= {"nodeTopology": {"matchLabels": {ZONE: zone}}}
        body |= {"maximumVolumeSize": largest} if largest else {}
        made.append((f"{storage}/namespaces/default/csistoragecapacities", body))
    for i, name in enumerate(NODES[:6]):
        drivers = [
            {"name": one, "nodeID": name, "topologyKeys": [], "allocatable": {"count": 1 + (i + k) % 4}}
            for k, one in enumerate(_DRIVERS)
        ]
        drivers.append(
            {"name": "ebs.csi.aws.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": 2}}
        )
        meta = {"name": name}
        made.append((f"{storage}/csinodes", {"metadata": meta, "spec": {"drivers": drivers[i == 3 :]}}))
    for name, (volume, mode) in BOUND.items():
        made.append((f"{core}/persistentvolumes", volume))
        made.append(
            (f"{core}/namespaces/default/persistentvolumeclaims", _claim(name, "", mode, bound=volume))
        )
    nobody = {"metadata": {"name": "pv-gone"}}
    claims = f"{core}/namespaces/default/persistentvolumeclaims"
    made += [
        (claims, _claim("lost", "", _ONE, bound=nobody)),
        (claims, _claim("now", "now", _ONE)),
        (claims, _claim("no-volume", "", _ONE, bound=nobody)),
        (claims, _claim("nowhere", "local", _ONE, size="900Gi")),
    ]
    attached = {"attacher": _DRIVERS[0], "nodeName": NODES[0], "source": {"persistentVolumeName": "pv-more"}}
    made.append((f"{storage}/volumeattachments", {"metadata": {"name": "left-over"}, "spec": attached}))
    for seed in range(N_SEEDS):
        made += _own(seed)
    return made


def statuses() -> list[tuple[str, str]]:
    """(path, phase) of volumes and claims, as a controller would say."""
    claims = "/api/v1/namespaces/default/persistentvolumeclaims"
    said = [(f"/api/v1/persistentvolumes/{one['metadata']['name']}", "Bound") for one, _ in BOUND.values()]
    said += [(f"{claims}/{name}", "Bound") for name in BOUND]
    said += [(f"{claims}/lost", "Lost"), (f"{claims}/no-volume", "Bound")]
    for seed in range(N_SEEDS):
        for path, body in _own(seed):
            if path.endswith("persistentvolumes"):
                said.append((f"{path}/{body['metadata']['name']}", "Available"))
    return said


def _own(seed: int) -> list[tuple[str, Json]]:
    """The claims that wait for one seed's pods, and volumes that wait for claims, in classes of their own."""
    rng = Random(f"own volumes {seed}")
    made: list[tuple[str, Json]] = []
    for i in range(N_PODS):
        kind, size = rng.choice(WAITING), rng.choice(("1Gi", "3Gi", "6Gi"))
        class_name = f"local-{seed}" if kind in ("local", "either") and rng.random() < 0.8 else kind
        claim = _claim(f"w{seed}-{i}", class_name, _ONE, size=size)
        made.append(("/api/v1/namespaces/default/persistentvolumeclaims", claim))
    for i in range(8):
        where = _near(HOST, *rng.sample(NODES, rng.choice((1, 1, 2)))) if rng.random() < 0.85 else {}
        # Sizes differ, so that which one is the smallest that will do is no matter of taste.
        # No driver's: that it is attached must not be known before or after the next pod is looked at.
        volume = _volume(f"own-{seed}-{i}", {"nfs": {"server": "s", "path": f"/{i}"}} | where)
        volume["spec"] |= {"storageClassName": f"local-{seed}", "capacity": {"storage": f"{2 + 2 * i}Gi"}}
        made.append(("/api/v1/persistentvolumes", volume))
    provisioner = "kubernetes.io/no-provisioner"
    storage_class = {"metadata": {"name": f"local-{seed}"}, "provisioner": provisioner}
    storage_class |= {"volumeBindingMode": "WaitForFirstConsumer"}
    made.append(("/apis/storage.k8s.io/v1/storageclasses", storage_class))
    return made


def _allowed(zone: str) -> Json:
    return {"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}


def _claim(name: str, class_name: str, mode: str, *, size: str = "1Gi", bound: Json | None = None) -> Json:
    spec: Json = {
        "accessModes": [mode],
        "storageClassName": class_name,
        "resources": {"requests": {"storage": size}},
    }
    meta: Json = {"name": name, "namespace": "default"}
    if bound is not None:
        spec["volumeName"] = bound["metadata"]["name"]
        meta["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    return {"metadata": meta, "spec": spec}


def draw_volumes(seed: int) -> Given:
    """The cluster and the pods of one seed."""
    return _Draw(seed).given()


class _Draw:
    def __init__(self, seed: int) -> None:
        self._rng = Random(f"volumes {seed}")
        self._seed = seed

    def given(self) -> Given:
        rng = self._rng
        names = rng.sample(NODES, rng.choice((3, 5, 8)))
        nodes = [self._node(name) for name in sorted(names)]
        settled = []
        for name in sorted(names):
            for i in range(rng.choice((0, 0, 1, 2))):
                pod = self._pod(f"y{self._seed}-{name}-{i}", None)
                pod["spec"] |= {"nodeName": name, "schedulerName": "somebody-else"}
                settled.append(pod)
        pods = [self._pod(f"y{self._seed}-p{i}", i) for i in range(N_PODS)]
        return Given(nodes, settled, pods)

    def _node(self, name: str) -> Json:
        labels = {HOST: name}
        if self._rng.random() < 0.85:
            labels[self._rng.choice((ZONE, ZONE, ZONE, BETA_ZONE))] = self._rng.choice("abc")
        has = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {},
            "status": {"allocatable": has, "capacity": has},
        }

    def _pod(self, name: str, own: int | None) -> Json:
        rng = self._rng
        kinds = ["bound", "bound", "disk", "disk", *(["own", "own"] if own is not None else [])]
        volumes = []
        for kind in dict.fromkeys(rng.sample(kinds, rng.choice((0, 1, 1, 2, 2)))):
            if kind == "bound":
                some = rng.sample(sorted(BOUND), rng.choice((1, 1, 2)))
                if own is not None and rng.random() < 0.06:
                    some = [rng.choice((*BROKEN, "not-there"))]
                volumes += [{"persistentVolumeClaim": {"claimName": one}} for one in some]
            elif kind == "disk":
                volumes += [self._disk() for _ in range(rng.choice((1, 1, 2)))]
            else:
                volumes.append({"persistentVolumeClaim": {"claimName": f"w{self._seed}-{own}"}})
        container = {"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}
        named = [{"name": f"v{i}", **one} for i, one in enumerate(volumes)]
        return {
            "metadata": {"name": name},
            "spec": {"schedulerName": "plain", "containers": [container], "volumes": named},
        }

    def _disk(self) -> Json:
        rng = self._rng
        read_only = rng.random() < 0.5
        target = {"targetPortal": "1.2.3.4", "lun": 0, "iqn": f"iqn.2020-01.com.example:{rng.randrange(2)}"}
        return rng.choice(
            (
                {"gcePersistentDisk": {"pdName": f"pd-{rng.randrange(3)}", "readOnly": read_only}},
                {"awsElasticBlockStore": {"volumeID": f"vol-{rng.randrange(4)}"}},
                {"iscsi": target | {"readOnly": read_only}},
                {"rbd": {"monitors": rng.sample(["m1", "m2"], 1), "image": "i", "readOnly": read_only}},
            )
        )

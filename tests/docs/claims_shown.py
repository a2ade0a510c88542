"""What the examples of docs/resource-claims.md show, on nodes whose driver publishes devices.

Lives here: the slices that NVIDIA's driver would publish, and what is tried with each example. Not here: the
cluster, and which example is which (test_shown.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from gangsched.lab.apiserver.strategy import Object
from gangsched.model.objects import Node
from tests.apiserver.simulated.test_samples import Live
from tests.docs.test_yaml import POD, apply, merged, read

GPUS, DOMAINS = "gpu.nvidia.com", "compute-domain.nvidia.com"
CHANNELS = "compute-domain-default-channel.nvidia.com"
_GROUP = "resource.k8s.io/v1"


async def own_devices(here: Live, applied: list[Object]) -> None:
    """Three free devices are too few for four pods, and one more is enough."""
    nodes = _names(here)
    await _offer(here, nodes[0], [_gpu(i) for i in range(3)])
    await apply(here, applied)
    await _waits(here, 4)
    await _offer(here, nodes[1], [_gpu(0)])
    await _all_run(here, 4)
    assert len(set(_given(here))) == 4


async def near_devices(here: Live, applied: list[Object]) -> None:
    """One node has two of another model, and two apart; the other two beside each other."""
    nodes = _names(here)
    others = [_gpu(i, productName={"string": "NVIDIA H100"}) for i in range(2)]
    await _offer(here, nodes[0], [*others, _gpu(2, root="pci0"), _gpu(3, root="pci1")])
    await apply(here, [*applied, _claiming("two-near")])
    await _waits(here, 1)
    await _offer(here, nodes[1], [_gpu(0, root="pci0"), _gpu(1, root="pci1"), _gpu(2, root="pci1")])
    await _all_run(here, 1)
    assert _given(here) == [(nodes[1], "gpu-1"), (nodes[1], "gpu-2")]


async def by_number(here: Live, applied: list[Object]) -> None:
    """No node's plugin has any left: two have a device each that its driver publishes, one a plugin's."""
    nodes, resource = _names(here), "nvidia.com/gpu"
    for i, node in enumerate(nodes):
        note = {"metadata": {"annotations": {"gangsched.io/devices": None}}}
        left = {"status": {"allocatable": {resource: "1" if i == 2 else "0"}}}
        await here.client.patch(f"/api/v1/nodes/{node}", msgspec.json.encode(note))
        await here.client.patch(f"/api/v1/nodes/{node}/status", msgspec.json.encode(left))
    await here.until(lambda: sum(map(_n_offered, here.nodes().values())) == 1)
    [shown, job] = applied
    await apply(here, [shown])
    for node in nodes[:2]:
        await _publish(here, node, GPUS, [_gpu(0)])
    job["spec"] |= {"completions": 3, "parallelism": 3}
    job["spec"]["template"]["metadata"]["annotations"]["gangsched.io/min-members"] = "3"
    await apply(here, [job])
    await _all_run(here, 3)
    assert _given(here) == [(nodes[0], "gpu-0"), (nodes[1], "gpu-0")]
    assert sorted(pod["spec"]["nodeName"] for pod in here.all("pods")) == nodes[:3]


def _n_offered(node: Node) -> int:
    return int((node.status.allocatable or {}).get("nvidia.com/gpu", 0))


async def one_for_all(here: Live, applied: list[Object]) -> None:
    """All pods are where the claim is, and it is reserved for each of them."""
    for node in _names(here):
        await _offer(here, node, [_gpu(0)])
    await apply(here, applied)
    await _all_run(here, 3)
    [(node, _)] = _given(here)
    assert {pod["spec"]["nodeName"] for pod in here.all("pods")} == {node}
    [claim] = here.all("resourceclaims.resource.k8s.io")
    assert len(claim["status"]["reservedFor"]) == 3


async def partitions(here: Live, applied: list[Object]) -> None:
    """One GPU has room for one partition, the other for two."""
    [node, *_] = _names(here)
    await _offer(here, node, [*_sliced(0, 1), *_sliced(1, 2)], _counters(0, 1), _counters(1, 2))
    await apply(here, [*applied, _claiming("two-slices")])
    await _all_run(here, 1)
    assert _given(here) == [(node, "gpu-1-mig-0"), (node, "gpu-1-mig-1")]


async def channels(here: Live, applied: list[Object]) -> None:
    """NVIDIA's driver makes the template; each node has one channel."""
    request = {"name": "channel", "exactly": {"deviceClassName": CHANNELS}}
    await apply(here, [_template("wide-channel", request), _class(CHANNELS, DOMAINS)])
    for node in _names(here)[:2]:
        await _publish(here, node, DOMAINS, [{"name": "channel-0"}])
    await apply(here, applied)
    await _all_run(here, 2)
    assert sorted(_given(here)) == [(node, "channel-0") for node in _names(here)[:2]]


async def taints(here: Live, applied: list[Object]) -> None:
    """Who does not tolerate it waits."""
    [node, *_] = _names(here)
    rule, template = applied
    rule["spec"]["deviceSelector"]["pool"] = node
    await _offer(here, node, [_gpu(0)])
    plain = {"name": "gpu", "exactly": {"deviceClassName": GPUS}}
    await apply(here, [rule, _template("plain", plain), _claiming("plain")])
    await here.until(lambda: any("tainted devices" in str(pod["status"]) for pod in here.all("pods")))
    await here.client.delete("/api/v1/namespaces/default/pods/shown")
    await here.until(lambda: not here.all("pods"))
    await apply(here, [template, _claiming("burn-in")])
    await _all_run(here, 1)


# -- what a driver publishes -----------------------------------------------------------------------------


def _gpu(i: int, *, root: str = "pci0", **attributes: Any) -> Object:
    listed = {
        "productName": {"string": "NVIDIA H200"},
        "resource.kubernetes.io/pcieRoot": {"string": root},
        **attributes,
    }
    return {"name": f"gpu-{i}", "attributes": listed}


def _sliced(gpu: int, n: int) -> list[Object]:
    """Two partitions of a GPU, of which it has room for n."""
    attributes = {"profile": {"string": "1g.18gb"}, "parentUUID": {"string": f"GPU-{gpu}"}}
    takes = [{"counterSet": f"gpu-{gpu}", "counters": {"slices": {"value": "1"}}}]
    return [
        {"name": f"gpu-{gpu}-mig-{i}", "attributes": attributes, "consumesCounters": takes} for i in range(2)
    ]


def _counters(gpu: int, n: int) -> Object:
    return {"name": f"gpu-{gpu}", "counters": {"slices": {"value": str(n)}}}


def _class(name: str, driver: str) -> Object:
    selectors = [{"cel": {"expression": f"device.driver == '{driver}'"}}]
    return {
        "apiVersion": _GROUP,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": selectors},
    }


async def _offer(here: Live, node: str, devices: Sequence[Object], *counters: Object) -> None:
    known = {one["metadata"]["name"] for one in here.all("deviceclasses.resource.k8s.io")}
    await apply(here, [_class(one, GPUS) for one in (GPUS, "mig.nvidia.com") if one not in known])
    await _publish(here, node, GPUS, devices, *counters)


async def _publish(here: Live, node: str, driver: str, devices: Sequence[Object], *counters: Object) -> None:
    """Counters stand in a slice of their own."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1 + bool(counters)}
    spec = {"driver": driver, "pool": pool, "nodeName": node}
    parts: list[Object] = [{"devices": list(devices)}]
    if counters:
        parts.append({"sharedCounters": list(counters)})
    for i, part in enumerate(parts):
        meta = {"name": f"{node}-{driver}-{i}"}
        await apply(
            here,
            [{"apiVersion": _GROUP, "kind": "ResourceSlice", "metadata": meta, "spec": {**spec, **part}}],
        )


# -- pods ------------------------------------------------------------------------------------------------


def _template(name: str, request: Object) -> Object:
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {"apiVersion": _GROUP, "kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": spec}


def _claiming(template: str) -> Object:
    """A pod with a claim of this template."""
    entries = [{"name": "devices", "resourceClaimTemplateName": template}]
    pod = merged(read(POD), {"spec": {"resourceClaims": entries}})
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "devices"}]}
    return pod


def _names(here: Live) -> list[str]:
    return sorted(one["metadata"]["name"] for one in here.all("nodes"))


def _given(here: Live) -> list[tuple[str, str]]:
    """(pool, device) of all claims, each as often as it was given."""
    claims = here.all("resourceclaims.resource.k8s.io")
    return sorted(
        (one["pool"], one["device"])
        for claim in claims
        for one in claim["status"]["allocation"]["devices"]["results"]
    )


async def _waits(here: Live, n_pods: int) -> None:
    """The pods exist, one says why it waits, and none has started."""

    def is_told() -> bool:
        pods = here.all("pods")
        return len(pods) == n_pods and any("Unschedulable" in str(pod["status"]) for pod in pods)

    await here.until(is_told)
    assert not any(pod["spec"].get("nodeName") for pod in here.all("pods"))
    claims = here.all("resourceclaims.resource.k8s.io")
    assert not any(claim.get("status", {}).get("allocation") for claim in claims)


async def _all_run(here: Live, n_pods: int) -> None:
    """Kubelet starts a pod only where its claims are allocated there and reserved for it."""

    def is_so() -> bool:
        pods = here.all("pods")
        return len(pods) == n_pods and all(pod["status"].get("phase") == "Running" for pod in pods)

    await here.until(is_so)

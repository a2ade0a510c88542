"""Why a gang with resource claims waits: situations in virtual time, and what `gangsched explain` answers.

docs/resource-claims.md has the answers (generate.py writes them); test_claim_answers.py holds what each says.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from gangsched.core.explaining.explain import explain
from gangsched.core.resource_claims.requests import DOMAIN_DRIVER, DOMAIN_LABEL
from gangsched.lab.sim.objects import make_pod
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, DeviceClass
from tests.core.claims import DRIVER, ClaimCluster, Json, gpus, wish, with_claims

_WIDTH = 118
CHANNELS = "compute-domain-default-channel.nvidia.com"
_OTHER = "default-scheduler"


class Situation(NamedTuple):
    """has: words of the answer, or of the condition. make: a cluster in which gang d/train waits."""

    title: str
    prose: str
    has: str
    make: Callable[[], ClaimCluster]


def gang(c: ClaimCluster, name: str, n: int, spec: Json, **options: int) -> list[Pod]:
    return [c.want(f"{name}-{i}", spec, group=name, min_members=n, **options) for i in range(n)]


def in_use() -> ClaimCluster:
    c = ClaimCluster().offer("n0", "n1", "n2", gpus_each=4)
    sick = gpus("n2", 4)
    for one in sick["devices"][2:]:
        one["taints"] = [{"key": "gpu.example.com/xid", "effect": "NoExecute"}]
    c.slice("slice-n2", sick)
    c.submit(gang(c, "big", 7, wish())).run()
    other = make_pod("x", gpus=0, scheduler=_OTHER)
    c.submit(replace(other, spec=replace(other.spec, node_name="n1")))
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-3"}
    users = [{"resource": "pods", "name": "x", "uid": other.metadata.uid}]
    c.make_claim("theirs", wish(), allocation={"devices": {"results": [result]}}, reservedFor=users)
    model = f"device.attributes['{DRIVER}'].model == 'H200'"
    return c.submit(gang(c, "train", 3, wish(1, model))).run()


def apart() -> ClaimCluster:
    c = ClaimCluster().offer("n0", "n1", gpus_each=2)
    c.submit(gang(c, "big", 2, wish(), cpu=40)).run()
    return c.submit(gang(c, "train", 1, wish(2))).run()


def no_claim() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    pod = with_claims(make_pod("train-0", gpus=0, group="train", min_members=1), own=("gpu",))
    c.submit(replace(pod, status=replace(pod.status, resource_claim_statuses=None))).run()
    return c.wait(20.0)


def no_class() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    return c.submit(gang(c, "train", 1, wish(deviceClassName="gpu.example.net"))).run()


def updated() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    c.slice("slice-n0", gpus("n0", 8) | {"pool": {"name": "n0", "generation": 4, "resourceSliceCount": 3}})
    return c.submit(gang(c, "train", 1, wish())).run()


def invalid() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    spec = gpus("n0", 2)
    c.slice("slice-n0", spec | {"devices": [*spec["devices"], spec["devices"][0]]})
    return c.submit(gang(c, "train", 1, wish())).run()


def selector() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    return c.submit(gang(c, "train", 1, wish(1, f"device.attributes['{DRIVER}'].memory > 40"))).run()


def constraint() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=4)
    spec = wish(4)
    spec["devices"]["constraints"] = [{"requests": ["gpu"], "matchAttribute": f"{DRIVER}/numa"}]
    return c.submit(gang(c, "train", 1, spec)).run()


def counters() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=0)
    takes = [{"counterSet": "gpu-0", "counters": {"slices": {"value": "4"}}}]
    halves = [{"name": f"gpu-0-half-{i}", "consumesCounters": takes} for i in range(3)]
    pool = {"name": "n0", "generation": 2, "resourceSliceCount": 2}
    c.slice("slice-n0", gpus("n0", 0) | {"devices": halves, "pool": pool})
    sets = [{"name": "gpu-0", "counters": {"slices": {"value": "7"}}}]
    c.slice("counters", gpus("n0", 0) | {"devices": [], "sharedCounters": sets, "pool": pool})
    c.submit(gang(c, "old", 1, wish())).run()
    return c.submit(gang(c, "train", 1, wish())).run()


def full() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    users = [{"resource": "pods", "name": f"p{i}", "uid": f"p{i}"} for i in range(256)]
    result = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    c.make_claim("shared", wish(), allocation={"devices": {"results": [result]}}, reservedFor=users)
    return c.submit(_sharing("train-0")).run()


def elsewhere() -> ClaimCluster:
    c = ClaimCluster().offer("n0", "n1", gpus_each=1)
    c.make_claim("shared", wish())
    c.submit(_sharing("old-0")).run()
    [there] = [pod.spec.node_name for pod in c.pods.values()]
    node = c.nodes[there]
    c.node(replace(node, spec=replace(node.spec, unschedulable=True)))
    return c.submit(_sharing("train-0")).run()


def condition() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=1)
    spec = gpus("n0", 1)
    spec["devices"][0] |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["broken"]}
    c.slice("slice-n0", spec)
    return c.submit(gang(c, "train", 1, wish())).run().wait(60.0)


def written() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    c.claim_answer = lambda patch: "hold" if patch.is_status and patch.name == "train-1-gpu" else "ok"
    return c.submit(gang(c, "train", 2, wish())).run()


def taken_back() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=1)
    c.submit(gang(c, "train", 1, wish()))
    c.shows_claims = False
    c.run()
    c.shows_claims = True
    result = {"request": "gpu", "driver": DRIVER, "pool": "n0", "device": "gpu-0"}
    users = [{"resource": "pods", "name": "x", "uid": "uid-x"}]
    c.make_claim("theirs", wish(), allocation={"devices": {"results": [result]}}, reservedFor=users)
    return c.show_all().run()


def unprepared() -> ClaimCluster:
    c = ClaimCluster().offer("n0")
    c.submit(gang(c, "train", 2, wish())).run()
    return c.wait(130.0)


def given_back() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=2)
    c.submit(gang(c, "old", 2, wish(), priority=1)).run()
    return c.submit(gang(c, "train", 1, wish(2), priority=9)).run()


def channel() -> ClaimCluster:
    c = ClaimCluster().offer("n0", gpus_each=0)
    c.slice("channel", gpus("n0", 0) | {"driver": DOMAIN_DRIVER, "devices": [{"name": "channel-0"}]})
    selector = {"cel": {"expression": f"device.driver == '{DOMAIN_DRIVER}'"}}
    made = {"metadata": {"name": CHANNELS, "uid": CHANNELS}, "spec": {"selectors": [selector]}}
    c.put(DEVICE_CLASSES, made, DeviceClass)
    node = c.nodes["n0"]
    labels = {**(node.metadata.labels or {}), DOMAIN_LABEL: "uid-of-another"}
    c.node(replace(node, metadata=replace(node.metadata, labels=labels)))
    spec = wish(deviceClassName=CHANNELS)
    parameters = {"apiVersion": "resource.nvidia.com/v1beta1", "domainID": "uid-of-its-own"}
    spec["devices"]["config"] = [{"opaque": {"driver": DOMAIN_DRIVER, "parameters": parameters}}]
    return c.submit(gang(c, "train", 1, spec)).run()


def _sharing(name: str) -> Pod:
    pod = make_pod(name, gpus=0, group=name.rpartition("-")[0], min_members=1)
    return with_claims(pod, shared={"gpu": "shared"})


SITUATIONS = (
    Situation("Its devices are in use", "Of a gang, and of a pod of another scheduler.", "in use", in_use),
    Situation("They are free on different nodes", "A claim's devices are on one node.", "at most 1", apart),
    Situation("There is no claim yet", "Its ResourceClaimTemplate is missing.", "does not exist", no_claim),
    Situation("There is no such class", "", "gpu.example.net does not exist", no_class),
    Situation("The driver is changing its slices", "", "1 of 3 slices of generation 4", updated),
    Situation("The driver's slices are wrong", "", "is invalid: duplicate device name", invalid),
    Situation("A selector fails", "Not every device has the attribute.", "fails on device", selector),
    Situation("A constraint cannot be met", "", "the best set found", constraint),
    Situation("Counters of a pool are used up", "As by partitions of a GPU.", "gpu-0/slices", counters),
    Situation("A claim has 256 users", "", "at most 256 pods may use it", full),
    Situation("A claim is allocated elsewhere", "", "is allocated on n0", elsewhere),
    Situation("Its claims are being written", "", "1 of 2 are reserved", written),
    Situation("A device waits for its conditions", "", "waits for condition attached", condition),
    Situation("Another scheduler was faster", "", "is in claim d/theirs too", taken_back),
    Situation("Its victims' claims are not given back yet", "", "to be given back", given_back),
    Situation("Its devices are not prepared", "The driver does not run.", "not prepared", unprepared),
    Situation("Its node serves another ComputeDomain", "", "Another ComputeDomain is served", channel),
)


def answer(one: Situation) -> str:
    """What `gangsched explain` answers, and the pod's condition if the answer is not about the same."""
    c = one.make()
    found = explain(c.scheduler, c.group("train"), c.now_s, ago_s=0.0)
    lines = [f"{found.group}: {found.answer}", *(f"To do: {cure}" for cure in found.cures)]
    lines += [f"Next: {found.then}"] * bool(found.then)
    text = "\n".join(line for text in lines for line in textwrap.wrap(text, _WIDTH, break_on_hyphens=False))
    condition = "" if one.has in " ".join(text.split()) else f"\n\nThe pod's condition: `{c.said('train-0')}`"
    return f"```text\n{text}\n```{condition}\n"


def region() -> str:
    """The answers, each under what makes it."""
    prose = (f"{one.prose}\n\n" if one.prose else "" for one in SITUATIONS)
    parts = (f"### {one.title}\n\n{told}{answer(one)}" for one, told in zip(SITUATIONS, prose, strict=True))
    return "\n".join(parts)

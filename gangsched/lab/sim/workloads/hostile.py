"""Hostile objects, drawn from a seed: garbage, extremes, depth, control characters in every field we read.

kube-apiserver would store all of these: annotations may hold any text, quantities any amount, a PodGroup
without a schema anything at all. Plain JSON, so that it can be sent to a real server too. Not here: putting
it into a cluster (lab.sim.workloads.arrivals, lab.sim.faults.misuse).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

GPU = "nvidia.com/gpu"

MEMBER_KEYS = (
    "gangsched.io/min-members",
    "gangsched.io/total-members",
    "gangsched.io/schedule-timeout",
    "gangsched.io/groups",
    "gangsched.io/on-partial-bind",
    "gangsched.io/disruption-mode",
    "gangsched.io/recover-within",
    "gangsched.io/if-not-recovered",
    "gangsched.io/on-device-failure",
    "gangsched.io/device-constraints",
    "gangsched.io/require-device-ids",
    "gangsched.io/topology",
    "gangsched.io/packing-weight",
    "gangsched.io/walltime",
    "slurmjob.slinky.slurm.net/timelimit",
    "gangsched.io/required-rbw",
    "gangsched.io/expected-rbw",
    "gangsched.io/rbw-direction",
    "gangsched.io/rbw-scope",
    "requiredRBW",
    "expectedRBW",
    "tracing.k8s.io/traceparent",
    "pod-group.scheduling.sigs.k8s.io/min-available",
    "scheduling.k8s.io/group-name",
    "volcano.sh/task-spec",
    "scheduling.volcano.sh/group-min-member",
    "pod-group-name",
    "gang.scheduling.koordinator.sh/name",
    "gang.scheduling.koordinator.sh/min-available",
    "gang.scheduling.koordinator.sh/total-number",
    "gang.scheduling.koordinator.sh/waiting-time",
    "gang.scheduling.koordinator.sh/mode",
    "gang.scheduling.koordinator.sh/groups",
    "gang.scheduling.koordinator.sh/match-policy",
    "yunikorn.apache.org/app-id",
    "yunikorn.apache.org/task-groups",
    "yunikorn.apache.org/task-group-name",
    "yunikorn.apache.org/schedulingPolicyParameters",
    "kueue.x-k8s.io/pod-group-total-count",
    "jobset.sigs.k8s.io/restart-attempt",
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/size",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
    "batch.kubernetes.io/job-completion-index",
)
"""Annotations of pods that we read."""
BOUND_KEYS = (
    "gangsched.io/allocated-devices",
    "gangsched.io/visible-devices",
    "gangsched.io/gang",
    "gangsched.io/rank",
    "gangsched.io/attempt",
)
"""Annotations that our binds carry."""
NODE_KEYS = (
    "gangsched.io/devices",
    "gangsched.io/device-report",
    "gangsched.io/remaining-bandwidth",
    "gangsched.io/load",
    "scheduler.alpha.kubernetes.io/preferAvoidPods",
)
"""Annotations of nodes, written by agents, that we read."""
GROUP_LABELS = (
    "gangsched.io/pod-group",
    "scheduling.x-k8s.io/pod-group",
    "pod-group.scheduling.sigs.k8s.io",
    "pod-group.scheduling.sigs.k8s.io/name",
    "applicationId",
    "kai.scheduler/subgroup-name",
    "kueue.x-k8s.io/pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
    "leaderworkerset.sigs.k8s.io/name",
    "ray.io/cluster",
    "training.kubeflow.org/job-name",
)
COUNT_LABELS = (
    "kueue.x-k8s.io/max-exec-time-seconds",
    "jobset.sigs.k8s.io/restart-attempt",
    "leaderworkerset.sigs.k8s.io/group-index",
    "leaderworkerset.sigs.k8s.io/worker-index",
    "batch.kubernetes.io/job-completion-index",
)
"""Labels of pods whose values should be counts."""
_COUNTS = ("", "0", "00", "7", "2147483648", "9" * 63, "1e9", "NaN", "1.5", "x")
QUANTITIES = (
    *("0", "1", "1m", "1n", "0.000000001", "7Ei", "8Ei", "99999999999E", "9223372036854775807"),
    *("9223372036854775808", "1e18", "1E18", "1e999", "1" + "0" * 400, "16383Pi", "00001", "1."),
)
_DOCUMENTS: tuple[Any, ...] = (
    {GPU: [{"id": "a", "health": "Healthy", "numa": 0, "links": {"b": "NV18"}}, {"id": "b"}]},
    {"main": {GPU: ["a", "b"]}},
    {GPU: {"sameNUMA": True, "attributes": {"model": "H100"}, "minMemoryMiB": 1}},
    {"egressMBps": 900, "ingressMBps": 850, "totalMBps": 1500, "observedAt": "2026-01-01T00:00:00Z"},
    {"utilisation": {"cpu": 0.5}, "performance": {"cores": 8}, "observedAt": "2026-01-01T00:00:00Z"},
    ["d/a", "d/b"],
    [{"name": "worker", "minMember": 2}, {"name": "head", "minMember": 1}],
)
_WORDS = (
    *("", " ", "0", "-1", "1", "2", "100001", "999999999999", "true", "null", "NaN", "1e309", "٣", "0x10"),
    *("1_0", "{", "[", "{}", "[]", '""', '"\\ud800"', "\x1b[31mred\x1b[0m", "a\nb\r\nc\td", "\x00"),
    *("\u202e", "<script>", "$(reboot)", "'; drop", "../../etc/passwd", "9" * 5000, "x" * 20_000),
    *("0s", "1h", "999999999h", "-5m", "100MB/s", "1e400MB/s", "-1GB/s", "both", "unwind", "all"),
    *("1-00:00:00", "::", "99999-99:99:99", "P1D", "1h1h", "0.0000001s", "inf", "required", "a=b"),
    "00-" + "0" * 32 + "-" + "0" * 16 + "-00",
)
_LEAVES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**63, -(2**63) - 1, 10**400, 0.1, -0.0, 1e308, "", "x" * 100, "\x00"),
    *([], {}),
    *("NaN", "1e999", "Healthy", "Unhealthy", GPU, "9999-99-99T99:99:99Z", [[]], {"": None}),
)


def hostile_text(rng: Random) -> str:
    """Returns text for an annotation: a word, a document with one thing wrong in it, or deep nesting."""
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(_WORDS)
    if kind < 0.6:
        n = rng.choice((70, 1200, 20_000))
        return rng.choice(("[" * n, "[" * n + "]" * n, '{"a":' * n + "1" + "}" * n))
    document = _spoiled(rng, rng.choice(_DOCUMENTS))
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5)
    return text[: rng.randrange(len(text) + 1)] if rng.random() < 0.15 else text


def hostile_spec(rng: Random, spec: Mapping[str, Any]) -> dict[str, Any]:
    """A PodGroup's spec with one thing wrong in it."""
    known = {
        **{"minMember": 2, "scheduleTimeoutSeconds": 10, "minResources": {"cpu": "1"}},
        **{"schedulingPolicy": {"gang": {"minCount": 2}}, "priority": 0, "disruptionMode": {"all": {}}},
        **spec,
    }
    key = rng.choice(sorted(known))
    return {**spec, key: _spoiled(rng, known[key])}


def hostile_requests(rng: Random) -> dict[str, str]:
    """Returns amounts that a container may request or a node offer: too much, or very little."""
    names = rng.sample(("cpu", "memory", "ephemeral-storage", GPU, "example.com/fpga", "hugepages-2Mi"), 3)
    return {name: rng.choice(QUANTITIES) for name in names}


def hostile_pod(
    rng: Random, name: str, *, scheduler: str, node: str = "", namespace: str = "d"
) -> dict[str, Any]:
    """A pod as JSON: up to four containers with extreme requests, in any gang, with any annotations."""
    keys = rng.sample((*MEMBER_KEYS, *BOUND_KEYS), rng.randint(0, 4))
    containers = [
        {"name": f"c{k}", "image": "x", "resources": {"requests": hostile_requests(rng)}}
        for k in range(rng.randint(1, 4))
    ]
    labels = {rng.choice(GROUP_LABELS): rng.choice(("a", "g0", "g1"))} if rng.random() < 0.5 else {}
    if rng.random() < 0.2:
        labels |= {key: rng.choice(_COUNTS) for key in rng.sample(COUNT_LABELS, 2)}
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "priority": rng.choice((0, 0, -(2**31), 2**31 - 1)),
        "containers": containers,
    }
    if node:
        spec["nodeName"] = node
    if rng.random() < 0.3:
        spec["initContainers"] = [{**one, "restartPolicy": "Always"} for one in containers[:1]]
        spec["initContainers"][0]["name"] = "init"
    if rng.random() < 0.3:
        spec["overhead"] = hostile_requests(rng)
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "labels": labels,
        "annotations": {key: hostile_text(rng) for key in keys},
    }
    if rng.random() < 0.2:
        metadata["managedFields"] = [{"fieldsV1": _deep(rng.choice((10, 900)))}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def hostile_node(rng: Random, name: str) -> dict[str, Any]:
    """A node as JSON with extreme capacity and any annotations of its agent; nothing is scheduled there by
    default."""
    annotations = {key: hostile_text(rng) for key in rng.sample(NODE_KEYS, rng.randint(0, 3))}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"unschedulable": True},
        "status": {"allocatable": {**hostile_requests(rng), "pods": rng.choice(("0", "110", "9Ei"))}},
    }


def _spoiled(rng: Random, document: Any) -> Any:
    """The document with one value in it replaced."""
    if isinstance(document, dict) and document and rng.random() < 0.8:
        key = rng.choice(list(document))
        if rng.random() < 0.15:
            return {**document, rng.choice(("", "cpu", "a/b/c", "x" * 300)): document[key]}
        return {**document, key: _spoiled(rng, document[key])}
    if isinstance(document, list) and document and rng.random() < 0.8:
        i = rng.randrange(len(document))
        if rng.random() < 0.2:
            return document * rng.choice((0, 2, 100))
        return [*document[:i], _spoiled(rng, document[i]), *document[i + 1 :]]
    return rng.choice(_LEAVES)


def _deep(n: int) -> Any:
    found: Any = {}
    for _ in range(n):
        found = {"f:x": found}
    return found

"""No word that a tenant can write lifts what the administrator has set.

The same workload runs without and with each key of docs/annotations.md, and each field of a pod, a PodGroup
and a controller's object that is read. Two numbers may not rise by it: what the tenant's queue uses above its
limit, and how many of another tenant's pods are evicted. A key or field without words here fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.lab.sim.objects import make_pod
from gangsched.model import events as ev
from gangsched.model.effects import DeletePod, EvictPod
from gangsched.model.objects import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus
from gangsched.model.owners import OWNER_KINDS
from gangsched.model.pod_group import DIALECTS, POD, PodGroup
from gangsched.model.workloads import PRIORITY_CLASSES, PriorityClass
from tests.core.queued import queued
from tests.core.words_of_objects import (
    CRITICAL,
    NAMES,
    SYSTEM,
    Meta,
    Word,
    changed,
    dialects_fields_without_words,
    in_group,
    of_dialects,
    of_owners,
    owner_as_written,
    owners_fields_without_words,
    with_value,
)
from tests.docs.meanings import FOREIGN_KEYS, KEYS
from tests.support.scenario import Cluster, cluster, gang

LIMIT = 4
N_PODS = 8
LIMITED = f"""
inferGangs: [JobSet, LeaderWorkerSet, RayCluster, Kueue, Job]
queueing: {{}}
fairness: {{reclaim: fair, compare: [nvidia.com/gpu]}}
queues:
- {{name: honest, guaranteed: {{nvidia.com/gpu: 4}}, namespaces: [honest]}}
- {{name: tenant, limit: {{nvidia.com/gpu: {LIMIT}}}, namespaces: [t]}}
- {{name: other, limit: {{nvidia.com/gpu: 2}}, namespaces: [other]}}
"""
SHARED = """
inferGangs: [JobSet, LeaderWorkerSet, RayCluster, Kueue, Job]
queueing: {bound: {groups: 2, mode: hard}, onOverrun: yield}
queues:
- {name: honest, guaranteed: {nvidia.com/gpu: 4}, namespaces: [honest]}
- {name: tenant, namespaces: [t]}
"""

# -- keys ----------------------------------------------------------------------------------------------------

# For what a key's own syntax asks; every key is tried with GENERIC as well.
ALL_KEYS = {**KEYS, **FOREIGN_KEYS}
GENERIC = ("true", "8", str(SYSTEM))
OWN_VALUES: Mapping[str, tuple[str, ...]] = {
    "gangsched.io/queue": ("other", "honest", "/other", ""),
    "gangsched.io/started-in-queue": ("other", "honest", "/other", "/kueue"),
    "gangsched.io/groups": ('["t/g","honest/h"]', '["honest/h0"]'),
    "gangsched.io/on-partial-bind": ("complete", "unwind"),
    "gangsched.io/disruption-mode": ("all", "single"),
    "gangsched.io/on-device-failure": ("none", "evictGang"),
    "gangsched.io/recover-within": ("1s", "999999999h"),
    "gangsched.io/if-not-recovered": ("stay", "move"),
    "gangsched.io/allocated-devices": ('{"main":{"nvidia.com/gpu":["GPU-n0-0"]}}', "{}"),
    "gangsched.io/gang": ("honest/h0", "t/g"),
    "gangsched.io/topology": ("required: topology.kubernetes.io/rack",),
    "gang.scheduling.koordinator.sh/groups": ('["t/g","honest/h0"]',),
    "yunikorn.apache.org/task-groups": ('[{"name":"w","minMember":4}]',),
}
# What makes a gang of the pods, so that the keys that state its numbers count.
NAMING: Mapping[str, Meta] = {
    "gangsched.io/": {"gangsched.io/pod-group": "g"},
    "pod-group.scheduling.sigs.k8s.io/": {"pod-group.scheduling.sigs.k8s.io/name": "g"},
    "kueue.x-k8s.io/": {"kueue.x-k8s.io/pod-group-name": "g"},
}
NUMBERS: Mapping[str, Meta] = {
    "gangsched.io/": {"gangsched.io/min-members": "2"},
    "pod-group.scheduling.sigs.k8s.io/": {"pod-group.scheduling.sigs.k8s.io/min-available": "2"},
    "kueue.x-k8s.io/": {"kueue.x-k8s.io/pod-group-total-count": "8"},
}
# Other schedulers' words for admission that are in no table, as none of them is read.
FOREIGN = (
    "kueue.x-k8s.io/managed",
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
    "kueue.x-k8s.io/prebuilt-workload-name",
    "scheduling.volcano.sh/queue-name",
    "yunikorn.apache.org/queue",
    "scheduler.alpha.kubernetes.io/critical-pod",
    "koordinator.sh/qosClass",
    "quota.scheduling.koordinator.sh/name",
    "priorityClassName",
)


def of_keys() -> Iterator[Word]:
    for key in (*ALL_KEYS, *FOREIGN):
        where = ALL_KEYS[key][0] if key in ALL_KEYS else ""
        values = (*OWN_VALUES.get(key, ()), *GENERIC)
        for value in dict.fromkeys(values):
            own, prefix = {key: value}, key.partition("/")[0] + "/"
            yield Word(f"{key}={value}", labels=own, annotations=own)
            if prefix in NAMING:
                yield Word(
                    f"{key}={value} of a gang",
                    labels=NAMING[prefix],
                    annotations={**NUMBERS[prefix], **own},
                )
        if "PodGroup" in where:
            for value in dict.fromkeys(values):
                yield in_group("coscheduling", f"{key}={value} on a PodGroup", {"minMember": 2}, {key: value})


# -- PodGroups -----------------------------------------------------------------------------------------------

# By the field of model.pod_group.PodGroup that it becomes: the words for it in objects of every dialect.
OF_GROUPS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "min_count": ({"minMember": 8}, {"schedulingPolicy": {"gang": {"minCount": 8}}}),
    "priority": ({"priority": SYSTEM}, {"priority": 10, "priorityClassName": "high"}),
    "priority_class": ({"priorityClassName": CRITICAL}, {"priorityClassName": "high"}),
    "preempts": ({"preemptionPolicy": "PreemptLowerPriority", "priority": SYSTEM},),
    "is_basic": ({"schedulingPolicy": {"basic": {}}, "priority": SYSTEM, "priorityClassName": CRITICAL},),
    "min_resources": ({"minResources": {"nvidia.com/gpu": "8"}},),
    "roles": ({"minTaskMember": {"w": 2}}, {"subGroups": [{"name": "w", "minMember": 2}]}),
    "known_roles": ({"subGroups": [{"name": "w", "minMember": 2}]},),
    "unsupported": ({"subGroupPolicy": [{"name": "w"}]}, {"preemptibility": "non-preemptible"}),
    "schedule_timeout_s": ({"scheduleTimeoutSeconds": 86_400},),
    "disruption_mode": ({"disruptionMode": {"all": {}}}, {"disruptionMode": {"single": {}}}),
    "topology": ({"schedulingConstraints": {"topology": [{"key": "kubernetes.io/hostname"}]}},),
    "claims": ({"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},),
}
# From annotations of the object (of_keys), or from its metadata and status, which no tenant writes.
ELSEWHERE = {"total_count", "start_together", "on_partial_bind", "on_device_failure", "required_ids"}
ELSEWHERE |= {"packing_weight", "walltime", "key", "uid", "api_version", "generation", "status", "wishes"}
ELSEWHERE |= {"recover_within_s", "if_not_recovered"}


def of_groups() -> Iterator[Word]:
    for dialect in NAMES:
        least: Mapping[str, Any] = {"minMember": 2}
        if dialect == "core":
            least = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        for words in OF_GROUPS.values():
            for spec in words:
                if dialect != "core" and "schedulingConstraints" in spec:
                    continue  # another dialect has no such field, and the scenario's own check reads it
                yield in_group(dialect, str(dict(spec)), {**least, **spec})
        yield in_group(dialect, "its queue", {**least, "queue": "honest", "schedulingQueue": "honest"})


# -- pods and controllers ------------------------------------------------------------------------------------

# What admission decides, or only kubelets, controllers and schedulers write; and what asks for more or for
# fewer places.
NOT_THE_TENANTS = {"priority", "scheduler_name", "phase", "start_time", "reason", "observed_generation"}
NOT_THE_TENANTS |= {"container_statuses", "init_container_statuses", "resource_claim_statuses"}
NOT_THE_TENANTS |= {"extended_resource_claim_status"}
NOT_THE_TENANTS |= {"not_understood"}
OF_PODS: Mapping[str, tuple[Any, ...]] = {
    "node_name": (),  # forged below: such a pod passes by every scheduler
    "scheduling_gates": ([{"name": "kueue.x-k8s.io/admission"}],),
    "scheduling_group": ({"podGroupName": "g"},),
    "preemption_policy": ("PreemptLowerPriority", "Never"),
    "termination_grace_period_seconds": (86_400, 0),
    "active_deadline_seconds": (1,),
    "node_selector": ({"kubernetes.io/hostname": "n0"},),
    "affinity": ({"podAntiAffinity": {}},),
    "tolerations": ([{"operator": "Exists"}],),
    "containers": (),
    "init_containers": ([{"name": "i", "resources": {"requests": {"cpu": "1"}}}],),
    "resources": (),
    "overhead": ({"cpu": "1m"},),
    "host_network": (True,),
    "host_users": (False,),
    "workload_ref": ({"name": "w"},),
    "topology_spread_constraints": ([{"topologyKey": "kubernetes.io/hostname"}],),
    "volumes": ([{"name": "v"}],),
    "resource_claims": ([{"name": "c"}],),
    "conditions": ([{"type": "gangsched.io/StartPromised", "status": "True", "reason": "Claimed"}],),
    "nominated_node_name": ("n0",),
}
WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "Workload",
    "metadata": {
        "name": "w",
        "namespace": "t",
        "uid": "uid-w",
        "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": f"p{k}", "uid": f"uid-t-p{k}"} for k in range(N_PODS)
        ],
    },
    "spec": {"queueName": "q", "priority": SYSTEM, "podSets": [{"name": "main", "count": 8}]},
    "status": {
        "conditions": [{"type": "Admitted", "status": "True", "reason": "Admitted", "message": ""}],
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [{"name": "main", "count": 8, "resourceUsage": {"nvidia.com/gpu": "8"}}],
        },
    },
}


def of_pods() -> Iterator[Word]:
    for field in PodSpec.__struct_fields__:
        for value in OF_PODS.get(field, ()):
            yield Word(f"spec.{field}: {value}", spec={field: value})
    for field in PodStatus.__struct_fields__:
        for value in OF_PODS.get(field, ()):
            yield Word(f"status.{field}: {value}", status={field: value})


def of_workloads() -> Iterator[Word]:
    name = {"kueue.x-k8s.io/workload": "w"}
    managed = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "q"}
    yield Word("an admitted Workload", labels=managed, annotations=name, owners=(WORKLOAD,))
    written = {key: value for key, value in WORKLOAD.items() if key != "status"}
    yield Word("a Workload as a tenant writes it", labels=managed, annotations=name, owners=(written,))


OWNERS = tuple(of_owners())
WORDS = (*of_keys(), *of_groups(), *of_dialects(), *of_pods(), *of_workloads(), *OWNERS)


def test_every_key_and_field_has_words() -> None:
    stated = {field for field in PodGroup.__struct_fields__ if field not in ELSEWHERE}
    assert stated == set(OF_GROUPS)
    fields = {*PodSpec.__struct_fields__, *PodStatus.__struct_fields__} - NOT_THE_TENANTS
    assert fields == set(OF_PODS)
    assert {one.name for one in DIALECTS if one.kinds} == set(NAMES)
    assert owners_fields_without_words() == []
    assert dialects_fields_without_words() == []
    assert set(OWN_VALUES) <= set(ALL_KEYS)


# -- the scenes ----------------------------------------------------------------------------------------------


def written(pod: Pod, word: Word) -> Pod:
    """The pod with the words on it."""
    marks = dict(word.labels)
    if word.members:
        marks |= word.members[min(int(pod.metadata.name[1:]), len(word.members) - 1)]
    meta = replace(
        pod.metadata,
        labels={**(pod.metadata.labels or {}), **marks},
        annotations={**(pod.metadata.annotations or {}), **word.annotations},
        owner_references=msgspec.convert(word.references, list[OwnerReference]),
    )
    spec = msgspec.convert({**_plain(pod.spec), **_wired(word.spec)}, PodSpec)
    status = msgspec.convert({**_plain(pod.status), **_wired(word.status)}, PodStatus)
    return replace(pod, metadata=meta, spec=spec, status=status)


def _plain(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value)
    return found


def _wired(fields: Mapping[str, Any]) -> dict[str, Any]:
    def camel(name: str) -> str:
        first, *rest = name.split("_")
        return first + "".join(word.capitalize() for word in rest)

    return {camel(name): value for name, value in fields.items()}


def told(c: Cluster, word: Word) -> None:
    """The objects that the tenant writes, and the classes that there are."""
    for name, value in ((CRITICAL, SYSTEM), ("high", 1000), ("gangsched", 1_000_000_000)):
        meta = ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1")
        c.tell(ev.ObjectPut(PRIORITY_CLASSES, PriorityClass(meta, value)))
    for dialect, item in word.objects:
        c.object(dialect, item)
    for plain in word.owners:
        tell_owner(c, plain)


def tell_owner(c: Cluster, plain: Mapping[str, Any]) -> None:
    kind = OWNER_KINDS[plain["kind"]]
    c.tell(ev.OwnerPut(kind.read(msgspec.convert(plain, kind.wire))))


def held(c: Cluster, namespace: str) -> int:
    there = (pod for pod in c.pods.values() if pod.metadata.namespace == namespace and pod.spec.node_name)
    return sum(not pod.is_terminal for pod in there)


def pods(word: Word | None = None, first: int = 0, n: int = N_PODS) -> list[Pod]:
    made = [make_pod(f"p{k}", namespace="t") for k in range(first, first + n)]
    return made if word is None else [written(pod, word) for pod in made]


def above_the_limit(c: Cluster) -> int:
    return max(0, held(c, "t") - LIMIT)


KUEUES = LIMITED.replace("fairness: {", "fairness: {kueueAdmission: passesLimits, ")


def passes(word: Word, tree: str) -> bool:
    """Whether Kueue has admitted the pods, where that counts: no tenant writes a Workload's status."""
    return tree == KUEUES and WORKLOAD in word.owners


@pytest.mark.long
@pytest.mark.parametrize("tree", [LIMITED, KUEUES], ids=["limits", "kueue-passes-limits"])
def test_a_limit_holds_whatever_is_written_on_new_pods(tree: str) -> None:
    broken = []
    for word in WORDS:
        if tree == KUEUES and ("kueue" not in str(word) or passes(word, tree)):
            continue
        c = queued(tree)
        told(c, word)
        if above_the_limit(c.submit(pods(word)).settled()):
            broken.append(word.name)
    assert broken == []


@pytest.mark.long
@pytest.mark.parametrize("tree", [LIMITED, KUEUES], ids=["limits", "kueue-passes-limits"])
def test_a_limit_holds_whatever_is_written_later(tree: str) -> None:
    """First on pods that the limit keeps out, then on those that run."""
    broken = []
    for word in WORDS:
        if tree == KUEUES and ("kueue" not in str(word) or passes(word, tree)):
            continue
        c = queued(tree)
        told(c, word)
        c.submit(pods()).settled()
        assert held(c, "t") == LIMIT
        for is_running in (False, True):
            for pod in [pod for pod in c.pods.values() if bool(pod.spec.node_name) is is_running]:
                c.update(written(pod, word))
            if above_the_limit(c.settled()):
                broken.append(f"{word.name}, {is_running=}")
    assert broken == []


@pytest.mark.parametrize(("tree", "n"), [(LIMITED, 0), (KUEUES, N_PODS)], ids=["limits", "kueue-passes"])
def test_only_what_kueue_has_admitted_passes_and_only_where_the_file_says_so(tree: str, n: int) -> None:
    """The Workload makes a gang of all eight, which starts whole or not at all."""
    [word] = [one for one in WORDS if passes(one, KUEUES)]
    c = queued(tree)
    told(c, word)
    assert held(c.submit(pods(word)).settled(), "t") == n


@pytest.mark.long
@pytest.mark.parametrize("queues", [LIMITED, SHARED], ids=["limits", "shared"])
def test_what_is_changed_in_an_owner_later_lifts_nothing(queues: str) -> None:
    """A gang as its controller makes it runs beside others' pods; then a field of its object is changed."""
    broken = []
    for word in OWNERS:
        [item] = word.owners
        before = owner_as_written(item["kind"])
        c = queued(queues, nodes=2)
        told(c, before)
        c.submit([make_pod(f"h{k}", namespace="honest") for k in range(8)]).settled()
        c.submit(pods(before)).settled()
        tell_owner(c, item)
        c.settled()
        if (queues == LIMITED and above_the_limit(c)) or held(c, "honest") != 8 or evictions_of_others(c):
            broken.append(word.name)
    assert broken == []


def test_a_gang_of_each_controller_starts_as_far_as_the_limit_goes() -> None:
    """Without this the words above would be about lone pods, or about gangs that never start."""
    for kind in OWNER_KINDS:
        c = queued(LIMITED)
        word = owner_as_written(kind)
        told(c, word)
        assert held(c.submit(pods(word)).settled(), "t") == LIMIT, kind
        groups = {info.group.key for info in c.pod_infos().values() if info.group}
        assert len(groups) == 1, kind
        assert POD not in {key.dialect for key in groups}, kind


def test_what_a_tenant_writes_in_an_admitted_workload_lets_no_more_pass_than_kueue_has_admitted() -> None:
    """Kueue has admitted two of the eight pods that the Workload owns."""
    [whole] = [one for one in WORDS if passes(one, KUEUES)]
    admission = {
        "podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {"nvidia.com/gpu": "2"}}]
    }
    two = with_value(whole.owners[0], "status.admission", admission)
    two = with_value(two, "spec.podSets[].count", 2)
    plain = whole._replace(owners=(two,))
    passed = {}
    for word in (plain, *changed("Workload", plain, status=False)):
        c = queued(KUEUES)
        told(c, word)
        passed[word.name] = held(c.submit(pods(word)).settled(), "t")
    assert passed[plain.name] == LIMIT + 2
    assert {name: n for name, n in passed.items() if n > LIMIT + 2} == {}


def evictions_of_others(c: Cluster) -> int:
    gone = [effect for effect in c.effects if isinstance(effect, EvictPod | DeletePod)]
    return sum(one.namespace != "t" for one in gone)


@pytest.mark.long
@pytest.mark.parametrize("queues", [SHARED, ""], ids=["queues", "no-queues"])
def test_no_pod_of_others_is_evicted_for_what_is_written(queues: str) -> None:
    """The honest tenant holds the whole node, more than what it is guaranteed; priorities are equal."""
    broken = []
    for word in WORDS:
        c = queued(queues) if queues else cluster(nodes=1)
        told(c, word)
        c.submit([make_pod(f"h{k}", namespace="honest") for k in range(8)]).run()
        assert held(c, "honest") == 8
        if evictions_of_others(c.submit(pods(word)).settled()):
            broken.append(word.name)
    assert broken == []


@pytest.mark.long
def test_a_guarantee_is_got_back_whatever_is_written() -> None:
    """The tenant has borrowed the whole node; half of it is guaranteed to the honest one, who comes later."""
    broken = []
    for word in WORDS:
        c = queued(SHARED)
        told(c, word)
        c.submit(pods(word)).settled()
        c.submit([make_pod(f"h{k}", namespace="honest") for k in range(4)]).settled()
        if held(c, "honest") != 4:
            broken.append(word.name)
    assert broken == []


@pytest.mark.parametrize("forged", [False, True])
def test_pods_put_on_a_node_by_hand_do_not_complete_a_gang_beyond_a_limit(forged: bool) -> None:
    """By spec.nodeName, past every scheduler; the keys of a Binding can be forged only where no policy is."""
    c = queued(LIMITED)
    own = {"gangsched.io/gang": "t/g0", "gangsched.io/started-in-queue": "honest"} if forged else {}
    made = [make_pod(f"g{k}", namespace="t", group="g0", min_members=8, annotations=own) for k in range(8)]
    [first, *rest] = made
    c.submit(replace(first, spec=replace(first.spec, node_name="n0")))
    c.submit(rest).settled()
    c.restart().settled()
    assert held(c, "t") <= LIMIT


def test_a_gang_does_not_grow_beyond_a_limit_by_a_larger_number() -> None:
    c = queued(LIMITED)
    c.submit(gang("g", pods=8, min_members=1, namespace="t")).settled()
    assert held(c, "t") == LIMIT
    for pod in list(c.pods.values()):
        c.update(written(pod, Word("", annotations={"gangsched.io/min-members": "8"})))
    c.settled()
    c.restart().settled()
    assert held(c, "t") == LIMIT

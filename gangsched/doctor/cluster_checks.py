"""The checks of nodes, pods and gangs as they are now: pure, each a list of findings.

Lives here: agents, inventories, drift, half-bound gangs, pods that no scheduler serves. Not here: the
installation itself (doctor.checks), the map of devices (gangsched.devices.report).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime

from gangsched.core.types.group import Group, MemberState
from gangsched.devices.report import GONE, MISMATCH, TWICE, NodeMap
from gangsched.doctor.findings import Finding, Level, Work, found
from gangsched.doctor.reading import Facts
from gangsched.errors import ParseError
from gangsched.model.devices.annotations import Device, parse_devices
from gangsched.model.devices.labels import inventory_text
from gangsched.model.objects import Condition, Node, Pod
from gangsched.model.pod_group import group_key
from gangsched.model.resource_claims.objects import DEVICE_CLASS_PREFIX
from gangsched.model.resources import pod_requests
from gangsched.model.stated.load import LOAD_KEY, parse_load
from gangsched.model.text.printable import several, shown
from gangsched.model.text.quantity import to_int
from gangsched.reading.strict import nearest

AGENT_NAMESPACE = "gangsched-agent"
# Three heartbeats of an agent, and time to spare.
_STALE_S = 120.0
# A gang is bound pod by pod within seconds; a new pod is looked at at once.
_SETTLED_S = 60.0
_UNSEEN_S = 30.0
_MAX_NAMED = 5
_OTHERS = ("default-scheduler",)
_CORRECT = "Correct the annotation or label that it names, where it is written, or take it away."


def device_resources(nodes: Iterable[Node]) -> frozenset[str]:
    """Resources whose devices have IDs: those that a node lists, and all GPUs."""
    names: set[str] = set()
    for node in nodes:
        names.update(name for name in node.status.allocatable or () if name.endswith("/gpu"))
        names.update(_inventory(node) or ())
    return frozenset(names)


def check_agents(nodes: Sequence[Node], pods: Sequence[Pod], now: datetime) -> Iterator[Finding]:
    """Checks that each node with devices has an agent that is ready and reports."""
    resources = device_resources(nodes)
    with_devices = [node for node in nodes if any(_offered(node, name) for name in resources)]
    if not with_devices:
        yield found("agents", "ok", "no node offers GPUs or lists devices")
        return
    bare = [node.metadata.name for node in with_devices if _text(node) is None]
    if bare:
        yield found(
            "agents",
            "warning",
            f"no list of devices on {_nodes(bare)}: pods there are placed by count, and get no device IDs",
            "kubectl apply -k deploy/agent/",
        )
    agents = {pod.spec.node_name: pod for pod in pods if _is_agent(pod)}
    ready = {name for name, pod in agents.items() if _condition(pod, "Ready") == "True"}
    missing = [node.metadata.name for node in with_devices if node.metadata.name not in ready]
    if missing:
        text = f"no agent is ready on {_nodes(missing)}: no agent keeps the list of devices there up to date"
        cure = f"kubectl -n {AGENT_NAMESPACE} get pods -o wide"
        yield found("agents", "warning", text, cure if agents else "kubectl apply -k deploy/agent/")
    stale = sorted(name for name, age_s in _ages(nodes, now) if age_s > _STALE_S)
    if stale:
        text = f"{_nodes(stale)}: the measured load is older than {_STALE_S:.0f} s"
        yield found(
            "agents",
            "warning",
            text,
            f"kubectl -n {AGENT_NAMESPACE} logs -l app.kubernetes.io/name=gangsched-agent",
        )
    if not (bare or missing or stale):
        yield found(
            "agents", "ok", f"{several(len(with_devices), 'node')} with devices, an agent ready on each"
        )


def check_dynamic(
    facts: Facts,
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    served: Collection[str],
    allocating: Collection[str] = (),
) -> Iterator[Finding]:
    """Checks for pods that wait in vain for devices of Dynamic Resource Allocation.

    allocating: schedulerNames whose profiles allocate claims.
    """
    slices = facts.slices or ()
    if not slices:
        return
    drivers = ", ".join(map(shown, sorted({one.spec.driver for one in slices})[:_MAX_NAMED]))
    on = sorted({one.spec.node_name for one in slices if one.spec.node_name})
    where = f" on {_nodes(on)}" if on else ""
    text = f"{drivers} offers devices by Dynamic Resource Allocation{where}"
    named = {one.spec.extended_resource_name or "" for one in facts.device_classes or ()}
    alone = {name for name in named if not any(_offered(node, name) for node in nodes)}
    waiting = [
        pod
        for pod in pods
        if pod.spec.scheduler_name in served
        and not pod.spec.node_name
        and _asks_for(pod, alone, claims=pod.spec.scheduler_name not in allocating)
    ]
    if not waiting:
        yield found(
            "devices", "ok", f"{text}, and no pod of {', '.join(sorted(served))} waits in vain for one"
        )
        return
    yield found(
        "devices",
        "problem",
        f"{text}, which gangsched does not allocate to them: in vain {several(len(waiting), 'pod')} of its"
        f" own wait{'s' * (len(waiting) == 1)} for some ({waiting[0].key})",
        "For claims: leave DynamicResources enabled in their profile. Otherwise run a device plugin on"
        " these nodes, or leave these pods to kube-scheduler (schedulerName: default-scheduler).",
    )


def check_inventories(nodes: Sequence[Node]) -> Iterator[Finding]:
    """Compares the healthy devices that a node lists with what kubelet offers."""
    n_listing = n_wrong = 0
    for node in nodes:
        listed = _inventory(node)
        if listed is None:
            continue
        n_listing += 1
        for resource, devices in sorted(listed.items()):
            healthy, offered = sum(device.health == "Healthy" for device in devices), _offered(node, resource)
            if healthy == offered:
                continue
            n_wrong += 1
            if n_wrong <= _MAX_NAMED:
                name = node.metadata.name
                yield found(
                    "inventory",
                    "warning",
                    f"{name} lists {healthy} healthy {resource}, and kubelet offers {offered}: the smaller"
                    " number is used",
                    f"gangsched devices {name}; then check the device plugin on that node",
                )
    if n_wrong > _MAX_NAMED:
        yield found(
            "inventory", "warning", f"and {several(n_wrong - _MAX_NAMED, 'more node')}", "gangsched devices"
        )
    if not n_wrong:
        yield found(
            "inventory", "ok", f"devices listed by {several(n_listing, 'node')}, as many as kubelet offers"
        )


def check_drift(maps: Sequence[NodeMap]) -> Iterator[Finding]:
    """Finds devices that two pods name, or that kubelet gave to another pod, or that no node lists."""
    n_wrong = 0
    for one in maps:
        facts: list[tuple[str, Level, str]] = [(problem, "problem", _CORRECT) for problem in one.problems]
        for device in one.devices:
            pods = " and ".join(names := sorted({holder.pod for holder in device.holders}))
            if device.state == TWICE:
                text = f"{device.resource} {device.id} is claimed by {pods}"
                facts.append((text, "problem", f"{_deleted(names[-1:])}, and see who wrote its annotation"))
            elif device.state == MISMATCH:
                other = device.kubelet or "none of them"
                facts.append(
                    (
                        f"{device.resource} {device.id} is planned for {pods or 'no pod'}; kubelet: {other}",
                        "problem",
                        _deleted(names or [device.kubelet]) + ": its successor gets devices that both know",
                    )
                )
            elif device.health == GONE and device.holders:
                text = f"{device.resource} {device.id} is held by {pods} and not listed"
                then = f"if it is gone for good, {_deleted(names)}"
                facts.append((text, "warning", f"Check the agent and the devices of {one.name}; {then}"))
        for text, level, cure in facts:
            n_wrong += 1
            if n_wrong <= _MAX_NAMED:
                yield found("drift", level, f"{one.name}: {text}", cure)
    if n_wrong > _MAX_NAMED:
        yield found("drift", "problem", f"and {n_wrong - _MAX_NAMED} more like these", "gangsched devices")
    if not n_wrong:
        yield found("drift", "ok", "no device is claimed twice, or held by another pod than planned")


def check_gangs(groups: Iterable[Group], now: datetime) -> Iterator[Finding]:
    """Finds gangs that run in part, and have for a while."""
    wrong = []
    for group in groups:
        if group.is_half_bound and (_bound_ago_s(group, now) or 0.0) >= _SETTLED_S:
            wrong.append(group)
    for group in sorted(wrong, key=lambda one: one.key)[:_MAX_NAMED]:
        yield found(
            "gangs",
            "problem",
            f"gang {group.key} runs in part: {group.n_bound} of {group.start_count} members",
            f"gangsched explain {group.key} says what the others lack: make room, or delete its pods.",
        )
    if len(wrong) > _MAX_NAMED:
        yield found("gangs", "problem", f"and {len(wrong) - _MAX_NAMED} more gangs", "gangsched queue -A")
    if not wrong:
        yield found("gangs", "ok", "no gang runs in part")


def work_of(pods: Sequence[Pod], served: Collection[str], now: datetime) -> Work:
    """Returns what was done about the pods that name one of these schedulers."""
    mine = [pod for pod in pods if pod.spec.scheduler_name in served]
    times = [at for pod in mine if pod.spec.node_name and (at := pod.bound_at) is not None]
    last = max(times, default=None)
    return Work(len(times), last, sum(_is_unseen(pod, now) for pod in mine))


def check_unseen(pods: Sequence[Pod], served: Collection[str], now: datetime) -> Iterator[Finding]:
    """Finds pods whose scheduler does not exist, or does not look at them: they have no condition at all."""
    by_name: dict[str, list[Pod]] = {}
    for pod in pods:
        if _is_unseen(pod, now) and pod.spec.scheduler_name not in _OTHERS:
            by_name.setdefault(pod.spec.scheduler_name, []).append(pod)
    for name, unseen in sorted(by_name.items()):
        first, n = unseen[0].key, len(unseen)
        pending = f"the pod {first}" if n == 1 else f"{n} pods, {first} among them,"
        s = "s" if n == 1 else ""
        if name in served:
            text = f"{pending} wait{s} for {name!r}, which has reported no reason: no replica schedules"
            cure = f"Start one, or see why none leads, above; gangsched explain {_gang_of(unseen[0])}"
            yield found("pods", "problem", text, cure)
        else:
            yield found(
                "pods",
                "problem",
                f"{pending} name{s} the scheduler {name!r}, which is not served{nearest(name, served)};"
                f" served here: {', '.join(sorted(served))}",
                "Correct spec.schedulerName where the pods are made (the template of their Job, for one).",
            )
    if not by_name:
        yield found("pods", "ok", "every pending pod is looked at by a scheduler")


# -- inside --------------------------------------------------------------------------------------------


def _asks_for(pod: Pod, resources: Collection[str], *, claims: bool) -> bool:
    """Whether it has a claim, if claims count, or requests one of these resources, or one that names its
    class."""
    try:
        requests = pod_requests(pod.spec)
    except ParseError:
        requests = {}
    return (claims and bool(pod.spec.resource_claims)) or any(
        name in resources or name.startswith(DEVICE_CLASS_PREFIX) for name in requests
    )


def _text(node: Node) -> str | None:
    return inventory_text(node.metadata.annotations, node.metadata.labels)


def _deleted(pods: Sequence[str]) -> str:
    """The command that deletes the first of them, named namespace/name."""
    namespace, _, name = next(iter(pods), "").rpartition("/")
    return f"kubectl -n {namespace} delete pod {name}" if name else "delete the pod that holds it"


def _inventory(node: Node) -> dict[str, list[Device]] | None:
    """Returns the listed devices; None without a list, or if it cannot be read, which check_drift reports."""
    text = _text(node)
    try:
        return None if text is None else {name: list(ids) for name, ids in parse_devices(text).items()}
    except ParseError:
        return None


def _offered(node: Node, resource: str) -> int:
    amount = (node.status.allocatable or {}).get(resource, 0)
    try:
        return to_int(str(amount))
    except ParseError:
        return 0


def _is_agent(pod: Pod) -> bool:
    return pod.metadata.namespace == AGENT_NAMESPACE and bool(pod.spec.node_name) and not pod.is_terminal


def _condition(pod: Pod, kind: str) -> str:
    conditions: Iterable[Condition] = pod.status.conditions or ()
    return next((one.status for one in conditions if one.type == kind), "")


def _ages(nodes: Iterable[Node], now: datetime) -> Iterator[tuple[str, float]]:
    for node in nodes:
        text = (node.metadata.annotations or {}).get(LOAD_KEY)
        if text is not None:
            try:
                yield node.metadata.name, (now - parse_load(text).observed_at).total_seconds()
            except ParseError:
                continue


def _bound_ago_s(group: Group, now: datetime) -> float | None:
    """Returns the seconds since the last of its members was bound."""
    bound = group.in_state(MemberState.BOUND)
    times = [at for info in bound if (at := info.pod.bound_at) is not None]
    return (now - max(times)).total_seconds() if times else None


def _is_unseen(pod: Pod, now: datetime) -> bool:
    made = pod.metadata.creation_timestamp
    return (
        not pod.spec.node_name
        and not pod.is_terminal
        and pod.metadata.deletion_timestamp is None
        and not pod.spec.scheduling_gates
        and not _condition(pod, "PodScheduled")
        and made is not None
        and (now - made).total_seconds() >= _UNSEEN_S
    )


def _gang_of(pod: Pod) -> str:
    try:
        return str(group_key(pod))
    except ParseError:
        return pod.key


def _nodes(names: Sequence[str]) -> str:
    ordered = sorted(names, key=lambda name: (len(name), name))
    more = f" and {len(names) - _MAX_NAMED} more" * (len(names) > _MAX_NAMED)
    return f"{several(len(names), 'node')} ({', '.join(ordered[:_MAX_NAMED])}{more})"

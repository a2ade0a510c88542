"""Who goes for whom: kube-scheduler's choice for every case in one cluster, and ours in memory.

kube-scheduler is started when all there is to know is there, the budgets too, whose arrival its log does not
tell; then the pods come that fit nowhere. Nobody runs the nodes, so whoever is asked to go stays, on his way
out. Lives here: both choices, and what a choice costs by kube-scheduler's own order; not comparing.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from gangsched.config import SchedulerConfig, parse_config
from gangsched.core.scheduler import Scheduler
from gangsched.kube.watch.decode import objects
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.objects import Node, Pod
from gangsched.plugins import IN_TREE, build_profiles
from tests.contract.api import Api
from tests.differential.draw import Json
from tests.differential.draw_preemption import CASE, CLASSES, Full, profile

BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
DEADLINE_S = 120.0
# A pod that was refused is not tried again, nor one that waits for its victims.
DOCUMENT = {"profiles": [profile()], "podInitialBackoffSeconds": 600, "podMaxBackoffSeconds": 600}
FLAGS = ("--vmodule=preemption=2,executor=2,schedule_one=2",)


class Choice(NamedTuple):
    """node: nominated, "" for none; victims: names of those who are asked to go; bound: it needs nobody."""

    node: str
    victims: frozenset[str]
    bound: str = ""


class Known(NamedTuple):
    """A case as the API server has it."""

    nodes: list[Json]
    settled: list[Json]
    budgets: list[Json]
    pod: Json


def theirs(plane: ControlPlane, cases: Sequence[Full]) -> list[tuple[Known, Choice]]:
    """What the real kube-scheduler does about each case."""
    api = Api("real", plane.base_url, plane.token, str(plane.ca_file))
    for name, (value, policy) in CLASSES.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        api.post(PRIORITIES, body).ok(201)
    # Admission reads classes from a watch: the one made last is the last that it knows.
    spec = {"containers": [{"name": "c", "image": "c"}], "priorityClassName": name}
    tried = {"metadata": {"name": "tried"}, "spec": spec}
    api.eventually(lambda: api.post(PODS, tried, dryRun="All"), 201)
    for case in cases:
        _put(api, case)
    nodes, budgets = (
        _by_case(api.get(path).ok()["items"], at) for path, at in ((NODES, _label), (BUDGETS, _named))
    )
    settled = _by_case(api.get(PODS).ok()["items"], _label)
    daemon = plane.start_kube_scheduler(config=DOCUMENT, flags=FLAGS)
    made = [api.post(PODS, case.pod).ok(201) for case in cases]
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        text = daemon.log.read_text()  # before the pods: what it says has happened shows there
        now = {pod["metadata"]["name"]: pod for pod in api.get(PODS).ok()["items"]}
        if all(
            _is_decided(now[pod["metadata"]["name"]], text, some_leave=bool(case.leaving))
            for pod, case in zip(made, cases, strict=True)
        ):
            break
        assert time.monotonic() < deadline_s, "kube-scheduler did not decide on everybody"
        time.sleep(0.1)
    answers = []
    for pod in made:
        name = _label(pod)
        known = Known(nodes[name], settled[name], budgets.get(name, []), pod)
        before = {one["metadata"]["name"] for one in known.settled if "deletionTimestamp" in one["metadata"]}
        going = [
            one["metadata"]["name"]
            for one in known.settled
            if "deletionTimestamp" in now[one["metadata"]["name"]]["metadata"]
        ]
        mine = now[pod["metadata"]["name"]]
        node, bound = mine["status"].get("nominatedNodeName", ""), mine["spec"].get("nodeName", "")
        # Whoever was leaving before is not asked again; where he was counted on the log does not say.
        answers.append((known, Choice("" if bound else node, frozenset(going) - before, bound)))
    return answers


def ours(known: Known) -> Choice:
    """What we do about it, decided in memory."""
    config = configuration()
    scheduler = Scheduler(build_profiles(config), config.settings)
    events: list[ev.Event] = [ev.NodeAdded(_decoded(node, Node)) for node in known.nodes]
    events += [ev.PodAdded(_decoded(pod, Pod)) for pod in known.settled]
    kind = "poddisruptionbudgets.policy"
    events += [
        ev.ObjectPut(kind, objects(kind).decode_object(json.dumps(one).encode())) for one in known.budgets
    ]
    scheduler.handle(events, 0.0)
    scheduler.handle([ev.KindSynced(name) for name in scheduler.kinds], 0.0)
    effects = list(scheduler.handle([ev.PodAdded(_decoded(known.pod, Pod))], 1.0))
    effects += scheduler.schedule_next(2.0) or []
    node = next((one.node for one in effects if isinstance(one, ef.NominateNode)), "")
    bound = next((one.node for one in effects if isinstance(one, ef.BindPod)), "")
    names = frozenset(one.name for one in effects if isinstance(one, ef.EvictPod | ef.DeletePod))
    return Choice(node, names, bound)


def cost(known: Known, choice: Choice) -> tuple[float, ...]:
    """By pickOneNodeForPreemption: broken budgets, highest priority, sum, number, start."""
    pods = {pod["metadata"]["name"]: pod for pod in known.settled}
    here = [pod for pod in known.settled if pod["spec"]["nodeName"] == choice.node]
    here = [pod for pod in here if pod["spec"]["priority"] < known.pod["spec"]["priority"]]
    taken = [pods[name] for name in choice.victims]
    against = {
        name
        for budget in known.budgets
        for name in _over(budget, sorted(here, key=_importance))
        if name in choice.victims
    }
    highest = max(pod["spec"]["priority"] for pod in taken)
    starts = [_importance(pod)[1] for pod in taken if pod["spec"]["priority"] == highest]
    total = sum(pod["spec"]["priority"] for pod in taken)
    return len(against), highest, total + 2**31 * len(taken), len(taken), -min(starts)


def _over(budget: Json, pods: list[Json]) -> list[str]:
    """Names of those, the most important first, for whom the budget has nothing left."""
    wanted = budget["spec"]["selector"]["matchLabels"].items()
    told = budget["status"].get("disruptedPods", {})
    mine = [pod["metadata"] for pod in pods if wanted <= pod["metadata"]["labels"].items()]
    names = [meta["name"] for meta in mine if meta["name"] not in told]
    return names[budget["status"].get("disruptionsAllowed", 0) :]


def _importance(pod: Json) -> tuple[float, float]:
    started = pod["status"].get("startTime")
    seconds = math.inf if started is None else datetime.fromisoformat(started).timestamp()
    return -pod["spec"]["priority"], seconds


def configuration() -> SchedulerConfig:
    """The file that both read."""
    head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    return parse_config(json.dumps(head | DOCUMENT), source="taking.py", plugins=IN_TREE)


def _put(api: Api, case: Full) -> None:
    for node in case.nodes:
        api.post(NODES, node).ok(201)
    for pod in case.settled:
        name = pod["metadata"]["name"]
        api.post(PODS, pod).ok(201)
        if name in case.started:
            status = {"status": {"phase": "Running", "startTime": case.started[name]}}
            api.patch(f"{PODS}/{name}/status", status).ok(200)
    for name in case.leaving:
        api.delete(f"{PODS}/{name}").ok(200)
    for budget in case.budgets:
        api.post(BUDGETS, {**budget, "status": {}}).ok(201)
        name = budget["metadata"]["name"]
        api.patch(f"{BUDGETS}/{name}/status", {"status": budget["status"]}).ok(200)


def _is_decided(pod: Json, log: str, *, some_leave: bool) -> bool:
    """Bound; refused without a way out; or its victims have all been asked."""
    name = f'"default/{pod["metadata"]["name"]}"'
    if pod["spec"].get("nodeName") or f'"Async Preemption finished completely" preemptor={name}' in log:
        return True
    if (
        pod["status"].get("nominatedNodeName")
        or f'"the target node for the preemption is determined" pod={name}' in log
    ):
        # Nobody is asked where all are leaving already, and then it does not say that it has finished.
        skipped = (
            f'"Victim Pod is already being deleted, skipping the API call for it" preemptor={name}' in log
        )
        return some_leave and skipped and f'"Start the preemption asynchronously" preemptor={name}' not in log
    return f'"Unable to schedule pod; no fit; waiting" pod={name}' in log


def _by_case(items: list[Json], of: Callable[[Json], str]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for item in items:
        found.setdefault(of(item), []).append(item)
    return found


def _label(item: Json) -> str:
    return str(item["metadata"]["labels"][CASE])


def _named(item: Json) -> str:
    return str(item["metadata"]["name"]).split("-")[0]


T = TypeVar("T")


def _decoded(obj: Json, kind: type[T]) -> T:
    return msgspec.json.decode(json.dumps(obj), type=kind)

"""The demo's story on the core alone, in virtual time: a stage without server, sockets or waiting.

The sample files' pods are told to the scenario's cluster as a Job's controller would make them, and every
bound pod runs at the next look.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.core.explaining.reports import GroupView, NodeView
from gangsched.lab.apiserver.simulated.nodes.scripts import script_of
from gangsched.lab.demo.claimed import views
from gangsched.lab.demo.play import Play, Show
from gangsched.lab.demo.samples import find_samples, read
from gangsched.lab.demo.scene import Chronicle
from gangsched.lab.demo.shows.screen import Frame
from gangsched.lab.demo.shows.show import Lines
from gangsched.lab.demo.stage import QUEUEING, answer_of, remaining_text
from gangsched.lab.demo.story import N_GPUS, N_NODES, N_RACKS, STORY, Action, Delete, Explain, Report, Step
from gangsched.lab.sim.objects import at, make_node
from gangsched.model.objects import Pod
from gangsched.model.resource_claims.objects import DEVICE_CLASSES, SLICES, DeviceClass, ResourceSlice
from gangsched.model.stated.bandwidth import REMAINING_KEY
from tests.core.claims import ClaimCluster, Json

SAMPLES = find_samples()
_LISTED = {"DeviceClass": (DEVICE_CLASSES, DeviceClass), "ResourceSlice": (SLICES, ResourceSlice)}


class Rehearsal:
    """A stage in virtual time, and what was said while the story was played on it."""

    def __init__(self, *, nodes: int = N_NODES, show: Show | None = None) -> None:
        settings = Settings(queueing=QUEUEING)
        self.world = ClaimCluster(settings=settings)
        for i in range(nodes):
            self.world.node(make_node(f"n{i}", gpus=N_GPUS, rack=f"r{i % N_RACKS}"))
        self._templates: dict[str, Json] = {}
        self._run_s: dict[str, float] = {}
        self._ends_s: dict[str, float] = {}
        self.lines = Lines(io.StringIO())
        self.performance = Play(
            self, show or self.lines, clock=lambda: self.world.now_s, sleep=self.pass_time
        )

    @property
    def seen(self) -> Chronicle:
        return self.performance.chronicle

    @property
    def frames(self) -> list[Frame]:
        return self.lines.frames

    @property
    def said(self) -> list[str]:
        assert isinstance(self.lines._file, io.StringIO)
        return self.lines._file.getvalue().splitlines()

    async def play(self, story: Sequence[Step] = STORY) -> Rehearsal:
        await self.performance.perform(story)
        return self

    # -- the stage -------------------------------------------------------------------------------------

    async def act(self, action: Action) -> str:
        if isinstance(action, Explain):
            return answer_of(self.world.scheduler, action.group, self.world.now_s)
        if isinstance(action, Delete):
            names = [pod.metadata.name for pod in self.world.pods.values()]
            jobs = tuple(f"{job}-" for job in action.jobs)
            self.world.delete(*(name for name in names if name.startswith(jobs)))
            return ""
        if isinstance(action, Report):
            for number, node in enumerate(list(self.world.nodes.values())):
                text = remaining_text(action.left_mbps(number), at(self.world.now_s))
                notes = {**(node.metadata.annotations or {}), REMAINING_KEY: text}
                self.world.node(replace(node, metadata=replace(node.metadata, annotations=notes)))
            return ""
        for document in read(SAMPLES, action.file, action.only):
            self._create(document.body)
        return ""

    def _create(self, body: Json) -> None:
        kind, name = body["kind"], body["metadata"]["name"]
        if kind == "Node":
            node = make_node(name, gpus=0, listed=False)
            labels = body["metadata"]["labels"]
            self.world.node(replace(node, metadata=replace(node.metadata, labels=labels)))
        elif kind in _LISTED:
            own = {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": body["spec"]}
            listed, type_ = _LISTED[kind]
            self.world.put(listed, own, type_)
        elif kind == "ResourceClaimTemplate":
            self._templates[name] = body["spec"]["spec"]
        else:
            pods = pods_of(body)
            for pod in pods:
                self._run_s[pod.metadata.uid] = run_s(body)
                for one in pod.spec.resource_claims or ():
                    spec = self._templates[one.resource_claim_template_name or ""]
                    self.world.make_claim(f"{pod.metadata.name}-{one.name}", spec, owner=pod)
            self.world.submit(pods)

    def look(self) -> tuple[Sequence[GroupView], Sequence[NodeView], float]:
        return *views(self.world.scheduler), self.world.now_s

    async def pass_time(self, seconds: float) -> None:
        """Every group has its turn, what is bound starts to run and ends as it says, deadlines pass."""
        self.world.run()
        for pod in list(self.world.pods.values()):
            if pod.spec.node_name and pod.status.phase == "Pending":
                self._ends_s[pod.metadata.uid] = self.world.now_s + self._run_s[pod.metadata.uid]
                self.world.phase(pod.metadata.name, "Running")
            elif pod.status.phase == "Running" and self.world.now_s >= self._ends_s[pod.metadata.uid]:
                self.world.phase(pod.metadata.name, "Succeeded")
        self.world.wait(seconds)


def run_s(body: dict[str, Any]) -> float:
    """For how long each pod that the object stands for runs."""
    spec = body["spec"] if body["kind"] == "Pod" else body["spec"]["template"]["spec"]
    commands = [one.get("command", ()) for one in spec["containers"]]
    return script_of({}, restart_policy="Never", commands=commands, rng=Random(0)).run_s


def pods_of(body: dict[str, Any]) -> list[Pod]:
    """The pods that an object stands for."""
    if body["kind"] == "Pod":
        return [_pod(body["metadata"]["name"], body["metadata"], body["spec"])]
    template = body["spec"]["template"]
    return [
        _pod(f"{body['metadata']['name']}-{k}", template["metadata"], template["spec"])
        for k in range(body["spec"].get("completions", 1))
    ]


def _pod(name: str, metadata: dict[str, Any], spec: dict[str, Any]) -> Pod:
    own = {**metadata, "name": name, "namespace": "default", "uid": f"uid-{name}"}
    claims = [
        {"name": one["name"], "resourceClaimName": f"{name}-{one['name']}"}
        for one in spec.get("resourceClaims", ())
    ]
    status = {"phase": "Pending", "resourceClaimStatuses": claims}
    return msgspec.convert({"metadata": own, "spec": spec, "status": status}, Pod)

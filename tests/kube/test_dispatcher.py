"""The dispatcher's lanes against a server that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from gangsched.kube.client import ApiClient
from gangsched.kube.effects.dispatcher import Dispatcher
from gangsched.kube.effects.slow_lane import YIELD_STEP_S
from gangsched.kube.effects.write_lanes import EVENT_TRIES, READS_SAID, EventLane, StatusLane
from gangsched.kube.effects.writes import MAX_NOTE_BYTES, note
from gangsched.kube.transport.backoff import Backoff
from gangsched.model.effects import (
    BindPod,
    DeletePod,
    Effect,
    EvictPod,
    GetPod,
    NominateNode,
    PatchPod,
    RecordEvent,
    WritePodCondition,
    WritePodGroupStatus,
)
from gangsched.model.events import (
    BindCancelled,
    BindSucceeded,
    Event,
    EvictionFailed,
    EvictionSucceeded,
    PodPatched,
    PodPatchFailed,
    PodRead,
    PodUnread,
)
from tests.kube.scripted import (
    CUT,
    SILENCE,
    Request,
    ScriptedServer,
    created,
    credentials,
    obliging,
    page,
    status,
)
from tests.support.tasks import until


class Running:
    """A dispatcher that runs, and what it has said."""

    def __init__(self, client: ApiClient, **options: Any) -> None:
        self.events: list[Event] = []
        self.dispatcher = Dispatcher(
            client, emit_nowait=self.events.append, rng=Random(1), instance="host", **options
        )

    async def said(self, n: int = 1) -> list[Event]:
        await until(lambda: len(self.events) >= n)
        return self.events

    async def done(self) -> None:
        await until(lambda: not self.dispatcher.n_waiting)


@asynccontextmanager
async def running(server: ScriptedServer, **options: Any) -> AsyncIterator[Running]:
    async with ApiClient(credentials(server.port)) as client, anyio.create_task_group() as group:
        run = Running(client, **options)
        group.start_soon(run.dispatcher.run)
        yield run
        group.cancel_scope.cancel()


def bind(n: int) -> BindPod:
    return BindPod(f"u{n}", "ns", f"p{n}", "n1", {}, "g", 1, "c")


def condition(message: str, *, name: str = "p") -> WritePodCondition:
    return WritePodCondition(f"u-{name}", "ns", name, "PodScheduled", "False", "Unschedulable", message, "c")


def event(message: str, *, name: str = "p") -> RecordEvent:
    return RecordEvent(
        "Pod", "v1", "ns", name, f"u-{name}", "Warning", "FailedScheduling", "Scheduling", message, "c"
    )


POD = (
    b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"ns","uid":"u1"},'
    b'"spec":{"nodeName":"n1"},"status":{}}'
)
READ = GetPod("u1", "ns", "p", "c")


async def test_read_is_consistent_and_gives_the_pod() -> None:
    async with ScriptedServer(default=created(POD)) as server, running(server) as run:
        run.dispatcher.submit([READ])
        [answer] = await run.said()
        assert isinstance(answer, PodRead)
        assert answer.pod is not None
        assert answer.pod.spec.node_name == "n1"
        assert server.requests[0].line == "GET /api/v1/namespaces/ns/pods/p"  # no resourceVersion


@pytest.mark.parametrize("answer", [status(404, about="p"), created(POD.replace(b"u1", b"u2"))])
async def test_no_pod_or_another_of_its_name_reads_as_none(answer: bytes) -> None:
    async with ScriptedServer(default=answer) as server, running(server) as run:
        run.dispatcher.submit([READ])
        assert await run.said() == [PodRead("u1", None)]


async def test_read_is_tried_until_it_is_answered() -> None:
    script = [status(503), CUT, status(429), status(403)]
    async with ScriptedServer(created(POD), script) as server, running(server) as run:
        run.dispatcher.submit([READ])
        [answer] = await run.said()
        assert isinstance(answer, PodRead)
        assert len(server.requests) == 5


STRANGE = [
    page(404, b"404 page not found\n"),
    page(404, b""),
    page(404),
    page(410),
    page(200),
    page(200, b""),
    created(b"{}"),
    created(b'{"kind":"Pod","metadata":{"name":"p","namespace":"ns"}}'),
    created(POD.replace(b'"ns"', b'"other"')),
    created(POD.replace(b'"p"', b'"q"').replace(b"u1", b"u2")),
    created(POD.replace(b'"Pod"', b'"Node"')),
    status(404),
    status(404, about="ns", kind="namespaces"),
    status(404, about="q"),
    status(404, about="p", kind="podgroups", group="scheduling.k8s.io"),
]


@pytest.mark.parametrize("strange", STRANGE)
async def test_a_read_is_not_answered_by_what_is_not_the_servers_word_about_this_pod(strange: bytes) -> None:
    async with ScriptedServer(created(POD), [strange, strange]) as server, running(server) as run:
        run.dispatcher.submit([READ])
        [answer] = await run.said()
        assert isinstance(answer, PodRead)
        assert answer.pod is not None
        assert len(server.requests) == 3


async def test_a_read_that_stays_without_an_answer_is_reported_and_asked_on() -> None:
    async with ScriptedServer(default=page(404)) as server, running(server) as run:
        reads = run.dispatcher._reads
        reads._backoff = Backoff(Random(1), first_s=0.01, max_s=0.02)
        run.dispatcher.submit([READ])
        [told] = await run.said()
        assert isinstance(told, PodUnread)
        assert (told.uid, len(server.requests)) == ("u1", READS_SAID)
        server.default = created(POD)
        await run.said(2)
        assert isinstance(run.events[1], PodRead)


@pytest.mark.parametrize(
    "strange", [page(404), page(409), page(429, b"disruption budget"), page(200), status(404, about="q")]
)
async def test_an_eviction_is_asked_again_after_what_is_not_the_servers_word(strange: bytes) -> None:
    async with ScriptedServer(script=[strange]) as server, running(server) as run:
        run.dispatcher.submit([EvictPod("u1", "ns", "p", "c")])
        assert await run.said() == [EvictionSucceeded("u1")]
        assert len(server.requests) == 2


@pytest.mark.parametrize("strange", [page(403), page(404), page(409), page(200), status(404, about="q")])
async def test_nobody_knows_of_a_patch_that_the_server_did_not_answer_itself(strange: bytes) -> None:
    async with ScriptedServer(script=[strange]) as server, running(server) as run:
        run.dispatcher.submit([PATCH])
        [answer] = await run.said()
        assert isinstance(answer, PodPatchFailed)
        assert answer.code == 0
        assert "not the API server's own answer" in answer.message


async def test_an_event_that_had_arrived_is_not_reported_twice() -> None:
    def again(request: Request) -> bytes:
        name = request.json["metadata"]["name"]
        assert name == server.requests[0].json["metadata"]["name"]
        return status(409, reason="AlreadyExists", about=name, kind="events", group="events.k8s.io")

    async with ScriptedServer(script=[CUT, again]) as server, running(server) as run:
        run.dispatcher.submit([event("x")])
        await run.done()
        assert len(server.requests) == 2
        assert run.dispatcher.statistics().n_events_dropped == 0


async def test_an_event_in_a_namespace_that_is_being_deleted_is_dropped_without_a_word() -> None:
    """Refused with the code of a missing right, of which each would be told."""
    going = "unable to create new content in namespace ns because it is being terminated"

    def refuse(request: Request) -> bytes:
        name = request.json["metadata"]["name"]
        why = going if "goes" in request.json["note"] else "no right"
        said = f'events.events.k8s.io "{name}" is forbidden: {why}'
        return status(403, message=said, about=name, kind="events", group="events.k8s.io")

    with capture_logs() as logs:
        async with ScriptedServer(default=refuse) as server, running(server) as run:
            run.dispatcher.submit([event("its namespace goes"), event("another")])
            await run.done()
            assert run.dispatcher.statistics().n_events_dropped == 2
    [line] = [one["err"] for one in logs if "err" in one]
    assert line.endswith("is forbidden: no right")


async def test_pod_that_does_not_parse_is_read_as_far_as_it_goes() -> None:
    odd = POD.replace(b'"status":{}', b'"status":7')
    async with ScriptedServer(created(odd)) as server, running(server) as run:
        run.dispatcher.submit([READ])
        [answer] = await run.said()
        assert isinstance(answer, PodRead)
        assert answer.pod is not None
        assert answer.pod.spec.node_name == "n1"


async def test_eviction_has_the_uid_as_its_precondition() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([EvictPod("u1", "ns", "p", "c")])
        assert await run.said() == [EvictionSucceeded("u1")]
        [request] = server.requests
        assert request.line == "POST /api/v1/namespaces/ns/pods/p/eviction"
        assert request.json["deleteOptions"] == {"preconditions": {"uid": "u1"}}


PATCH = PatchPod("u1", "ns", "p", "77", {"gangsched.io/visible-devices": "GPU-1", "old": None}, "c")


async def test_annotations_are_patched_on_this_version_of_this_pod() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([PATCH])
        assert await run.said() == [PodPatched("u1")]
        [request] = server.requests
        assert request.line == "PATCH /api/v1/namespaces/ns/pods/p"
        assert request.headers["content-type"] == "application/merge-patch+json"
        assert request.json == {
            "metadata": {
                "uid": "u1",
                "resourceVersion": "77",
                "annotations": {"gangsched.io/visible-devices": "GPU-1", "old": None},
            }
        }


async def test_labels_are_patched_in_the_same_write() -> None:
    labels = {"main.nvidia.com.allocated-devices.gangsched.io/gpu": "g1", "old": None}
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([PatchPod("u1", "ns", "p", "77", {"a": None}, "c", labels)])
        assert await run.said() == [PodPatched("u1")]
        [request] = server.requests
        metadata = {"uid": "u1", "resourceVersion": "77", "annotations": {"a": None}, "labels": labels}
        assert request.json == {"metadata": metadata}


@pytest.mark.parametrize("code", [403, 404, 409, 422, 500])
async def test_a_patch_is_sent_once_and_its_answer_is_the_cores_to_judge(code: int) -> None:
    async with (
        ScriptedServer(script=[status(code, message="no", about="p")]) as server,
        running(server) as run,
    ):
        run.dispatcher.submit([PATCH])
        [answer] = await run.said()
        assert isinstance(answer, PodPatchFailed)
        assert (answer.uid, answer.code) == ("u1", code)
        assert len(server.requests) == 1


async def test_a_deletion_says_why_first_and_means_this_pod_only() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([DeletePod("u1", "ns", "p", "preempting", "c")])
        assert await run.said() == [EvictionSucceeded("u1")]
        why, deletion = server.requests
        assert why.line == "PATCH /api/v1/namespaces/ns/pods/p/status"
        assert why.json["metadata"] == {"uid": "u1"}
        [condition] = why.json["status"]["conditions"]
        assert condition.pop("lastTransitionTime")
        assert condition == {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "preempting",
        }
        assert deletion.line == "DELETE /api/v1/namespaces/ns/pods/p"
        assert deletion.json["preconditions"] == {"uid": "u1"}
        assert "gracePeriodSeconds" not in deletion.json


async def test_a_deletion_that_is_asked_for_again_before_its_first_answer_comes_to_its_end() -> None:
    """A server is so slow with statuses that the core asks again each time before it has answered."""
    delete = DeletePod("u-p", "ns", "p", "no room", "c")

    def answer(request: Request) -> bytes:
        if len(server.requests) > 20:
            return SILENCE
        if request.line.startswith("PATCH"):
            run.dispatcher.submit([delete])
        return obliging(request)

    async with ScriptedServer(default=answer) as server, running(server) as run:
        run.dispatcher.submit([delete])
        assert await run.said() == [EvictionSucceeded("u-p")]
        assert [request.line.split()[0] for request in server.requests] == ["PATCH", "DELETE"]


async def test_a_deletion_that_is_refused_is_answered() -> None:
    script = [created(POD), status(403, message="no")]
    async with ScriptedServer(script=script) as server, running(server) as run:
        run.dispatcher.submit([DeletePod("u1", "ns", "p", "preempting", "c")])
        assert await run.said() == [EvictionFailed("u1", 403, "no")]


@pytest.mark.parametrize(("node", "written"), [("n1", "n1"), ("", None)])
async def test_a_nomination_is_a_merge_patch_of_this_pod(node: str, written: str | None) -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([NominateNode("u1", "ns", "p", node, "c")])
        await run.done()
        [request] = server.requests
        assert request.line == "PATCH /api/v1/namespaces/ns/pods/p/status"
        assert request.json == {"metadata": {"uid": "u1"}, "status": {"nominatedNodeName": written}}


def everything_that_is_written() -> list[Effect]:
    return [
        EvictPod("u1", "ns", "p", "c"),
        DeletePod("u1", "ns", "p", "preempting", "c"),
        PATCH,
        bind(2),
        condition("no room"),
        NominateNode("u1", "ns", "p", "n1", "c"),
        WritePodGroupStatus("u", "ns", "g", "scheduling.x-k8s.io/v1alpha1", {"phase": "Pending"}, "c"),
        event("no room"),
    ]


async def test_nothing_is_written_by_who_may_not_act() -> None:
    async with ScriptedServer() as server, running(server, may_send=lambda: False) as run:
        run.dispatcher.submit(everything_that_is_written())
        await run.done()
        await anyio.sleep(0.05)
        assert server.requests == []
        assert run.events == []


async def test_what_still_waits_when_the_lease_is_lost_is_not_written() -> None:
    leads = True

    def depose(_: Request) -> bytes:
        nonlocal leads
        leads = False
        return status(503)  # so that each lane would try again

    async with ScriptedServer(default=depose) as server:
        async with running(server, may_send=lambda: leads) as run:
            run.dispatcher.submit([event("first")])
            await until(lambda: server.requests)
            run.dispatcher.submit(everything_that_is_written())
            await run.done()
            await anyio.sleep(0.05)
        assert [request.line for request in server.requests] == [
            "POST /apis/events.k8s.io/v1/namespaces/ns/events"
        ]


async def test_eviction_refused_by_a_budget_is_answered_and_throttling_is_not() -> None:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    script = [
        b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 4\r\n\r\nwait",
        status(429, reason="TooManyRequests", message=message),
    ]
    async with ScriptedServer(script=script) as server, running(server) as run:
        run.dispatcher.submit([EvictPod("u1", "ns", "p", "c")])
        assert await run.said() == [EvictionFailed("u1", 429, message)]


async def test_eviction_of_a_pod_with_two_budgets_is_answered_and_trouble_is_not() -> None:
    """The second budget may have come while the eviction was asked again for the first one's sake."""
    message = (
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    )
    script = [status(500), status(500, reason="", message=message)]
    async with ScriptedServer(script=script) as server, running(server) as run:
        run.dispatcher.submit([EvictPod("u1", "ns", "p", "c")])
        assert await run.said() == [EvictionFailed("u1", 500, message)]


async def test_condition_is_a_strategic_merge_patch_of_this_pod() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([condition("no room")])
        await run.done()
        [request] = server.requests
        assert request.line == "PATCH /api/v1/namespaces/ns/pods/p/status"
        assert request.headers["content-type"] == "application/strategic-merge-patch+json"
        assert request.json["metadata"] == {"uid": "u-p"}
        [written] = request.json["status"]["conditions"]
        assert written.pop("lastTransitionTime").endswith("Z")
        assert written == {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "no room",
        }


async def test_a_condition_that_comes_after_the_bind_is_set_back() -> None:
    """The bind overtook it on another connection: its answer shows the pod with its node."""

    def answer(request: Request) -> bytes:
        done = json.loads(obliging(request).partition(b"\r\n\r\n")[2])
        return created(json.dumps({**done, "spec": {"nodeName": "n1"}}).encode())

    async with ScriptedServer(default=answer) as server, running(server) as run:
        run.dispatcher.submit([condition("no room")])
        await run.done()
        written = [request.json["status"]["conditions"][0] for request in server.requests]
        assert [(one["status"], one["reason"], one["message"]) for one in written] == [
            ("False", "Unschedulable", "no room"),
            ("True", None, None),
        ]
        assert {request.json["metadata"]["uid"] for request in server.requests} == {"u-p"}


async def test_why_a_pod_was_not_placed_is_not_reported_any_more_once_it_is_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(StatusLane, "yield_s", 60.0)
    async with ScriptedServer() as server, running(server, n_binds=1) as run:
        refused = condition("no room", name="p")
        run.dispatcher.submit([refused, condition("no room", name="q")])
        run.dispatcher.submit([BindPod(refused.uid, "ns", "p", "n1", {}, "g", 1, "c")])
        await run.said(1)
        await run.done()
        assert sorted(request.line.split("/", 5)[-1] for request in server.requests) == [
            "pods/p/binding",
            "pods/q/status",
        ]


async def test_group_status_is_a_merge_patch_in_the_version_it_was_read_in() -> None:
    version = "scheduling.x-k8s.io/v1alpha1"
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([WritePodGroupStatus("u", "ns", "g", version, {"phase": "Pending"}, "c")])
        await run.done()
        [request] = server.requests
        assert request.line == f"PATCH /apis/{version}/namespaces/ns/podgroups/g/status"
        assert request.headers["content-type"] == "application/merge-patch+json"
        assert request.json == {"metadata": {"uid": "u"}, "status": {"phase": "Pending"}}


async def test_status_of_a_kind_without_the_subresource_is_written_as_a_part_of_the_object() -> None:
    """What a real API server answers for Volcano's PodGroups: their status does not exist, they do."""
    version = "scheduling.volcano.sh/v1beta1"

    def answer(request: Request) -> bytes:
        if not request.line.endswith("/status"):
            return obliging(request)
        return status(404, about="g", kind="podgroups", group="scheduling.volcano.sh")

    async with ScriptedServer(default=answer) as server, running(server) as run:
        for phase in ("Pending", "Running"):
            run.dispatcher.submit([WritePodGroupStatus("u", "ns", "g", version, {"phase": phase}, "c")])
            await run.done()
        path = f"PATCH /apis/{version}/namespaces/ns/podgroups/g"
        assert [request.line for request in server.requests] == [f"{path}/status", path, path]
        assert server.requests[2].json == {"metadata": {"uid": "u"}, "status": {"phase": "Running"}}


OTHERS = {"type": "example.com/Audited", "status": "True"}


def group_of(conditions: list[dict[str, str]], version: int) -> bytes:
    meta = {"name": "g", "namespace": "ns", "uid": "u", "resourceVersion": str(version)}
    body = {"kind": "PodGroup", "metadata": meta, "status": {"conditions": conditions}}
    return page(200, json.dumps(body).encode())


async def test_what_another_program_writes_meanwhile_stays_in_a_list_of_conditions() -> None:
    """The core knows of no other condition. One is there, and one comes between our read and our write."""
    late = {"type": "example.com/Late", "status": "True"}
    conflict = status(409, about="g", kind="podgroups", group="scheduling.volcano.sh")
    script = [group_of([OTHERS], 7), conflict, group_of([OTHERS, late], 8), group_of([], 9)]
    mine = {"type": "Unschedulable", "status": "True"}
    effect = WritePodGroupStatus(
        "u", "ns", "g", "scheduling.volcano.sh/v1beta1", {"phase": "Pending", "conditions": [mine]}, "c"
    )
    async with ScriptedServer(script=script) as server, running(server) as run:
        run.dispatcher.submit([effect])
        await run.done()
        read, refused, again, written = [request.json for request in server.requests]
        assert read == again == {"metadata": {"uid": "u"}}, "this changes nothing, and is answered with all"
        assert refused["metadata"] == {"uid": "u", "resourceVersion": "7"}
        assert written["metadata"] == {"uid": "u", "resourceVersion": "8"}
        *others, own = written["status"]["conditions"]
        assert others == [OTHERS, late]
        assert own.pop("lastTransitionTime")
        assert own == mine
        assert run.dispatcher.statistics().n_status_dropped == 0


async def test_a_status_that_is_no_object_is_replaced_and_costs_nobody_else() -> None:
    odd = group_of([], 7).replace(b'{"conditions": []}', b"[               1]")
    mine = {"type": "Unschedulable", "status": "True"}
    effect = WritePodGroupStatus("u", "ns", "g", "scheduling.run.ai/v2alpha2", {"conditions": [mine]}, "c")
    async with ScriptedServer(script=[odd, group_of([], 8)]) as server, running(server) as run:
        run.dispatcher.submit([effect])
        await run.done()
        assert [one["type"] for one in server.requests[1].json["status"]["conditions"]] == ["Unschedulable"]


async def test_conditions_of_the_core_api_are_merged_by_its_server() -> None:
    mine = {"type": "PodGroupInitiallyScheduled", "status": "False"}
    status = {"conditions": [OTHERS, mine]}  # as it was read some time ago
    effect = WritePodGroupStatus("u", "ns", "g", "scheduling.k8s.io/v1beta1", status, "c")
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([effect])
        await run.done()
        [request] = server.requests
        assert request.headers["content-type"] == "application/strategic-merge-patch+json"
        assert [one["type"] for one in request.json["status"]["conditions"]] == [mine["type"]]


async def test_status_of_a_group_that_is_gone_is_dropped() -> None:
    version = "scheduling.volcano.sh/v1beta1"

    def answer(request: Request) -> bytes:
        return status(404, about="g", kind="podgroups", group="scheduling.volcano.sh")

    async with ScriptedServer(default=answer) as server, running(server) as run:
        for _ in range(2):
            run.dispatcher.submit([WritePodGroupStatus("u", "ns", "g", version, {"phase": "Pending"}, "c")])
            await run.done()
        asked = [request.line.endswith("/status") for request in server.requests]
        assert asked == [True, False, True, False], "one that is gone says nothing of its kind"


async def test_only_the_latest_condition_of_a_pod_is_written() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([condition("one"), condition("two"), condition("other", name="q")])
        run.dispatcher.submit([condition("three")])
        await run.done()
        said = [request.json["status"]["conditions"][0]["message"] for request in server.requests]
        assert sorted(said) == ["other", "three"]


async def test_status_of_what_is_gone_is_dropped_and_trouble_is_tried_again() -> None:
    def answer(request: Request) -> bytes:
        if "/gone/" in request.line:
            return status(404, about="gone")
        return status(503) if len(server.requests) < 4 else obliging(request)

    async with ScriptedServer(default=answer) as server, running(server) as run:
        run.dispatcher.submit([condition("x", name="gone"), condition("x", name="p")])
        await run.done()
        assert len([r for r in server.requests if "/gone/" in r.line]) == 1
        assert len([r for r in server.requests if "/p/" in r.line]) >= 2
        assert run.dispatcher.statistics().n_status_dropped == 1


async def test_event_says_who_what_and_why() -> None:
    async with ScriptedServer() as server, running(server, controller="my-scheduler") as run:
        run.dispatcher.submit([event("0/5 nodes are available")])
        await run.done()
        [request] = server.requests
        assert request.line == "POST /apis/events.k8s.io/v1/namespaces/ns/events"
        said = request.json
        assert said["reportingController"] == "my-scheduler"
        assert said["reportingInstance"] == "host"
        assert said["regarding"]["uid"] == "u-p"
        assert (said["type"], said["reason"], said["note"]) == (
            "Warning",
            "FailedScheduling",
            "0/5 nodes are available",
        )


async def test_same_event_is_not_reported_again() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([event("a"), event("a"), event("b"), event("a", name="q")])
        await run.done()
        assert len(server.requests) == 3
        assert run.dispatcher.statistics().n_events_repeated == 1


async def test_an_event_that_was_dropped_in_an_outage_is_reported_when_it_comes_again() -> None:
    async with ScriptedServer(script=[status(503)] * EVENT_TRIES) as server, running(server) as run:
        run.dispatcher.submit([event("no room")])
        await run.done()
        assert run.dispatcher.statistics().n_events_dropped == 1
        run.dispatcher.submit([event("no room")])
        await run.done()
        assert len(server.requests) == EVENT_TRIES + 1


async def test_too_many_events_drop_the_oldest_and_are_counted() -> None:
    async with ScriptedServer() as server, ApiClient(credentials(server.port)) as client:
        run = Running(client, max_events=10)
        run.dispatcher.submit([event(f"{n}") for n in range(25)])
        assert run.dispatcher.n_waiting == 10
        assert run.dispatcher.statistics().n_events_dropped == 15


async def test_events_and_conditions_wait_for_binds(monkeypatch: pytest.MonkeyPatch) -> None:
    for lane in (StatusLane, EventLane):
        monkeypatch.setattr(lane, "yield_s", 60.0)  # on a machine of any speed
    async with ScriptedServer() as server, running(server, n_binds=1) as run:
        run.dispatcher.submit([event("x"), condition("x"), *(bind(n) for n in range(50))])
        await run.said(50)
        await run.done()
        kinds = [request.line.rsplit("/", 1)[-1] for request in server.requests]
        assert kinds[:50] == ["binding"] * 50
        assert sorted(kinds[50:]) == ["events", "status"]


async def test_events_wait_while_binds_are_on_the_way_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty queue between two gangs is no sign of rest."""
    monkeypatch.setattr(EventLane, "yield_s", 60.0)

    def answer(request: Request) -> bytes:
        return obliging(request) if "binding" not in request.line else SILENCE

    async with ScriptedServer(default=answer) as server, running(server, n_binds=4) as run:
        run.dispatcher.submit([bind(0), bind(1), event("x")])
        await until(lambda: len(server.requests) == 2)
        assert run.dispatcher.n_binds_waiting == 0
        await anyio.sleep(3 * YIELD_STEP_S)
        assert len(server.requests) == 2
        await run.dispatcher.drain(0.5)
        assert [request.line.rsplit("/", 1)[-1] for request in server.requests[2:]] == ["events"]


async def test_drain_takes_back_what_is_not_sent_and_says_the_rest() -> None:
    def answer(request: Request) -> bytes:
        return obliging(request) if "binding" not in request.line else SILENCE

    async with ScriptedServer(default=answer) as server, running(server, n_binds=1) as run:
        run.dispatcher.submit([bind(0), bind(1), bind(2), event("x")])
        await until(lambda: server.requests)
        server.default = obliging
        assert await run.dispatcher.drain(0.5) is False  # bind 0 hangs in silence, and 1 behind it
        assert BindCancelled("u2", 1) in run.events
        assert [r for r in server.requests if r.line.endswith("/events")]
        run.dispatcher.submit([bind(3)])
        assert BindCancelled("u3", 1) in run.events


async def test_drain_with_nothing_left_is_clean() -> None:
    async with ScriptedServer() as server, running(server) as run:
        run.dispatcher.submit([bind(0), event("x")])
        await until(lambda: server.requests)
        assert await run.dispatcher.drain(10)
        assert BindSucceeded("u0", 1) in run.events
        assert len(server.requests) == 2


def test_notes_are_cut_at_a_character_and_show_no_control_characters() -> None:
    assert note("plain – ünïcode") == "plain – ünïcode"
    assert note("\x1b[31mred\nline") == "\\x1b[31mred\\nline"
    long = note("€" * 1000)
    assert len(long.encode()) <= MAX_NOTE_BYTES
    assert long.endswith("€…")
    assert note("\ud800") == "\\ud800"

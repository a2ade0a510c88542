"""The reflector's driver against a server that answers as it is told: what its table alone cannot show."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import anyio
import msgspec
import pytest
import structlog
from msgspec.structs import replace

from gangsched.kube.client import ApiClient
from gangsched.kube.transport.pace import Pace
from gangsched.kube.transport.stream import Stream
from gangsched.kube.watch.decode import Kind, nodes, pod_groups, pods
from gangsched.kube.watch.envelopes import continue_of
from gangsched.kube.watch.reflector import HOLD_S, Reflector
from gangsched.kube.watch.watch_timing import WatchTiming
from gangsched.model.events import Event, KindMissing, KindSynced, PodAdded, PodDeleted, PodUpdated
from tests.kube.scripted import Request, ScriptedServer, created, credentials, status
from tests.kube.scripted import page as page_of
from tests.kube.test_watch_state import line, page, pod
from tests.support.tasks import until

TIMING = WatchTiming(silence_s=0.05, grace_s=0.02, missing_s=0.02, backoff_s=(0.01, 0.05))
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"


FORBIDDEN = page_of(
    403,
    json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "Forbidden",
            "details": {"kind": "podgroups", "group": "g"},
            "code": 403,
        }
    ).encode(),
)


def groups(*, rv: int, version: str = "v1") -> bytes:
    return page(rv=rv, kind="PodGroup", api_version=f"g/{version}")


def resources(group_version: str) -> bytes:
    """The document of one version."""
    listed = [{"name": name} for name in ("podgroups", "podgroups/status")]
    said = {"kind": "APIResourceList", "groupVersion": group_version, "resources": listed}
    return json.dumps(said).encode()


def served(*group_versions: str) -> bytes:
    """The document of all groups."""
    listed = [{"name": "g", "versions": [{"groupVersion": one} for one in group_versions]}]
    return json.dumps({"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}).encode()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def follow(
    server: ScriptedServer,
    kind: Kind,
    emit: Callable[[list[Event]], Awaitable[None]],
    until_true: Callable[[], Any],
    timing: WatchTiming = TIMING,
) -> Reflector:
    """Run a reflector until something is so."""
    async with ApiClient(credentials(server.port)) as client, anyio.create_task_group() as group:
        reflector = Reflector(client, kind, emit, rng=Random(1), timing=timing)
        group.start_soon(reflector.run)
        await until(until_true)
        group.cancel_scope.cancel()
    return reflector


async def test_a_slow_core_is_not_taken_for_a_silent_server() -> None:
    said: list[Event] = []
    n_heard_by_probes = 0

    def answer(request: Request) -> bytes:
        nonlocal n_heard_by_probes
        if "watch=1" not in request.line:
            return created(page(rv=5))
        if "timeoutSeconds=1" in request.line.split("&"):  # a probe hears what the core has not yet taken
            n_heard_by_probes += 1
            return STREAM + chunk(line("ADDED", pod("b", 7))) + END
        return STREAM + chunk(line("ADDED", pod("a", 6)))

    async def slow(events: list[Event]) -> None:
        if any(isinstance(event, PodAdded) for event in events):
            await anyio.sleep(0.4)  # many times the silence that would be suspicious
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        await follow(server, pods(), slow, lambda: [e for e in said if isinstance(e, PodAdded)])
    assert n_heard_by_probes == 0


async def test_what_waits_for_a_busy_core_is_not_lost_when_all_is_emitted_again() -> None:
    """A pod is deleted while the inbox is full; then a reload wants all pods told again."""
    said: list[Event] = []
    is_full = anyio.Event()
    has_room = anyio.Event()
    n_lists = 0

    def answer(request: Request) -> bytes:
        nonlocal n_lists
        if "watch=1" not in request.line:
            n_lists += 1
            return created(page(pod("a", 3), pod("b", 4), rv=5) if n_lists == 1 else page(pod("b", 4), rv=9))
        if n_lists == 1:
            return STREAM + chunk(line("DELETED", pod("a", 6)))
        return STREAM

    async def busy(events: list[Event]) -> None:
        if any(isinstance(event, PodDeleted) for event in events):
            is_full.set()
            await has_room.wait()
        said.extend(events)

    async with (
        ScriptedServer(default=answer) as server,
        ApiClient(credentials(server.port)) as client,
        anyio.create_task_group() as group,
    ):
        reflector = Reflector(client, pods(), busy, rng=Random(1), timing=TIMING)
        group.start_soon(reflector.run)
        await is_full.wait()
        reflector.emit_all()
        await anyio.lowlevel.checkpoint()
        has_room.set()
        await until(lambda: any(isinstance(event, PodUpdated) for event in said))
        group.cancel_scope.cancel()
    assert [e.pod.metadata.name for e in said if isinstance(e, PodDeleted)] == ["a"]
    assert [e.pod.metadata.name for e in said if isinstance(e, PodUpdated)] == ["b"]


async def follow_silence(first: bytes, *, n_watches: int) -> tuple[Reflector, list[str]]:
    """Of a server that is silent but for `first`, on its first watch; returns what the watches asked for."""
    watches: list[str] = []

    def answer(request: Request) -> bytes:
        if "watch=1" not in request.line:
            return created(page(rv=5))
        if "timeoutSeconds=1" in request.line.split("&"):
            return STREAM + END
        watches.append(request.line)
        return STREAM + first if len(watches) == 1 else STREAM

    async def emit(events: list[Event]) -> None:
        pass

    timing = msgspec.structs.replace(TIMING, bookmark_s=0.3)
    async with ScriptedServer(default=answer) as server:
        reflector = await follow(server, pods(), emit, lambda: len(watches) == n_watches, timing)
    return reflector, watches


async def test_a_watch_on_which_not_even_a_bookmark_comes_is_resumed() -> None:
    """Its end was lost on the way, and nothing has changed since: no probe can tell."""
    reflector, watches = await follow_silence(chunk(line("ADDED", pod("a", 6))), n_watches=2)
    assert "resourceVersion=6&" in watches[1]
    assert (reflector.n_dead, reflector.n_lists) == (1, 1)


async def test_a_watch_of_an_idle_kind_is_opened_again_and_nobody_is_alarmed() -> None:
    """kube-apiserver has no bookmark for it: of the kind it knows nothing newer than the list."""
    with structlog.testing.capture_logs() as logs:
        reflector, watches = await follow_silence(b"", n_watches=3)
    assert all("resourceVersion=5&" in line for line in watches)
    assert (reflector.n_dead, reflector.n_lists) == (0, 1)
    assert [entry for entry in logs if entry["log_level"] == "warning"] == []


async def test_groups_that_may_not_be_read_do_not_keep_the_scheduler_from_starting() -> None:
    allowed = False
    said: list[Event] = []

    def answer(request: Request) -> bytes:
        if "?" not in request.line:
            return created(resources("g/v1"))
        if not allowed:
            return page_of(403) if len(server.requests) == 2 else FORBIDDEN
        return created(groups(rv=5)) if "watch=1" not in request.line else STREAM

    async def emit(events: list[Event]) -> None:
        nonlocal allowed
        said.extend(events)
        allowed = True

    async with ScriptedServer(default=answer) as server:
        await follow(server, pod_groups("core", "g", ("v1",)), emit, lambda: len(said) == 2)
    assert said == [KindMissing("podgroups.core", is_forbidden=True), KindSynced("podgroups.core")]


async def test_newest_version_that_is_served_is_used() -> None:
    said: list[Event] = []

    def answer(request: Request) -> bytes:
        if request.line == "GET /apis/g/v1beta1":
            return page_of(404, b"404 page not found\n")
        if request.line == "GET /apis":
            return created(served("g/v1alpha2"))
        if request.line == "GET /apis/g/v1alpha2":
            return created(resources("g/v1alpha2"))
        return created(groups(rv=5, version="v1alpha2")) if "watch=1" not in request.line else STREAM

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    kind = pod_groups("core", "g", ("v1beta1", "v1alpha2"))
    async with ScriptedServer(default=answer) as server:
        reflector = await follow(server, kind, emit, lambda: said)
        assert server.requests[3].line.startswith("GET /apis/g/v1alpha2/podgroups?limit=")
    assert reflector.state.api_version == "g/v1alpha2"


async def test_the_next_page_is_asked_for_before_this_one_is_handed_on() -> None:
    said: list[Event] = []
    asked: list[str] = []
    asked_when_first_was_told: list[int] = []

    def answer(request: Request) -> bytes:
        if "watch=1" in request.line:
            return STREAM
        asked.append(request.line)
        if "continue=" in request.line:
            return created(page(pod("b", 3), rv=5))
        return created(page(pod("a", 2), rv=5, token="more").replace(b": ", b":"))  # as Go writes it

    async def emit(events: list[Event]) -> None:
        if not said:
            await until(lambda: len(asked) == 2)
            asked_when_first_was_told.append(len(asked))
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        reflector = await follow(server, pods(), emit, lambda: len(said) == 3)
    assert asked_when_first_was_told == [2]
    assert [e.pod.metadata.name for e in said if isinstance(e, PodAdded)] == ["a", "b"]
    assert (reflector.n_lists, len(asked)) == (1, 2)


async def test_a_token_that_cannot_be_read_ahead_is_used_nevertheless() -> None:
    said: list[Event] = []

    def answer(request: Request) -> bytes:
        if "watch=1" in request.line:
            return STREAM
        if "continue=" in request.line:
            return created(page(pod("b", 3), rv=5))
        body = page(pod("a", 2), rv=5, token="more")
        assert continue_of(body) == ""
        return created(body)

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        reflector = await follow(server, pods(), emit, lambda: len(said) == 3)
    assert [e.pod.metadata.name for e in said if isinstance(e, PodAdded)] == ["a", "b"]
    assert reflector.n_lists == 1


async def test_lists_watches_and_probes_ask_for_one_nodes_pods_alone() -> None:
    said: list[Event] = []

    def answer(request: Request) -> bytes:
        return created(page(rv=5)) if "watch=1" not in request.line else STREAM

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    def probed() -> bool:
        return any("timeoutSeconds=1" in request.line.split("&") for request in server.requests)

    async with ScriptedServer(default=answer) as server:
        await follow(server, pods(node="n-1"), emit, probed)
        assert all("fieldSelector=spec.nodeName%3Dn-1" in request.line for request in server.requests)


async def test_a_kind_of_which_little_comes_is_read_at_the_pace_of_all() -> None:
    said: list[Event] = []
    holds: list[tuple[int, float]] = []

    class StandingStill(Pace):
        """In no time: nothing is forgotten."""

        def hold_s(self, n_come: int, now_s: float) -> float:
            holds.append((n_come, super().hold_s(n_come, 0.0)))
            return holds[-1][1]

    def answer(request: Request) -> bytes:
        if "?" not in request.line:
            return created(resources("g/v1"))
        if "watch=1" not in request.line:
            return created(page(rv=5) if "/pods?" in request.line else groups(rv=5))
        if "/pods?" in request.line:
            return STREAM + chunk(b"".join(line("ADDED", pod(f"p{i}", 6 + i)) for i in range(100)))
        return STREAM + chunk(line("ADDED", pod("one", 7) | {"kind": "PodGroup"}))

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    pace = StandingStill(HOLD_S)
    async with ScriptedServer(default=answer) as server, ApiClient(credentials(server.port)) as client:
        many, few = pods(), pod_groups("core", "g", ("v1",))
        async with anyio.create_task_group() as group:
            group.start_soon(Reflector(client, many, emit, rng=Random(1), pace=pace).run)
            await until(lambda: len(said) == 101)
            group.start_soon(Reflector(client, few, emit, rng=Random(1), pace=pace).run)
            await until(lambda: len(said) == 103)
            group.cancel_scope.cancel()
    assert holds[-1] == (1, HOLD_S)


async def test_a_dozen_changed_groups_are_much_and_a_dozen_pods_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    holds: list[float] = []
    read = Stream.read

    async def noting(stream: Stream, hold_s: float = 0.0) -> bytes:
        holds.append(hold_s)
        return await read(stream, hold_s)

    monkeypatch.setattr(Stream, "read", noting)

    def a_dozen(kind: str) -> bytes:
        items = (pod(f"n{i}", 6 + i) | {"kind": kind} for i in range(12))
        return STREAM + chunk(b"".join(line("ADDED", item) for item in items))

    def answer(request: Request) -> bytes:
        if "?" not in request.line:
            return created(resources("g/v1"))
        is_pods = "/pods?" in request.line
        if "watch=1" in request.line:
            return a_dozen("Pod" if is_pods else "PodGroup")
        return created(page(rv=5) if is_pods else groups(rv=5))

    async def emit(events: list[Event]) -> None:
        pass

    for kind, hold_s in ((pods(), 0.0), (pod_groups("core", "g", ("v1",)), HOLD_S)):
        holds.clear()
        async with ScriptedServer(default=answer) as server:
            await follow(server, kind, emit, lambda: len(holds) >= 2)
        assert holds[:2] == [0.0, hold_s]


async def test_what_is_large_is_listed_in_shorter_pages() -> None:
    said: list[Event] = []

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    def answer(request: Request) -> bytes:
        return created(page(rv=5, kind="Pod" if "/pods?" in request.line else "Node"))

    async with ScriptedServer(default=answer) as server:
        await follow(server, pods(), emit, lambda: KindSynced("pods") in said)
        await follow(server, nodes(), emit, lambda: KindSynced("nodes") in said)
        first_of = {
            r.line.split("?")[0]: r.line for r in reversed(server.requests) if "watch=1" not in r.line
        }
    assert first_of["GET /api/v1/pods"].endswith("limit=500")
    assert first_of["GET /api/v1/nodes"].endswith("limit=100")


async def test_a_page_that_says_gone_or_not_found_is_no_reason_to_relist() -> None:
    said: list[Event] = []
    strange = [page_of(410), page_of(404), page_of(200), page_of(403), page_of(200, page(rv=5) + b"\n")]
    n_watches = 0

    def answer(request: Request) -> bytes:
        nonlocal n_watches
        if "watch=1" not in request.line:
            return created(page(pod("a", 3), rv=5))
        n_watches += 1
        if strange:
            return strange.pop()
        return STREAM + chunk(line("ADDED", pod("b", 7)))

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        reflector = await follow(server, pods(), emit, lambda: len(said) == 3)
    assert [e.pod.metadata.name for e in said if isinstance(e, PodAdded)] == ["a", "b"]
    assert (reflector.n_lists, n_watches) == (1, 6)


async def test_the_servers_own_word_that_its_history_is_gone_relists() -> None:
    def answer(request: Request) -> bytes:
        if "watch=1" in request.line:
            return status(410, message="too old resource version")
        return created(page(pod("a", 3), rv=5))

    async def emit(events: list[Event]) -> None:
        pass

    async with ScriptedServer(default=answer) as server:
        await follow(server, pods(), emit, lambda: sum("watch=1" in r.line for r in server.requests) >= 2)
    is_watch = ["watch=1" in request.line for request in server.requests]
    assert is_watch[:4] == [False, True, False, True], "each watch that ends so is followed by a list"


@pytest.mark.parametrize("discovered", [page_of(404), page_of(200), created(b"{}"), status(503)])
async def test_groups_are_not_missing_because_something_before_the_server_says_so(discovered: bytes) -> None:
    said: list[Event] = []
    strange = [page_of(404, b"404 page not found\n"), discovered]

    def answer(request: Request) -> bytes:
        if request.line == "GET /apis/g/v1":
            return strange.pop(0) if strange else created(resources("g/v1"))
        if request.line == "GET /apis":
            return created(served("g/v1"))
        return created(groups(rv=5)) if "watch=1" not in request.line else STREAM

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    async with ScriptedServer(default=answer) as server:
        await follow(server, pod_groups("core", "g", ("v1",)), emit, lambda: said)
    assert said == [KindSynced("podgroups.core")]


async def test_an_optional_kind_that_cannot_be_read_is_gone_without_once() -> None:
    """A CRD with a broken conversion webhook is offered, and every list of it fails; then that is mended."""
    said: list[Event] = []
    is_broken = True

    def answer(request: Request) -> bytes:
        path = request.line.split()[1]
        if path == "/apis":
            return created(served("g/v1"))
        if path == "/apis/g/v1":
            return created(resources("g/v1"))
        if is_broken:
            return status(500, message="conversion webhook failed")
        return STREAM if "watch=1" in request.line else created(groups(rv=5))

    async def emit(events: list[Event]) -> None:
        nonlocal is_broken
        said.extend(events)
        if len(said) == 1:
            await anyio.sleep(0.05)
            is_broken = False

    timing = replace(TIMING, unread_s=0.1)
    async with ScriptedServer(default=answer) as server:
        await follow(server, pod_groups("x", "g", ("v1",)), emit, lambda: len(said) == 2, timing)
    assert said == [KindMissing("podgroups.x", is_unread=True), KindSynced("podgroups.x")]


async def test_a_kind_that_all_need_is_waited_for_however_long_it_cannot_be_read() -> None:
    said: list[Event] = []
    n_asked = 0

    def answer(request: Request) -> bytes:
        nonlocal n_asked
        n_asked += 1
        if n_asked < 8:
            return status(500)
        return STREAM if "watch=1" in request.line else created(page(pod("a", 3), rv=5))

    async def emit(events: list[Event]) -> None:
        said.extend(events)

    timing = replace(TIMING, unread_s=0.0)
    async with ScriptedServer(default=answer) as server:
        await follow(server, pods(), emit, lambda: len(said) == 2, timing)
    assert [type(event) for event in said] == [PodAdded, KindSynced]

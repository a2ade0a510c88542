"""Why a controller could not make pods, as the API server tells it; and whatever else may answer."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gangsched.kube.effects.refusals_lane import last_refusal, refusals_path
from gangsched.model.effects import ReadRefusals
from gangsched.model.events import RefusalsRead
from gangsched.model.pod_group import OURS, GroupKey
from tests.kube.scripted import SILENCE, Request, ScriptedServer, created, page, status
from tests.kube.test_dispatcher import running
from tests.support.tasks import until

GROUP = GroupKey(OURS, "default", "train")
ASK = ReadRefusals("u-1", "Job", "default", "train", GROUP, "")


def events(*items: dict[str, Any]) -> bytes:
    return created(json.dumps({"kind": "EventList", "metadata": {}, "items": [*items]}).encode())


def refused(note: str, seen: datetime) -> dict[str, Any]:
    at = seen.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"metadata": {"name": "e"}, "note": note, "deprecatedLastTimestamp": at, "eventTime": None}


async def test_the_newest_refusal_comes_back() -> None:
    now = datetime.now(UTC)
    old, new = refused("first", now.replace(year=now.year - 1)), refused("exceeded quota: gpus", now)
    async with ScriptedServer(script=[events(new, old), events()]) as server, running(server) as run:
        run.dispatcher.submit([ASK])
        assert await run.said() == [RefusalsRead(GROUP, "Job", "train", "exceeded quota: gpus")]
        run.dispatcher.submit([ASK])
        assert (await run.said(2))[1] == RefusalsRead(GROUP, "Job", "train", "")
    line = server.requests[0].line
    assert line.startswith("GET /apis/events.k8s.io/v1/namespaces/default/events?fieldSelector=")
    assert "regarding.uid%3Du-1%2Creason%3DFailedCreate&limit=" in line


async def test_the_newest_of_many_is_found_though_the_oldest_come_first() -> None:
    """Events are named after when they were first seen, and lists are in the order of names."""
    began = datetime.now(UTC) - timedelta(minutes=10)
    told = [refused(f"exceeded quota: {k}", began + timedelta(seconds=5 * k)) for k in range(100)]

    def first_of(request: Request) -> bytes:
        limit = re.search(r"limit=(\d+)", request.line)
        return events(*told[: int(limit[1]) if limit else None])

    async with ScriptedServer(default=first_of) as server, running(server) as run:
        run.dispatcher.submit([ASK])
        assert await run.said() == [RefusalsRead(GROUP, "Job", "train", "exceeded quota: 99")]


@pytest.mark.parametrize(
    "answer", [status(403), page(200), page(502), status(404), created(b"{}"), created(b"[" * 9999), SILENCE]
)
async def test_any_other_answer_is_none_and_is_not_asked_for_again(answer: bytes) -> None:
    async with ScriptedServer(script=[answer]) as server, running(server) as run:
        run.dispatcher.submit([ASK])
        await until(lambda: len(server.requests) == 1)
        assert not run.events
        assert run.dispatcher.n_waiting == 0, "ending waits for none of these"
    assert len(server.requests) == 1


def test_what_was_refused_long_ago_does_not_hold_any_more() -> None:
    seen = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)
    body = events(refused("exceeded quota", seen)).partition(b"\r\n\r\n")[2]
    assert last_refusal(body, seen.timestamp() + 600) == "exceeded quota"
    assert last_refusal(body, seen.timestamp() + 3600) == ""


def test_names_are_escaped_in_the_path() -> None:
    path = refusals_path(ReadRefusals("u&x=1", "Job", "a/../b", "train", GROUP, ""))
    assert path.count("&") == 1
    assert "/namespaces/a%2F..%2Fb/events?" in path

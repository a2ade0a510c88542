"""Another cluster in the place of the first is noticed by the UID of its namespace kube-system."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.same_cluster import SameCluster


class Answers:
    """In a client's place: one answer after the other."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    async def get(self, path: str, query: dict[str, str], *, timeout_s: float) -> bytes:
        self.asked.append((path, query))
        answer = self._answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer if isinstance(answer, bytes) else json.dumps(answer).encode()


def namespaces(uid: str) -> dict[str, Any]:
    return {"items": [{"metadata": {"name": "kube-system", "uid": uid}}]}


@pytest.mark.parametrize(
    ("answers", "n_told"),
    [
        ([namespaces("a"), namespaces("a")], 0),
        ([namespaces("a"), namespaces("b"), namespaces("c")], 1),
        ([{"items": []}, namespaces("a"), {"items": []}, namespaces("a")], 0),
        ([namespaces("a"), {"items": []}, namespaces("b")], 1),
        ([namespaces("a"), ApiError("no", code=403), b"<html>", {"items": None}, namespaces("b")], 1),
    ],
)
async def test_it_is_reported_once_and_only_where_both_are_known(answers: list[object], n_told: int) -> None:
    told: list[str] = []
    client = Answers(*answers)
    watched = SameCluster(lambda: told.append("another"))
    for _ in answers:
        await watched.check(cast("ApiClient", client))
    assert len(told) == n_told
    assert watched.is_another is bool(n_told)
    assert {path for path, _ in client.asked} == {"/api/v1/namespaces"}


async def test_a_server_that_is_not_reached_is_an_outage() -> None:
    with pytest.raises(ApiError):
        await SameCluster(lambda: None).check(cast("ApiClient", Answers(ApiError("refused", code=0))))

"""Whether a watch has come as far as a list: what a new leader waits for."""

from __future__ import annotations

import pytest

from gangsched.errors import ApiError
from gangsched.kube.client import ApiClient
from gangsched.kube.watch.catch_up import BOUND, CatchUp
from gangsched.kube.watch.decode import pods
from gangsched.kube.watch.watch_state import WatchState
from tests.kube.scripted import ScriptedServer, created, credentials
from tests.kube.test_watch_state import line, page, pod


async def asked(state: WatchState, bound: bytes) -> CatchUp:
    """Has listed the bound pods."""
    catch_up = CatchUp(state, BOUND)
    async with (
        ScriptedServer(default=created(bound)) as server,
        ApiClient(credentials(server.port)) as client,
    ):
        await catch_up.ask(client)
    return catch_up


async def test_a_pod_is_missing_until_the_watch_shows_it_as_new_as_the_list() -> None:
    state = WatchState(pods())
    state.page(page(pod("a", 3), rv=10))
    catch_up = await asked(state, page(pod("a", 12, nodeName="n"), rv=20))
    assert catch_up.n_missing() == 1
    state.lines(line("MODIFIED", pod("a", 12, nodeName="n")))
    assert catch_up.n_missing() == 0


async def test_a_pod_counts_as_missing_until_its_list_is_whole() -> None:
    state = WatchState(pods())
    state.page(page(pod("a", 3), rv=10))
    catch_up = await asked(state, page(pod("a", 12, nodeName="n"), rv=20))
    state.gone()
    assert state.page(page(pod("a", 12, nodeName="n"), rv=20, token="t1")) == []
    assert catch_up.n_missing() == 1
    state.page(page(pod("b", 13), rv=20))
    assert catch_up.n_missing() == 0


@pytest.mark.parametrize(
    "strange", [b"<html>", b"{}", b'{"kind":"PodList","metadata":{}}', page(rv=20, kind="Node")]
)
async def test_an_answer_that_is_no_list_of_pods_does_not_prove_that_none_is_missing(strange: bytes) -> None:
    with pytest.raises(ApiError, match="list of pods"):
        await asked(WatchState(pods()), strange)

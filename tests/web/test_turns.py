"""Pages leave the scheduler its loop, however many different ones are asked for."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.web.turns import MOST_OF_TIME, Turns
from tests.web.test_access import Server as ApiServer
from tests.web.test_explain import explanations
from tests.web.test_queue import waiting
from tests.web.test_server import serving
from tests.web.test_top import top_of


class Hours:
    """A clock that making pages and sleeping moves on."""

    def __init__(self) -> None:
        self.now_s = self.slept_s = 0.0
        self.turns = Turns(clock_s=lambda: self.now_s, sleep=self.sleep)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(0)
        self.slept_s += seconds
        self.now_s += seconds

    def work(self, seconds: float, fails: bool = False) -> float:
        self.now_s += seconds
        if fails:
            raise ValueError("it fails")
        return self.now_s


async def test_pages_take_at_most_a_tenth_of_the_time_whoever_asks_for_how_many() -> None:
    hours = Hours()
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(hours.turns.made, partial(hours.work, 0.02))
    assert hours.now_s - hours.slept_s == pytest.approx(1.0)
    assert hours.slept_s == pytest.approx(49 * 0.02 * (1.0 / MOST_OF_TIME - 1.0))


async def test_a_page_that_fails_has_taken_its_time_and_the_next_one_is_made() -> None:
    hours = Hours()
    with pytest.raises(ValueError, match="it fails"):
        await hours.turns.made(partial(hours.work, 1.0, fails=True))
    assert await hours.turns.made(partial(hours.work, 0.0)) == pytest.approx(10.0)
    assert await hours.turns.made(partial(hours.work, 0.0)) == pytest.approx(10.0)


@pytest.mark.parametrize(
    "path", ["/queue?namespace=none-{}", "/top?namespace=none-{}", "/explain/d/none-{}", "/story/d/none-{}"]
)
async def test_every_page_of_ever_new_names_has_its_turn(
    pair: Pair, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_made = 0
    made = Turns.made

    async def counted(self: Turns, make: object) -> object:
        nonlocal n_made
        n_made += 1
        return await made(self, make)  # type: ignore[arg-type]

    monkeypatch.setattr(Turns, "made", counted)
    c, api = waiting(), ApiServer()
    api.may |= {("prometheus", path.format(i).partition("?")[0]) for i in range(5)}
    async with serving(pair, top=top_of(c), explanations=explanations(c), api=api) as client:
        for i in range(5):
            assert (await client.ask(path.format(i), token="good"))[0] in (200, 404)
    assert n_made == 5

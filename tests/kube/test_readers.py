"""Sockets looked at together: everything is heard, in a crowd as when it is quiet, until the end."""

from __future__ import annotations

import socket

import pytest

from gangsched.kube.transport.pace import Pace, Patience
from gangsched.kube.transport.readers import Readers
from tests.support.tasks import until


async def test_everything_is_heard_when_quiet_and_in_a_crowd() -> None:
    readers = Readers()
    pairs = [socket.socketpair() for _ in range(3)]
    heard = [0, 0, 0]

    def listen(n: int) -> None:
        near = pairs[n][1]
        near.setblocking(False)

        def take() -> None:
            heard[n] += len(near.recv(1))

        readers.add_reader(near, take)

    for n in range(3):
        listen(n)
    for round_ in range(1, 101):  # far above what is many: also the last of them is heard
        for far, _ in pairs:
            far.send(b"x")
        await until(lambda: heard == [round_] * 3)  # noqa: B023
    readers.remove_reader(pairs[0][1])
    for far, _ in pairs:
        far.send(b"x")
    await until(lambda: heard == [100, 101, 101])
    readers.close()
    for pair in pairs:
        for end in pair:
            end.close()


async def test_one_reader_that_raises_does_not_stop_the_others() -> None:
    readers = Readers()
    (bad_far, bad), (good_far, good) = socket.socketpair(), socket.socketpair()
    heard: list[bytes] = []

    def fail() -> None:
        bad.recv(1)
        raise ValueError("a bug")

    readers.add_reader(bad, fail)
    readers.add_reader(good, lambda: heard.append(good.recv(1)))
    bad_far.send(b"x")
    good_far.send(b"y")
    await until(lambda: heard == [b"y"])
    readers.close()
    for end in (bad_far, bad, good_far, good):
        end.close()


def test_answers_to_one_gang_are_never_held_back() -> None:
    pace = Pace()
    assert not any(pace.is_much(1, n * 0.001) for n in range(32))
    assert pace.is_much(60, 0.04)
    assert not pace.is_much(1, 0.3)


@pytest.mark.parametrize("a_second", [400, 1_500, 4_000])
def test_a_look_waits_until_a_quarter_of_the_answers_have_come(a_second: int) -> None:
    n_awaited, shortest_s, longest_s = 16, 0.001, 0.01
    patience, hold_s, found = Patience(shortest_s, longest_s), shortest_s, []
    for _ in range(100):  # each answer that is heard is followed by the next question
        found.append(min(n_awaited, round(a_second * hold_s)))
        hold_s = patience.hold_s(found[-1], n_awaited)
        assert shortest_s <= hold_s <= longest_s
    settled = sum(found[50:]) / 50
    assert settled == pytest.approx(min(n_awaited / 4, a_second * longest_s), abs=1.5)

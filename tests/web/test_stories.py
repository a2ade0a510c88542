"""A gang's story: told by the port to those who may ask, and drawn by `gangsched story`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.cli import main
from gangsched.errors import ApiError, ConfigError
from gangsched.web import command
from gangsched.web.stories import Stories
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_server import serving

BEGAN_S = 1_800_000_000.0


def stories(c: Cluster) -> Stories:
    return Stories(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: BEGAN_S + c.now_s)


def waited_and_bound() -> Cluster:
    """A gang that found no room, and then did."""
    c = cluster(nodes=1, gpus=8).submit(gang("old", pods=1, gpus=8)).run()
    c.submit(gang("train", pods=2, gpus=4)).run().wait(20.0)
    c.delete("old-0").run().wait(20.0)
    assert c.placed("train")
    return c


def moves(told: bytes | None) -> list[tuple[str, str]]:
    assert told is not None
    [one] = json.loads(told)
    return [(move["before"], move["state"]) for move in one["moves"]]


def test_the_moves_are_listed_in_order_with_causes_and_times() -> None:
    c = waited_and_bound()
    told = stories(c).told("d/train")
    assert moves(told) == [
        ("gathering", "active"),
        ("active", "unschedulable"),
        ("unschedulable", "active"),
        ("active", "binding"),
        ("binding", "bound"),
    ]
    [one] = json.loads(told or b"")
    assert (one["group"], one["state"], one["attempts"]) == ("d/train", "bound", 2)
    assert one["moves"][1]["cause"] == "the attempt failed: no room, or a plugin said no"
    assert one["moves"][2]["seconds"] == pytest.approx(20.0, abs=2.0)
    assert one["moves"][0]["at"].startswith("2027-01-15T08:00:")


def test_a_group_that_is_not_known_has_no_story() -> None:
    assert stories(waited_and_bound()).told("d/none") is None


async def test_the_page_is_for_those_who_may_read_it(pair: Pair) -> None:
    async with serving(pair, stories=stories(waited_and_bound())) as client:
        assert (await client.ask("/story/d/train"))[0] == 403
        code, text = await client.ask("/story/d/train", token="good")
        assert (code, json.loads(text)[0]["state"]) == (200, "bound")
        assert (await client.ask("/story/d/none", token="good"))[0] == 404


async def test_the_command_draws_it(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    async with serving(pair, stories=stories(waited_and_bound())) as client:
        at = f"--server=https://127.0.0.1:{client.port}"
        run = anyio.to_thread.run_sync
        assert await run(main, ["story", "d/train", at, "--token=good"]) == 0
        drawn = capsys.readouterr().out
        assert "d/train has been bound for" in drawn
        assert "2 attempts" in drawn
        assert "every bind landed" in drawn
        assert await run(main, ["story", "d/train", at, "--token=good", "-o", "json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["group"] == "d/train"
        assert await run(main, ["story", "d/none", at, "--token=good"]) == 1
        assert "knows no gang and no pod of its own named d/none" in capsys.readouterr().err
        assert await run(main, ["story", "d/train", at, "--token=stranger"]) == 1
        assert "401: https://127.0.0.1:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a/b/c"], "'a/b/c' is not NAMESPACE/GANG"),
        (["a", "--server=http://10.0.0.1:1"], "--server: 'http://10.0.0.1:1' is not an https:// address"),
        (["a", "--server=http://127.0.0.1.x.example:1"], "x.example:1' is not an https:// address"),
        (["a", "--token=x", "--ca=/nope"], "--ca /nope: cannot be used"),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments: list[str], said: str, tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(ConfigError) as caught:
        command.run(parser.parse_args(arguments))
    assert said in str(caught.value)


def test_a_server_whose_name_no_host_can_have_is_reported() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["a", "--token=x", "--server=https://a..b:1"])
    with pytest.raises(
        ApiError, match=r"no scheduler answers at https://a\.\.b:1: it is not a host name; in a"
    ):
        command.run(args)


def test_a_closed_port_is_reported_with_how_to_open_it() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["a", "--token=x", "--server=https://127.0.0.1:1"])
    with pytest.raises(
        ApiError,
        match=r"no scheduler answers at .*:1: connection refused; in a cluster: kubectl .* port-forward",
    ):
        command.run(args)

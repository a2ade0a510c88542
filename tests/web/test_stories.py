"""A gang's story: told by the port to those who may ask, and drawn by `gangsched story`.

Each has two namespaces: what stands in the gang's way is another tenant's, and only administrators read its
name.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.errors import ApiError, ConfigError
from gangsched.lab.sim.objects import make_pod
from gangsched.web.commands import story as command
from gangsched.web.pages.stories import Stories
from tests.core.queued import queued
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_server import serving

BEGAN_S = 1_800_000_000.0


def stories(c: Cluster) -> Stories:
    return Stories(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: BEGAN_S + c.now_s)


OTHERS = "b"
SECRET = "secret"


def waited_and_bound() -> Cluster:
    """A gang that found no room, as others had it, and then did."""
    c = cluster(nodes=1, gpus=8).submit(gang(SECRET, pods=1, gpus=8, namespace=OTHERS)).run()
    c.submit(gang("train", pods=2, gpus=4)).run().wait(20.0)
    c.delete(f"{SECRET}-0").run().wait(20.0)
    assert c.placed("train")
    return c


def waits_for_victims() -> Cluster:
    """A gang that waits until pods of others, which are evicted for it, have gone."""
    c = cluster(nodes=1, gpus=8)
    c.evictions = "slow"
    c.submit(gang(SECRET, pods=2, gpus=4, namespace=OTHERS)).run()
    return c.submit(gang("train", pods=2, gpus=4, priority=9)).run()


def promised_beside() -> Cluster:
    """A lone pod that waits, as room is kept for a gang of others that was passed as often as is allowed."""
    c = queued("queueing: {bound: {groups: 1, mode: hard}}", nodes=2)
    own = {"gangsched.io/walltime": "600s"}
    c.submit([make_pod("holds", namespace=OTHERS, gpus=8, annotations=own)]).run()
    c.submit(gang(SECRET, pods=2, gpus=8, namespace=OTHERS)).run()
    c.submit([make_pod("before", gpus=8)]).run().delete("before").run()
    return c.submit(gang("train", pods=1, gpus=8)).run().wait(2.0)


def lost_its_reservations() -> Cluster:
    """A gang that waits for members until a pod of others takes what it has reserved."""
    c = cluster(nodes=1, gpus=8)
    own = {"gangsched.io/total-members": "2"}
    c.submit(gang("train", pods=1, gpus=8, annotations=own)).run()
    return c.submit([make_pod(SECRET, namespace=OTHERS, gpus=8, priority=9)]).run()


TOLD = {
    "waited and bound": (waited_and_bound, ""),
    "victims": (waits_for_victims, f"{OTHERS}/{SECRET}-0"),
    "promised beside": (promised_beside, f"{OTHERS}/{SECRET}"),
    "lost reservations": (lost_its_reservations, f"{OTHERS}/{SECRET}"),
}


@pytest.mark.parametrize("scene", TOLD)
def test_a_tenant_reads_no_name_of_another_namespace_and_an_administrator_does(scene: str) -> None:
    made, named = TOLD[scene]
    c = made()
    full, ours = ((stories(c).as_json("d/train", to_tenant=so) or b"").decode() for so in (False, True))
    assert named in full
    assert SECRET not in ours
    assert f"{OTHERS}/" not in ours
    assert ("another namespace" in ours or "other namespaces" in ours) is bool(named)


async def test_whoever_may_read_the_stories_of_one_namespace_reads_no_names_of_another(pair: Pair) -> None:
    """Nor the story of the gang whose name it has guessed, whether there is one of that name or not."""
    async with serving(pair, stories=stories(waits_for_victims())) as client:
        code, text = await client.ask("/story/d/train", token="good")
        assert (code, SECRET in text, "2 pods of other namespaces" in text) == (200, False, True)
        theirs = await client.ask(f"/story/{OTHERS}/{SECRET}", token="good")
        assert theirs[0] == 403
        nobodys = await client.ask(f"/story/{OTHERS}/guessed", token="good")
        assert theirs[1].replace(SECRET, "guessed") == nobodys[1]


def moves(told: bytes | None) -> list[tuple[str, str]]:
    assert told is not None
    [one] = json.loads(told)
    return [(move["before"], move["state"]) for move in one["moves"]]


def test_the_moves_are_listed_in_order_with_causes_and_times() -> None:
    c = waited_and_bound()
    told = stories(c).as_json("d/train")
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
    """Neither to whoever asks for a gang of another namespace by the name that it has there."""
    c = waited_and_bound()
    assert stories(c).as_json("d/none") is None
    assert stories(c).as_json(f"d/{SECRET}") is None


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
        assert SECRET not in drawn
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
    with pytest.raises(ApiError, match=r"no scheduler answers at https://a\.\.b:1: it is not a host name"):
        command.run(args)


def test_a_closed_port_is_reported_with_how_to_open_it() -> None:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(["a", "--token=x", "--server=https://127.0.0.1:1"])
    with pytest.raises(
        ApiError,
        match=r"no scheduler answers at .*:1: connection refused; without --server the one that leads",
    ):
        command.run(args)

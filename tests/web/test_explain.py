"""Explanations as people get them: by the port, for those who may ask, drawn by `gangsched explain`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import anyio
import msgspec
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.command.printing import console
from gangsched.config import TracingSettings
from gangsched.errors import ApiError
from gangsched.lab.sim.objects import make_pod
from gangsched.web.commands import explain as explain_command
from gangsched.web.commands import explain_snapshot
from gangsched.web.pages.explanations import Explanations, Page
from gangsched.web.pages.stories import Stories
from tests.support.scenario import Cluster, cluster, gang
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import serving


def waiting() -> Cluster:
    c = cluster(nodes=2, gpus=8).submit(gang("old", pods=1, gpus=2)).run()
    return c.submit(gang("train", pods=2, gpus=8)).run().wait(5.0)


def explanations(c: Cluster, *, leads: bool = True) -> Explanations:
    return Explanations(
        c.scheduler,
        tracing=lambda: TracingSettings(file="traces.jsonl"),
        may_act=lambda: leads,
        clock_s=lambda: c.now_s,
        wall_s=lambda: 1_800_000_000.0 + c.now_s,
    )


async def test_only_who_may_read_every_explanation_is_told_of_other_namespaces(pair: Pair) -> None:
    c = cluster(nodes=1)
    c.evictions = "slow"
    c.submit(make_pod("secret", namespace="b", gpus=8)).run()
    c.submit(gang("train", pods=1, gpus=8, priority=9)).run()
    api = ApiServer()
    stories = Stories(c.scheduler, clock_s=lambda: c.now_s)
    async with serving(pair, explanations=explanations(c), stories=stories, api=api) as client:
        for page in ("explain", "story"):
            code, text = await client.ask(f"/{page}/d/train", token="good")
            assert (code, "b/secret" in text, "a pod of another namespace" in text) == (200, False, True)
    api.may |= {("prometheus", "/explain/*"), ("prometheus", "/story/*")}
    async with serving(pair, explanations=explanations(c), stories=stories, api=api) as client:
        for page in ("explain", "story"):
            code, text = await client.ask(f"/{page}/d/train", token="good")
            assert (code, "b/secret" in text, "another namespace" in text) == (200, True, False)


async def test_the_command_draws_the_answer_first_for_those_who_may_ask(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    async with serving(pair, explanations=explanations(waiting())) as client:
        assert (await client.ask("/explain/d/train"))[0] == 403
        at = f"--server=https://127.0.0.1:{client.port}"
        run = anyio.to_thread.run_sync
        assert await run(main, ["explain", "d/train", at, "--token=good"]) == 3
        drawn = " ".join(capsys.readouterr().out.split())
        assert drawn.startswith("d/train: 1 of 2 members fit. Member train-1 needs 8 nvidia.com/gpu on one")
        for part in (
            "place 1 of 1 in the queue; in line for 5.0s",
            "To do: Make room for 1 more of its members",
            "n0 nvidia.com/gpu 8 6 d/old (2 bound)",
            "2 NodeResourcesFit Insufficient nvidia.com/gpu",
            "active unschedulable the attempt failed",
            "Its trace: gangsched trace d/train --file traces.jsonl",
        ):
            assert part in drawn, part
        assert await run(main, ["explain", "d/train", at, "--token=good", "-o", "json"]) == 3
        [page] = json.loads(capsys.readouterr().out)
        assert page["explanation"]["near"][0]["heldBy"] == ["d/old (2 bound)"]
        assert await run(main, ["explain", "a/b/c", at, "--token=good"]) == 2
        assert "is not NAMESPACE/GANG" in capsys.readouterr().err
        assert await run(main, ["explain", "d/train", at, "--token=stranger"]) == 1


async def test_a_gang_that_nobody_knows_is_answered_with_where_to_look(
    pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    async with serving(pair, explanations=explanations(cluster())) as client:
        at = f"--server=https://127.0.0.1:{client.port}"
        assert await anyio.to_thread.run_sync(main, ["explain", "d/train", at, "--token=good"]) == 1
        assert "knows no gang and no pod of its own named d/train" in capsys.readouterr().err


def test_the_command_draws_how_near_each_other_the_ranks_are(capsys: pytest.CaptureFixture[str]) -> None:
    c = cluster(nodes=2, gpus=8).submit(gang("train", pods=2, gpus=8)).run()
    [page] = msgspec.json.decode(explanations(c).as_json("d/train") or b"", type=list[Page])
    explain_command.print_page(page, console(width=200))
    drawn = " ".join(capsys.readouterr().out.split())
    assert "Ranks: The distances from rank to rank add up to 1, the least possible for these places" in drawn


def test_a_replica_that_does_not_lead_reports_that() -> None:
    told = explanations(waiting(), leads=False).as_json("d/train")
    assert json.loads(told or b"")[0]["leads"] is False


async def test_a_replica_that_does_not_lead_leaves_the_answer_to_a_snapshot(
    pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    c = waiting()
    [page] = msgspec.json.decode(explanations(c).as_json("d/train") or b"", type=list[Page])
    reasons = []

    async def snapshot(
        _: argparse.Namespace, name: str, why: str, *, runs: bool, other: str = ""
    ) -> list[Page]:
        reasons.append((name, why.replace(at, "AT"), runs))
        return [msgspec.structs.replace(page, instead=why)]

    async with serving(pair, explanations=explanations(c, leads=False)) as client:
        at = f"https://127.0.0.1:{client.port}"
        ask = ["explain", "d/train", f"--server={at}", "--token=good"]
        assert await anyio.to_thread.run_sync(main, ask) == 3
        assert "This replica does not lead and decides nothing" in capsys.readouterr().out
        monkeypatch.setattr(explain_snapshot, "explain_snapshot", snapshot)
        assert await anyio.to_thread.run_sync(main, ask) == 3
        drawn = " ".join(capsys.readouterr().out.split())
    assert reasons == [("d/train", "the replica at AT does not lead", True)]
    assert drawn.startswith("d/train: 1 of 2 members fit.")
    assert (
        " unschedulable; place 1 of 1 in the queue; 2 of 2 members exist, 0 bound, 0 reserved; sch" in drawn
    )


async def test_who_may_not_ask_a_scheduler_is_answered_from_what_he_may_list(
    pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    [page] = msgspec.json.decode(explanations(waiting()).as_json("d/train") or b"", type=list[Page])

    async def snapshot(
        _: argparse.Namespace, name: str, why: str, *, runs: bool, other: str = ""
    ) -> list[Page]:
        return [msgspec.structs.replace(page, instead=f"{why}, {runs}")]

    monkeypatch.setattr(explain_snapshot, "explain_snapshot", snapshot)
    async with serving(pair, explanations=explanations(waiting())) as client:
        ask = ["explain", "d/train", f"--server=https://127.0.0.1:{client.port}"]
        assert await anyio.to_thread.run_sync(main, ask) == 3
        drawn = " ".join(capsys.readouterr().out.split())
    assert '--token "$(kubectl create token NAME)", True. This answer is worked out from' in drawn


def test_who_asks_again_at_once_gets_the_same_answer() -> None:
    c = waiting()
    asked = explanations(c)
    first = asked.as_json("d/train")
    c.delete("old-0").run()
    assert asked.as_json("d/train") is first
    c.wait(30.0)
    assert json.loads(asked.as_json("d/train") or b"")[0]["explanation"]["state"] == "bound"


def test_without_scheduler_and_api_server_both_failures_are_reported(tmp_path: Path) -> None:
    config = tmp_path / "config"
    cluster = {"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
    user = {"name": "x", "user": {"token": "x"}}
    document = {"kind": "Config", "clusters": [cluster], "users": [user], "contexts": [context]}
    config.write_text(json.dumps({**document, "apiVersion": "v1", "current-context": "x"}))
    config.chmod(0o600)
    parser = argparse.ArgumentParser()
    explain_command.add_arguments(parser)
    ask = ["d/a", "--token=x", "--server=https://127.0.0.1:2", f"--kubeconfig={config}"]
    with pytest.raises(ApiError) as caught:
        explain_command.run(parser.parse_args(ask))
    assert str(caught.value).startswith("no scheduler answers at https://127.0.0.1:2: connection refused")
    assert "; the API server does not answer either: cannot reach http://127.0.0.1:1" in str(caught.value)

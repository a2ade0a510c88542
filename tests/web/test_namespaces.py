"""The namespace of the kubeconfig's context is the one that commands are about, as with kubectl."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.command import namespaces
from gangsched.command.cli import main
from gangsched.errors import ConfigError
from gangsched.lab.sim.objects import make_pod
from gangsched.web.pages.explanations import Explanations
from gangsched.web.pages.queue import Queue
from tests.support.scenario import cluster, gang
from tests.web.test_server import serving

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: mine
contexts:
- {name: other, context: {cluster: c, user: u, namespace: elsewhere}}
- {name: mine, context: {cluster: c, user: u, namespace: d}}
- {name: bare, context: {cluster: c, user: u}}
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: good}}]
"""


def test_a_kubeconfig_that_stands_for_too_much_or_is_a_pipe_names_no_namespace(tmp_path: Path) -> None:
    """Who uses it says what is wrong with it; nobody is held up before."""
    bomb, pipe = tmp_path / "bomb", tmp_path / "pipe"
    bomb.write_text("current-context: mine\na: " + "[" * 50_000 + "]" * 50_000)
    os.mkfifo(pipe)
    assert [namespaces.context_namespace(str(path)) for path in (bomb, pipe)] == ["", ""]


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


@pytest.mark.parametrize(
    ("context", "namespace"), [("", "d"), ("other", "elsewhere"), ("bare", ""), ("no", "")]
)
def test_a_context_has_its_namespace(kubeconfig: Path, context: str, namespace: str) -> None:
    assert namespaces.context_namespace(str(kubeconfig), context) == namespace


def test_a_path_from_home_is_found_as_who_connects_finds_it(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell leaves --kubeconfig=~/config as it is."""
    monkeypatch.setenv("HOME", str(kubeconfig.parent))
    assert namespaces.context_namespace("~/kubeconfig") == "d"


def test_of_several_files_the_first_that_says_so_counts(kubeconfig: Path, tmp_path: Path) -> None:
    first = tmp_path / "first"
    first.write_text("current-context: bare\ncontexts: [{name: bare, context: {namespace: first}}]\n")
    environ = {"KUBECONFIG": f"{tmp_path / 'none'}:{first}:{kubeconfig}"}
    assert namespaces.context_namespace(environ=environ) == "first"


@pytest.mark.parametrize(
    "text", ["", "[", "a: b", "contexts: 5", "- 1", "contexts: [1, {name: mine}]\ncurrent-context: mine"]
)
def test_what_is_no_kubeconfig_names_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "k").write_text(text)
    assert namespaces.context_namespace(str(tmp_path / "k")) == ""


def test_in_a_pod_there_is_no_context() -> None:
    assert namespaces.context_namespace(environ={"KUBERNETES_SERVICE_HOST": "10.0.0.1"}) == ""


def args_of(**more: object) -> argparse.Namespace:
    return argparse.Namespace(
        **{"namespace": "", "kubeconfig": "", "context": "", "all_namespaces": False} | more
    )


@pytest.mark.usefixtures("kubeconfig")
def test_a_gang_is_of_the_contexts_namespace_unless_it_says_so() -> None:
    assert namespaces.full_name(args_of(), "train") == ("d", "train")
    assert namespaces.full_name(args_of(context="bare"), "train") == ("default", "train")
    assert namespaces.full_name(args_of(), "a/train") == ("a", "train")
    assert namespaces.full_name(args_of(namespace="b"), "train") == ("b", "train")
    with pytest.raises(ConfigError, match="'a/train' is of another namespace than 'b'"):
        namespaces.full_name(args_of(namespace="b"), "a/train")
    for name in ("a/b/c", "/train", "a/", ""):
        with pytest.raises(ConfigError, match="is not NAMESPACE/GANG"):
            namespaces.full_name(args_of(), name)


def test_bytes_that_are_no_text_are_no_name() -> None:
    """As a terminal in another encoding sends them."""
    byte = os.fsdecode(b"\xff")
    for ask in (
        lambda: namespaces.full_name(args_of(), byte),
        lambda: namespaces.full_name(args_of(namespace=byte), "train"),
        lambda: namespaces.listed(args_of(namespace=byte)),
    ):
        with pytest.raises(ConfigError, match="is not UTF-8 text"):
            ask()


@pytest.mark.usefixtures("kubeconfig")
async def test_the_queue_is_that_of_the_context_and_of_all_if_asked(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    c = cluster(nodes=1).submit(make_pod("a", gpus=9), make_pod("b", namespace="e", gpus=9)).run()
    async with serving(pair, queue=Queue(c.scheduler, clock_s=lambda: c.now_s)) as client:
        at = [f"--server=https://127.0.0.1:{client.port}", "-o", "json"]

        async def asked(*more: str) -> tuple[list[str], str]:
            assert await anyio.to_thread.run_sync(main, ["queue", *at, *more]) == 0
            out, err = capsys.readouterr()
            return [row["group"] for row in json.loads(out)["rows"]], err

        note = "gangsched: note: only of namespace d, which the kubeconfig's context names; -A lists all\n"
        assert await asked() == (["d/a"], note)
        assert await asked("-A") == (["d/a", "e/b"], "")
        assert await asked("-n", "e") == (["e/b"], "")
        assert await asked("--context", "bare") == (["d/a", "e/b"], "")
        assert await anyio.to_thread.run_sync(main, ["queue", *at, "-A", "-n", "e"]) == 2
        assert "-n and -A do not go together" in capsys.readouterr().err


@pytest.mark.usefixtures("kubeconfig")
async def test_a_gang_is_explained_in_the_contexts_namespace(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    c = cluster(nodes=1).submit(gang("train", pods=2, gpus=8)).run()
    about = Explanations(c.scheduler, clock_s=lambda: c.now_s, wall_s=lambda: 1_800_000_000.0 + c.now_s)
    async with serving(pair, explanations=about) as client:
        at = f"--server=https://127.0.0.1:{client.port}"
        assert await anyio.to_thread.run_sync(main, ["explain", "train", at]) == 3
        assert capsys.readouterr().out.startswith("d/train: ")

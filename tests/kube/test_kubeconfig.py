"""A kubeconfig that cannot be used: one line with the file, the field, and what would be right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangsched.errors import ConfigError
from gangsched.kube.access.credentials import load_credentials

GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "prod", "cluster": {"server": "http://127.0.0.1:6443"}}],
    "users": [{"name": "anna", "user": {"token": "abc"}}],
    "contexts": [{"name": "work", "context": {"cluster": "prod", "user": "anna"}}],
    "current-context": "work",
}


async def told(path: str, **arguments: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        await load_credentials(kubeconfig=path, environ={}, **arguments)
    said = str(caught.value)
    assert "\n" not in said
    return said


FORM = "a kubeconfig has clusters, users, contexts and a current-context"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", f"is empty; {FORM}"),
        ("# nothing\n", f"is empty; {FORM}"),
        ("{}", f"is empty; {FORM}"),
        ("[a, b]", f"document 1 is a list, not a mapping; {FORM}"),
        ("just text", f"document 1 is a str, not a mapping; {FORM}"),
        ("apiVersion: v1\nkind: Config\n", f"contexts: lists no contexts; {FORM}"),
    ],
)
async def test_what_is_no_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert await told(str(path)) == f"{path}: {said}"


def without(document: dict[str, Any], *path: str | int) -> None:
    for step in path[:-1]:
        document = document[step]  # type: ignore[index]
    del document[path[-1]]  # type: ignore[arg-type]


def put(document: dict[str, Any], value: Any, *path: str | int) -> None:
    for step in path[:-1]:
        document = document[step]  # type: ignore[index]
    document[path[-1]] = value  # type: ignore[index]


Change = Callable[[dict[str, Any]], None]
WRONG: list[tuple[Change, str]] = [
    (
        lambda it: without(it, "current-context"),
        "current-context: is not set; write the name of a context, or give --context: 'work'",
    ),
    (
        lambda it: put(it, "wokr", "current-context"),
        "current-context: there is no context 'wokr'; did you mean work?; there are: 'work'",
    ),
    (
        lambda it: put(it, 7, "current-context"),
        "current-context: must be the name of a context, not a number",
    ),
    (lambda it: put(it, "work", "contexts"), "contexts: must be a list, not text"),
    (lambda it: put(it, ["work"], "contexts"), "contexts[0]: must have name and context, and is text"),
    (lambda it: without(it, "contexts", 0, "name"), "contexts[0].name: must be text, not nothing"),
    (
        lambda it: put(it, "bob", "contexts", 0, "context", "user"),
        "contexts[0].context.user: there is no user 'bob'; there are: 'anna'",
    ),
    (
        lambda it: without(it, "users"),
        "contexts[0].context.user: there is no user 'anna'; the file lists no users",
    ),
    (
        lambda it: put(it, "prodd", "contexts", 0, "context", "cluster"),
        "contexts[0].context.cluster: there is no cluster 'prodd'; did you mean prod?; there are: 'prod'",
    ),
    (
        lambda it: without(it, "contexts", 0, "context", "cluster"),
        "contexts[0].context.cluster: is not set; the clusters are: 'prod'",
    ),
    (
        lambda it: without(it, "clusters", 0, "cluster", "server"),
        "clusters[0].cluster.server: is not set; it is the API server's address, as https://HOST:6443",
    ),
    (
        lambda it: put(it, None, "clusters", 0, "cluster"),
        "clusters[0].cluster.server: is not set; it is the API server's address, as https://HOST:6443",
    ),
]


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said.split(":")[0] for _, said in WRONG])
async def test_a_field_that_is_wrong(tmp_path: Path, change: Change, said: str) -> None:
    document = copy.deepcopy(GOOD)
    change(document)
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(document))
    assert await told(str(path)) == f"{path}: {said}"


async def test_the_flag_is_named_where_it_is_the_mistake(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(GOOD))
    said = await told(str(path), context="wrk")
    assert said == "--context: there is no context 'wrk'; did you mean work?; there are: 'work'"


async def test_an_empty_file_among_several_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "good").write_text(yaml.safe_dump(GOOD))
    said = await told(f"{tmp_path / 'empty'}:{tmp_path / 'good'}")
    assert said == f"{tmp_path / 'empty'}: is empty; {FORM}"


# -- --master ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kubeconfig", [None, "", "apiVersion: v1\nkind: Config\n"])
async def test_master_is_enough_where_nothing_is_configured(tmp_path: Path, kubeconfig: str | None) -> None:
    """As `kubectl --server`: no credentials, and none are missed."""
    if kubeconfig is not None:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(kubeconfig)
    environ = {"HOME": str(tmp_path)}
    found = await load_credentials(master="http://127.0.0.1:8001/", environ=environ)
    assert (found.server, await found.headers(), found.last_error) == ("http://127.0.0.1:8001", {}, "")


async def test_master_does_not_hide_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(GOOD | {"current-context": "wokr"}))
    assert "there is no context 'wokr'" in await told(str(path), master="http://127.0.0.1:8001")


async def test_a_context_needs_a_kubeconfig_beside_master(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cluster is configured"):
        await load_credentials(
            context="work", master="http://127.0.0.1:8001", environ={"HOME": str(tmp_path)}
        )


@pytest.mark.parametrize(
    "master",
    [
        "127.0.0.1:8001",
        "localhost:8001",
        "ftp://a:1",
        "https://",
        "http://a:99999",
        "http://[::1",
        "http://a b",
    ],
)
async def test_master_must_be_an_address(tmp_path: Path, master: str) -> None:
    with pytest.raises(ConfigError) as caught:
        await load_credentials(master=master, environ={"HOME": str(tmp_path)})
    assert str(caught.value) == (
        f"--master: {master!r} is not the address of an API server; examples: http://127.0.0.1:8001,"
        " https://10.0.0.1:6443"
    )


async def test_credentials_do_not_belong_into_master(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="credentials belong in a kubeconfig"):
        await load_credentials(master="https://me:secret@a:1", environ={"HOME": str(tmp_path)})

"""Commands ask a scheduler as their user, and say what is wrong if it refuses them or does not lead."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from tests.web.test_access import Server as ApiServer
from tests.web.test_server import Client, serving

pytestmark = pytest.mark.usefixtures("without_kubeconfig")


async def asked(client: Client, *arguments: str) -> int:
    at = f"--server=https://127.0.0.1:{client.port}"
    return await anyio.to_thread.run_sync(main, ["queue", at, *arguments])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], '/queue: User "system:anonymous" cannot get path "/queue". The scheduler knows users by their'),
        (["--token=stranger"], "/queue: Unauthorized: the API server does not accept the token; it may"),
        (
            ["--token=good"],
            '/queue: User "prometheus" cannot get path "/queue": a ClusterRole that has this path among its',
        ),
    ],
)
async def test_who_is_refused_is_told_what_would_be_right(
    pair: Pair, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    api = ApiServer()
    api.may.discard(("prometheus", "/queue"))
    async with serving(pair, api=api) as client:
        assert await asked(client, *arguments) == 1
    assert said in capsys.readouterr().err


async def test_a_replica_that_does_not_lead_names_the_one_that_does(
    pair: Pair, capsys: pytest.CaptureFixture[str]
) -> None:
    leader: list[str | None] = ["gangsched-6c9f7-x2b4k_0f1e2d3c4b5a6978"]
    async with serving(pair, leader=lambda: leader[0]) as client:
        assert await asked(client, "--token=good", "-o", "json") == 0
        printed = capsys.readouterr()
        assert printed.out.startswith("{")
        assert "port-forward pod/gangsched-6c9f7-x2b4k 10259" in printed.err
        for unknown in ("", "x\r\nSet-Cookie: a=b", "somebody"):
            leader[0] = unknown
            assert await asked(client, "--token=good") == 0
            assert "which one leads, if any: kubectl" in capsys.readouterr().err
        leader[0] = None
        assert await asked(client, "--token=good") == 0
        assert capsys.readouterr().err == ""


async def test_only_users_who_may_ask_learn_who_leads(pair: Pair) -> None:
    async with serving(pair, leader=lambda: "gangsched-0_ab") as client:
        for path, token in (("/queue", ""), ("/queue", "stranger"), ("/livez", "")):
            await client.ask(path, token=token)
            assert "Gangsched-Leader" not in client.headers
        await client.ask("/queue", token="good")
        assert client.headers["Gangsched-Leader"] == "gangsched-0_ab"


@pytest.mark.parametrize(
    ("token", "said"),
    [("good\r\n", ""), (" good ", ""), ("go\x00od", "--token: the token has characters that no token has")],
)
async def test_a_token_may_come_with_the_end_of_its_line(
    pair: Pair, capsys: pytest.CaptureFixture[str], token: str, said: str
) -> None:
    async with serving(pair) as client:
        code = await asked(client, f"--token={token}")
    assert code == (2 if said else 0)
    assert said in capsys.readouterr().err


async def test_a_password_of_the_kubeconfig_is_not_sent_as_a_token(
    pair: Pair, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: c,"
        " clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}],"
        " contexts: [{name: c, context: {cluster: k, user: u}}],"
        " users: [{name: u, user: {username: alice, password: secret}}]}"
    )
    api = ApiServer()
    async with serving(pair, api=api) as client:
        assert await asked(client, f"--kubeconfig={file}") == 1
    assert "knows users by their tokens, and none was sent" in capsys.readouterr().err
    assert not any("tokenreviews" in path for path, _ in api.asked)


@pytest.mark.parametrize(
    "server",
    [
        "http://10.0.0.1:1",
        "https://:1",
        "https://127.0.0.1:99999",
        "https://[::1",
        "https://me:secret@127.0.0.1:1",
    ],
)
def test_an_address_that_there_cannot_be_is_the_users_mistake(
    capsys: pytest.CaptureFixture[str], server: str
) -> None:
    assert main(["queue", f"--server={server}", "--token=good"]) == 2
    assert "is not an https:// address, as https://127.0.0.1:10259 is" in capsys.readouterr().err

"""Finding, reading and renewing credentials, and what a user is told when that fails."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import pwd
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from aiohttp import web

from gangsched.command.namespaces import context_namespace
from gangsched.errors import ConfigError
from gangsched.kube.access import loaders
from gangsched.kube.access.credentials import MAX_TOKEN, load_credentials
from gangsched.kube.access.exec_plugin import MAX_ANSWER
from gangsched.kube.access.files import MAX_BYTES
from tests.proxy import self_signed
from tests.support.yaml_bombs import BOMBS


def kubeconfig(
    directory: Path, user: dict[str, Any], *, server: str = "https://127.0.0.1:6443", **cluster: Any
) -> str:
    path = directory / "config"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server} | cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [
            {"name": "here", "context": {"cluster": "c", "user": "u"}},
            {"name": "anonymous", "context": {"cluster": "c"}},
        ],
        "current-context": "here",
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def plugin(directory: Path, script: str) -> dict[str, Any]:
    path = directory / "plugin.py"
    path.write_text(script)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": version, "command": sys.executable, "args": [str(path)]}}


EXEC_OK = """
import json, pathlib, sys
counter = pathlib.Path(sys.argv[0]).with_suffix(".n")
n = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(n))
version = "client.authentication.k8s.io/v1"
status = {"token": f"t{n}", "expirationTimestamp": "2100-01-01T00:00:00Z"}
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""


class Clock:
    """Monotonic time that moves when told."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_no_model_of_kubernetes_asyncio_is_loaded() -> None:
    code = (
        "import sys, gangsched.kube.access.loaders as l; l.import_loaders();"
        "bad = [m for m in sys.modules if m.startswith(('kubernetes_asyncio.client.models',"
        "'kubernetes_asyncio.client.api', 'urllib3'))]; sys.exit(str(bad) if bad else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


async def test_token_server_and_certificates(tmp_path: Path) -> None:
    _, certificate = self_signed(tmp_path)
    user = {"token": "abc", "client-certificate": "proxy.crt", "client-key": "proxy.key"}
    path = kubeconfig(
        tmp_path, user, **{"certificate-authority": str(certificate), "tls-server-name": "localhost"}
    )
    found = await load_credentials(kubeconfig=path, environ={})
    assert found.server == "https://127.0.0.1:6443"
    assert found.server_hostname == "localhost"
    assert await found.headers() == {"Authorization": "Bearer abc"}
    assert found.ssl_context is not None
    assert len(found.ssl_context.get_ca_certs()) == 1


async def test_environment_context_and_master(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, {"token": "abc"}, server="http://a:1")
    found = await load_credentials(
        context="anonymous", master="http://b:2/", environ={"KUBECONFIG": f"/nowhere:{path}"}
    )
    assert found.server == "http://b:2"
    assert await found.headers() == {}


async def test_a_certificate_in_the_kubeconfig_is_written_again_where_tmp_was_cleared(tmp_path: Path) -> None:
    _, certificate = self_signed(tmp_path)
    data = base64.b64encode(certificate.read_bytes()).decode()
    path = kubeconfig(tmp_path, {"token": "abc"}, **{"certificate-authority-data": data})
    clock = Clock()
    found = await load_credentials(kubeconfig=path, environ={}, clock=clock)
    os.unlink(found._loaded.ssl_ca_cert or "")
    clock.now_s += 61.0
    await found.headers()
    assert found.last_error == ""


async def test_certificates_that_a_plugin_renews_for_ever_are_not_all_kept(tmp_path: Path) -> None:
    loader, _ = loaders.import_loaders()
    n_open = len(os.listdir("/proc/self/fd"))
    for i in range(100):
        name = loader.FileOrData({"a": f"certificate {i}"}, "b", "a", base64_file_content=False).as_file()
        assert Path(name).read_text() == f"certificate {i}"
    assert len(os.listdir("/proc/self/fd")) == n_open
    assert sum(Path(name).exists() for name in loader._temp_files.values()) <= 32
    assert len(loader._temp_files) <= 32


@pytest.mark.parametrize("server", ["HTTPS://127.0.0.1:6443", " https://127.0.0.1:6443"])
async def test_a_token_is_sent_through_tls_however_https_is_written(tmp_path: Path, server: str) -> None:
    _, certificate = self_signed(tmp_path)
    ca = {"certificate-authority": str(certificate)}
    path = kubeconfig(tmp_path, {"token": "abc"}, server=server, **ca)
    found = await load_credentials(kubeconfig=path, environ={})
    assert found.server == "https://127.0.0.1:6443"
    assert found.ssl_context is not None
    assert len(found.ssl_context.get_ca_certs()) == 1
    found = await load_credentials(master=server.strip(), environ={"HOME": str(tmp_path)})
    assert found.ssl_context is not None


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({}, {"insecure-skip-tls-verify": "false"}, "skip-tls-verify: must be true or false, not text"),
        ({}, {"proxy-url": 5}, "clusters[].cluster.proxy-url: must be text, not a number"),
        ({}, {"tls-server-name": ["a"]}, "clusters[].cluster.tls-server-name: must be text, not a list"),
        ({}, {"tls-server-name": "a..b"}, "tls-server-name: 'a..b' is not a host name"),
        ({}, {"tls-server-name": "a\0b"}, "tls-server-name: 'a\\x00b' is not a host name"),
        ({"token": ["a"]}, {}, "users[].user.token: must be text, not a list"),
        ({"exec": "aws"}, {}, "users[].user.exec: must be a mapping, not text"),
    ],
)
async def test_a_field_of_another_type_is_refused_as_kubectl_does(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    path = kubeconfig(tmp_path, user, **cluster)
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        await load_credentials(kubeconfig=path, environ={})
    assert str(caught.value).startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["as", "as-groups"])
async def test_who_is_to_act_as_another_does_not_act_as_itself(tmp_path: Path, name: str) -> None:
    path = kubeconfig(tmp_path, {"token": "abc", name: ["viewers"] if name == "as-groups" else "viewer"})
    said = f"^{path}: users\\[\\].user.{name}: impersonation is not supported"
    with pytest.raises(ConfigError, match=said):
        await load_credentials(kubeconfig=path, environ={})


async def test_a_field_that_is_null_or_empty_is_absent_as_it_is_to_kubectl(tmp_path: Path) -> None:
    user = {"token": "abc", "exec": None, "tokenFile": "", "client-certificate-data": None}
    cluster: dict[str, Any] = {"certificate-authority-data": None, "proxy-url": "", "tls-server-name": ""}
    path = kubeconfig(tmp_path, user, **cluster)
    found = await load_credentials(kubeconfig=path, environ={})
    assert (found.authorization, found.server_hostname) == ("Bearer abc", None)


@pytest.mark.parametrize(
    ("file", "context", "said"),
    [("config", "elsewhere", "elsewhere"), ("nowhere", "", "does not exist")],
)
async def test_what_is_not_there_is_named(tmp_path: Path, file: str, context: str, said: str) -> None:
    kubeconfig(tmp_path, {"token": "abc"})
    with pytest.raises(ConfigError, match=said):
        await load_credentials(kubeconfig=str(tmp_path / file), context=context, environ={})


async def test_no_configuration_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--kubeconfig"):
        await load_credentials(environ={"HOME": str(tmp_path)})


async def test_an_account_that_the_machine_does_not_know_has_no_kubeconfig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a container that runs under any number."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.delenv("HOME", raising=False)
    with pytest.raises(ConfigError, match="no cluster is configured"):
        await load_credentials(environ={})
    assert context_namespace(environ={}) == ""


async def test_a_home_in_which_one_may_not_look_is_reported(tmp_path: Path) -> None:
    home = str(tmp_path / ("x" * 300))
    for environ in ({"HOME": home}, {"KUBECONFIG": f"{home}/config"}):
        with pytest.raises(ConfigError, match="cannot be read: File name too long"):
            await load_credentials(environ=environ)
        assert context_namespace(environ=environ) == ""


async def test_pod_without_service_account_reports_that() -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ConfigError, match="service account"):
        await load_credentials(environ=environ)


async def test_a_malformed_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("clusters: [}")
    with pytest.raises(ConfigError, match="bad"):
        await load_credentials(kubeconfig=str(tmp_path / "bad"), environ={})


async def test_a_file_that_is_too_deep_or_too_long_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "config"
    for text, says in (
        ("a: " + "[" * 50_000 + "]" * 50_000, "nested more than 100 levels deep"),
        ("#" * (MAX_BYTES + 1), f"has more than {MAX_BYTES} bytes, too many for a kubeconfig"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=says) as caught:
            await load_credentials(kubeconfig=str(path), environ={})
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("bomb", BOMBS)
async def test_a_short_file_that_stands_for_a_long_one_is_refused(tmp_path: Path, bomb: str) -> None:
    text, said = BOMBS[bomb]
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        await load_credentials(kubeconfig=str(tmp_path / "config"), environ={})


@pytest.mark.parametrize(("answer", "says"), [("'[' * 100_000", "nested too deeply"), ("'{'", "failed")])
async def test_a_plugin_that_answers_what_cannot_be_read_is_named(
    tmp_path: Path, answer: str, says: str
) -> None:
    user = plugin(tmp_path, f"print({answer})")
    with pytest.raises(ConfigError, match=rf"credential plugin .* failed: .*{says}|{says}: .*"):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("'x' * (2**20 + 1)", f"it prints more than {MAX_ANSWER} bytes"),
        ("'[]'", "its answer is not an ExecCredential with a status"),
        ("'{\"status\": 1}'", "its answer is not an ExecCredential with a status"),
        ("'{\"status\": {}}'", "its answer has apiVersion None, not 'client.authentication.k8s.io/v1'"),
        (
            '\'{"apiVersion": "client.authentication.k8s.io/v1", "status": {"token": [1]}}\'',
            "status.token of its answer is not text",
        ),
    ],
)
async def test_the_error_says_what_is_wrong_with_a_plugins_answer(
    tmp_path: Path, answer: str, says: str
) -> None:
    path = kubeconfig(tmp_path, plugin(tmp_path, f"print({answer})"))
    with pytest.raises(ConfigError, match=re.escape(says)):
        await load_credentials(kubeconfig=path, environ={})


@pytest.mark.parametrize("status", [{"token": ""}, {"token": None}, {"clientCertificateData": "c"}, {"a": 1}])
async def test_a_plugin_that_has_nothing_to_give_leaves_what_it_gave_before(
    tmp_path: Path, status: dict[str, Any]
) -> None:
    user = plugin(tmp_path, EXEC_OK)
    found = await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    version = "client.authentication.k8s.io/v1"
    answer = json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status})
    plugin(tmp_path, f"print({answer!r})")
    assert not await found.refresh(refused=found.version)
    assert "has no token, and no client certificate with its key" in found.last_error
    assert found.authorization == "Bearer t1"


async def test_a_plugin_may_write_null_for_what_it_does_not_give(tmp_path: Path) -> None:
    status = {"token": "t", "expirationTimestamp": None, "clientCertificateData": None}
    answer = json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "status": status})
    user = plugin(tmp_path, f"print({answer!r})")
    found = await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    assert found.authorization == "Bearer t"


@pytest.mark.parametrize(
    "user",
    [
        {"auth-provider": {"name": "oidc", "config": {"id-token": None, "refresh-token": "SECRET"}}},
        {"exec": {"apiVersion": None, "command": "a", "env": [{"name": "A", "value": "SECRET"}]}},
    ],
)
async def test_a_mistake_beside_a_secret_is_reported_without_the_secret(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, user: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="Expected key") as caught:
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    assert "SECRET" not in str(caught.value) + caplog.text
    assert not caplog.messages


async def test_a_plugin_may_say_much_before_it_answers(tmp_path: Path) -> None:
    """A pipe holds 64 KiB: whoever reads the errors last waits for it as it waits for them."""
    user = plugin(
        tmp_path,
        "import json, sys\n"
        "sys.stderr.write('x' * 10**6)\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',"
        " 'status': {'token': 't'}}))",
    )
    found = await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    assert found.authorization == "Bearer t"


async def test_what_a_plugin_complains_of_is_shown_without_its_colours(tmp_path: Path) -> None:
    user = plugin(tmp_path, "import sys; sys.exit('\\x1b[31mlog in')")
    with pytest.raises(ConfigError, match=re.escape("process returned 1. \\x1b[31mlog in")):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})


async def test_a_plugin_that_never_ends_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaders, "EXEC_TIMEOUT_S", 2.0)
    started = tmp_path / "started"
    user = plugin(
        tmp_path,
        "import os, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"open({str(started)!r} + '.part', 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        f"os.rename({str(started)!r} + '.part', {str(started)!r})\n"
        "time.sleep(1000)",
    )
    with pytest.raises(ConfigError, match="gave no answer in 2 s"):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    for pid in started.read_text().split():
        with anyio.fail_after(20):
            while is_running(int(pid)):
                await anyio.sleep(0.02)


def test_a_plugin_that_is_given_up_has_ended_before_the_loop_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else asyncio logs that the loop which handles it is closed, after a command's last line."""
    waited = os.waitpid

    def slowly(*of: Any) -> tuple[int, int]:
        found = waited(*of)
        time.sleep(0.3)  # in asyncio's thread
        return found

    monkeypatch.setattr(os, "waitpid", slowly)
    user = plugin(tmp_path, "import time; time.sleep(1000)")

    async def give_up() -> None:
        with anyio.move_on_after(1.0):
            await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})

    asyncio.run(give_up())
    time.sleep(0.6)
    assert not caplog.messages


def is_running(pid: int) -> bool:
    """Whether there is such a process that has not ended, whoever has yet to read how."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_file_that_is_no_regular_one_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        with pytest.raises(
            ConfigError, match=f"^{path}: is not a regular file; pipes and devices are not read"
        ):
            await load_credentials(kubeconfig=path, environ={})
        with pytest.raises(ConfigError, match=f"^{path}: is not a regular file"):
            await load_credentials(kubeconfig=kubeconfig(tmp_path, {"tokenFile": path}), environ={})


async def test_a_certificate_that_is_far_too_long_is_not_read(tmp_path: Path) -> None:
    with open(tmp_path / "ca", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    path = kubeconfig(tmp_path, {"token": "t"}, **{"certificate-authority": str(tmp_path / "ca")})
    with pytest.raises(ConfigError, match=f"has more than {MAX_BYTES} bytes, too many for a certificate"):
        await load_credentials(kubeconfig=path, environ={})


async def test_a_token_that_is_no_token_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"the token has {MAX_TOKEN + 8} characters"):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, {"token": "x" * (MAX_TOKEN + 1)}), environ={})


async def test_failing_plugin_is_named_with_its_words(tmp_path: Path) -> None:
    user = plugin(tmp_path, "import sys; sys.exit('please log in first')")
    with pytest.raises(ConfigError, match=r"credential plugin .* please log in first"):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})
    user["exec"]["command"] = "no-such-plugin"
    with pytest.raises(ConfigError, match="'no-such-plugin' was not found"):
        await load_credentials(kubeconfig=kubeconfig(tmp_path, user), environ={})


@pytest.mark.filterwarnings("ignore::DeprecationWarning:kubernetes_asyncio")
async def test_an_openid_token_is_renewed_by_the_loader_that_a_start_does_without(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.method == "GET":
            return web.json_response({"token_endpoint": f"http://{request.host}/token"})
        assert (await request.post())["refresh_token"] == "again"
        return web.json_response({"id_token": "fresh", "refresh_token": "next"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        config = {"client-id": "c", "client-secret": "s", "idp-issuer-url": issuer, "refresh-token": "again"}
        user = {"auth-provider": {"name": "oidc", "config": config}}
        path = kubeconfig(tmp_path, user)
        found = await load_credentials(kubeconfig=path, environ={})
    finally:
        await runner.cleanup()
    assert found.authorization == "Bearer fresh"
    assert "refresh-token: next" in Path(path).read_text(), "the old one is good for nothing any more"
    assert asked == ["/.well-known/openid-configuration", "/token"]


async def test_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    clock = Clock()
    path = kubeconfig(tmp_path, {"tokenFile": str(token)})
    found = await load_credentials(kubeconfig=path, environ={}, clock=clock)
    token.write_text("two\n")
    assert await found.headers() == {"Authorization": "Bearer one"}
    clock.now_s += 61
    assert await found.headers() == {"Authorization": "Bearer two"}


async def test_refused_token_is_renewed_and_a_failing_renewal_is_survived(tmp_path: Path) -> None:
    clock = Clock()
    path = kubeconfig(tmp_path, plugin(tmp_path, EXEC_OK))
    found = await load_credentials(kubeconfig=path, environ={}, clock=clock)
    first = found.version
    assert found.authorization == "Bearer t1"
    assert await found.refresh(refused=first)
    assert found.authorization == "Bearer t2"
    assert await found.refresh(refused=first)  # somebody was faster: nothing to run
    assert found.authorization == "Bearer t2"
    plugin(tmp_path, "import sys; sys.exit('down')")
    assert not await found.refresh(refused=found.version)
    assert "down" in found.last_error
    plugin(tmp_path, EXEC_OK)
    clock.now_s += 11
    assert await found.headers() == {"Authorization": "Bearer t3"}
    assert found.last_error == ""

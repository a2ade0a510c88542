"""Whom a command asks: the scheduler that leads the kubeconfig's cluster, and no other unnoticed."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from gangsched.certificates import Pair
from gangsched.command.cli import main
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster, write_kubeconfig
from gangsched.web.commands import asking
from gangsched.web.leader import cluster_uid
from gangsched.web.pages.queue import Queue
from tests.support.scenario import cluster, gang
from tests.web.test_server import serving

LEADER = "gangsched-7d5f9c-abcde"


def waits() -> Queue:
    c = cluster(nodes=1).submit(gang("train", pods=2, gpus=8)).run()
    return Queue(c.scheduler, clock_s=lambda: c.now_s)


async def led(api: EmbeddedCluster, directory: Path, holder: str = f"{LEADER}_1") -> tuple[Path, str]:
    """(a kubeconfig of the cluster, its identity); `holder` has the Lease."""
    config = write_kubeconfig(directory / "config", api.url)
    async with ApiClient(await load_credentials(kubeconfig=str(config))) as client:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gangsched-system"}}
        await client.post("/api/v1/namespaces", json.dumps(space).encode())
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "gangsched", "namespace": "gangsched-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15},
        }
        path = "/apis/coordination.k8s.io/v1/namespaces/gangsched-system/leases"
        await client.post(path, json.dumps(lease).encode())
        return config, await cluster_uid(client)


def kubectl(directory: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl that writes down what it was asked, and forwards to `port`; 0: there is no such pod."""
    log = directory / "asked"
    file = directory / "bin" / "kubectl"
    file.parent.mkdir(exist_ok=True)
    told = f"print('Forwarding from 127.0.0.1:{port} -> 10259', flush=True); time.sleep(60)"
    if not port:
        told = "sys.exit('Error from server (NotFound): pods not found')"
    note = f"open({str(log)!r}, 'a').write(' '.join(sys.argv[1:]) + chr(10))"
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{note}\n{told}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{file.parent}:{os.environ['PATH']}")
    return log


async def queue(*flags: str) -> int:
    return await anyio.to_thread.run_sync(main, ["queue", "--token=good", *flags])


async def test_the_default_port_is_asked_where_it_leads_the_kubeconfigs_cluster(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedCluster() as api:
        config, uid = await led(api, tmp_path)
        assert uid
        log = kubectl(tmp_path, 0, monkeypatch)
        async with serving(pair, queue=waits(), cluster=lambda: uid) as client:
            monkeypatch.setattr(asking, "DEFAULT_SERVER", f"https://127.0.0.1:{client.port}")
            assert await queue("--kubeconfig", str(config)) == 0
        out = capsys.readouterr()
    assert "d/train" in out.out
    assert out.err == (
        f"gangsched: note: asked the scheduler at {asking.DEFAULT_SERVER}, of the cluster {api.url}\n"
    )
    assert not log.exists()


async def test_another_clusters_scheduler_on_the_default_port_is_passed_over_for_the_leader(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = cluster()
    nothing = Queue(empty.scheduler, clock_s=lambda: empty.now_s)
    async with EmbeddedCluster() as api:
        config, uid = await led(api, tmp_path)
        async with (
            serving(pair, queue=nothing, cluster=lambda: "another") as other,
            serving(pair, queue=waits(), cluster=lambda: uid) as leader,
        ):
            monkeypatch.setattr(asking, "DEFAULT_SERVER", f"https://127.0.0.1:{other.port}")
            log = kubectl(tmp_path, leader.port, monkeypatch)
            assert await queue("--kubeconfig", str(config)) == 0
            out = capsys.readouterr()
            assert "d/train" in out.out
            assert "Nothing waits" not in out.out
            assert f"note: asked pod {LEADER}, which leads in the cluster {api.url}, by kubectl" in out.err
            assert log.read_text().splitlines() == [
                f"--kubeconfig {config} -n gangsched-system port-forward pod/{LEADER} :10259"
            ]
            assert await queue("--kubeconfig", str(config), "--lease", "other/one") == 1
            err = capsys.readouterr().err
            assert f"is of another cluster (another) than the kubeconfig's, {api.url} ({uid})" in err
            assert "there is no Lease other/one (--lease names another)" in err
            at = f"--server=https://127.0.0.1:{other.port}"
            assert await queue("--kubeconfig", str(config), at) == 0
            assert "note: the scheduler at https://127.0.0.1:" in (err := capsys.readouterr().err)
            assert f"is of another cluster (another) than the kubeconfig's, {api.url} ({uid})" in err


async def test_a_follower_on_the_default_port_is_passed_over_for_the_leader(
    pair: Pair, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with EmbeddedCluster() as api:
        config, uid = await led(api, tmp_path)
        async with (
            serving(pair, queue=waits(), cluster=lambda: uid, leader=lambda: f"{LEADER}_1") as follower,
            serving(pair, queue=waits(), cluster=lambda: uid) as leader,
        ):
            monkeypatch.setattr(asking, "DEFAULT_SERVER", f"https://127.0.0.1:{follower.port}")
            kubectl(tmp_path, leader.port, monkeypatch)
            assert await queue("--kubeconfig", str(config)) == 0
            assert f"note: asked pod {LEADER}, which leads" in capsys.readouterr().err


async def test_without_kubectl_or_the_pod_the_command_to_type_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "DEFAULT_SERVER", "https://127.0.0.1:1")
    async with EmbeddedCluster() as api:
        config, _ = await led(api, tmp_path)
        forward = f"kubectl --kubeconfig {config} -n gangsched-system port-forward pod/{LEADER} 10259"
        monkeypatch.setenv("PATH", str(tmp_path))
        assert await queue("--kubeconfig", str(config)) == 1
        assert capsys.readouterr().err == (
            "gangsched: no scheduler answers at https://127.0.0.1:1: connection refused;"
            f" {LEADER} leads, and kubectl is not on the PATH to reach it; type {forward}\n"
        )
        kubectl(tmp_path, 0, monkeypatch)
        assert await queue("--kubeconfig", str(config)) == 1
        err = capsys.readouterr().err
        assert f"{LEADER} leads, and cannot be reached by {forward}: Error from server (NotFound)" in err
        assert await queue("--kubeconfig", str(config), "--lease", "gangsched") == 2
        assert "--lease: 'gangsched' is not NAMESPACE/NAME" in capsys.readouterr().err

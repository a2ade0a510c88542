"""The real API server behind a real HTTP proxy: lists, watches, binds, and what happens when it cuts them."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
import yaml

from gangsched.kube.access.credentials import load_credentials
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.events import BindSucceeded
from tests.connect_proxy import ConnectProxy
from tests.real.edge import bind_of, edge_by, make_node, make_pod, node_of
from tests.support.tasks import until

pytestmark = pytest.mark.real


@pytest.mark.parametrize("by", ["proxy-url", "HTTPS_PROXY"])
async def test_everything_goes_through_the_proxy(
    by: str, fresh_cluster: ControlPlane, tmp_path: Path
) -> None:
    config = yaml.safe_load(fresh_cluster.kubeconfig.read_text())
    entry = config["clusters"][0]["cluster"]
    # A name that only the proxy knows: whatever went around it would not arrive.
    entry |= {"server": "https://cluster.example.test:6443", "tls-server-name": "127.0.0.1"}
    environ = {}
    async with ConnectProxy(("127.0.0.1", fresh_cluster.port), login="us:er") as proxy:
        address = f"http://us:er@127.0.0.1:{proxy.port}"
        if by == "proxy-url":
            entry["proxy-url"] = address
        else:
            environ[by] = address
        path = tmp_path / "kubeconfig.yaml"
        path.write_text(yaml.safe_dump(config))
        account = await load_credentials(kubeconfig=str(path), environ=environ)
        async with edge_by(account) as edge:
            await anyio.to_thread.run_sync(make_node, fresh_cluster, "n1")
            pods = [await anyio.to_thread.run_sync(make_pod, fresh_cluster, f"p{n}") for n in range(2)]
            await edge.agrees(fresh_cluster)
            await edge.does(bind_of(pods[0]), BindSucceeded)
            n_tunnels = len(proxy.targets)
            proxy.cut()
            await until(lambda: len(proxy.targets) > n_tunnels)  # it has been noticed
            await edge.does(bind_of(pods[1]), BindSucceeded)
            await edge.agrees(fresh_cluster)
            await until(lambda: edge.reflectors["pods"].watching)
        for n in range(2):
            assert node_of(fresh_cluster, f"p{n}") == ("n1", "0")
    assert set(proxy.targets) == {"cluster.example.test:6443"}

"""Certificates on the real API server: rotated, expired, their authority replaced, with nothing restarted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from gangsched.errors import ApiError
from gangsched.kube.access import credentials
from gangsched.kube.access.credentials import load_credentials
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.controlplane.processes import ControlPlane
from gangsched.model.events import BindSucceeded
from tests.authority import Authority, replace
from tests.kube.scripted import within
from tests.real.edge import Edge, bind_of, edge_by, make_node, make_pod, node_of
from tests.support.tasks import until

pytestmark = pytest.mark.real

ADMINS = "system:masters"
LOOK_S = 0.2


class Place:
    """A control plane that lets in whom an authority has signed, and the files of a client of it."""

    def __init__(self, directory: Path, assets: Assets) -> None:
        self.directory = directory
        self.clients = Authority("clients")
        replace(directory / "clients.crt", self.clients.certificate)
        flags = [f"--client-ca-file={directory / 'clients.crt'}"]
        self.plane = ControlPlane(assets=assets, unsafe_no_fsync=True, apiserver_flags=flags)

    def kubeconfig(self) -> str:
        path = self.directory / "kubeconfig"
        replace(self.directory / "ca.crt", self.plane.ca_file.read_bytes())
        cluster = {"server": self.plane.base_url, "certificate-authority": str(self.directory / "ca.crt")}
        user = {"client-certificate": "client.crt", "client-key": "client.key"}
        document = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(document))
        return str(path)

    def rotate(self, name: str, **options: Any) -> None:
        self.clients.issue(self.directory, name, group=ADMINS, as_files="client", **options)

    async def binds(self, edge: Edge, name: str) -> None:
        """A new pod is heard of and bound."""
        pod = await anyio.to_thread.run_sync(make_pod, self.plane, name)
        await edge.agrees(self.plane)
        await edge.does(bind_of(pod), BindSucceeded)
        await edge.agrees(self.plane)
        assert node_of(self.plane, name) == ("n1", "0")


@pytest.fixture
def place(assets: Assets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setattr(credentials, "FILE_REFRESH_S", LOOK_S)
    monkeypatch.setattr(credentials, "RETRY_S", LOOK_S)
    made = Place(tmp_path, assets)
    with made.plane:
        make_node(made.plane, "n1")
        yield made


async def test_client_certificates_and_the_authority_change_while_it_runs(place: Place) -> None:
    place.rotate("one")
    account = await load_credentials(kubeconfig=place.kubeconfig(), environ={})
    async with edge_by(account) as edge:
        await place.binds(edge, "by-one")

        # Another certificate: every connection and every watch goes over to it.
        version, n_watches = account.version, edge.reflectors["pods"].n_watches
        place.rotate("two")
        await until(lambda: account.version > version)
        await until(lambda: edge.reflectors["pods"].n_watches > n_watches)
        await place.binds(edge, "by-two")
        assert account.last_error == ""

        # One that runs out: refused, told, and over as soon as there is a good one.
        place.rotate("three", lifetime_s=5.0)
        version = account.version
        await until(lambda: account.version > version)
        expires_s = time.monotonic() + 5.0
        await place.binds(edge, "by-three")
        await anyio.sleep(max(0.0, expires_s - time.monotonic()) + 1.0)
        with pytest.raises(ApiError) as caught:
            await edge.reflectors["pods"]._client.get("/api/v1/nodes/n1")
        assert caught.value.code == 401
        assert "the client certificate has expired" in account.last_error
        place.rotate("four")
        await until(lambda: account.last_error == "")
        await place.binds(edge, "by-four")
        assert (edge.reflectors["pods"].n_lists, edge.reflectors["nodes"].n_lists) == (1, 1)


async def test_the_servers_authority_is_replaced(place: Place) -> None:
    place.rotate("one")
    account = await load_credentials(kubeconfig=place.kubeconfig(), environ={})
    async with edge_by(account) as edge:
        await place.binds(edge, "before")
        old = (place.directory / "ca.crt").read_bytes()
        another = Authority("another")
        certificate, key = another.issue(place.directory, "server")
        # kube-apiserver watches the files that it serves with.
        serving = place.plane.ca_file
        replace(serving.with_suffix(".key"), key.read_bytes())
        replace(serving, certificate.read_bytes() + another.certificate.encode())
        version = account.version
        replace(place.directory / "ca.crt", another.certificate)
        await until(lambda: account.version > version)
        with within(60.0):
            while True:  # until the server shows the new one
                try:
                    await edge.reflectors["pods"]._client.get("/api/v1/nodes/n1")
                    break
                except ApiError:
                    await anyio.sleep(0.2)
        await until(lambda: edge.reflectors["pods"].watching)
        await place.binds(edge, "after")
        assert account.last_error == ""

        # Trusted no longer: what only the old authority would vouch for is not spoken to.
        version = account.version
        replace(place.directory / "ca.crt", old)
        await until(lambda: account.version > version)
        await until(lambda: not edge.reflectors["pods"].watching)
        await anyio.sleep(1.0)
        assert not edge.reflectors["pods"].watching

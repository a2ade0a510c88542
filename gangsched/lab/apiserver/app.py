"""Assembles the embedded cluster: store, rules, HTTP face, simulated nodes, in one async context manager.

Lives here: assembly, and the kubeconfig for it. Not here: any behaviour. Used by the CLI, the demo and by
tests.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import ssl
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

from gangsched.errors import ConfigError
from gangsched.lab.apiserver import simulated
from gangsched.lab.apiserver.documents.discovery import Discovery
from gangsched.lab.apiserver.documents.documents import Documents
from gangsched.lab.apiserver.documents.openapi import OpenApi
from gangsched.lab.apiserver.http.handlers import Handlers, Watching
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.http.server import HttpServer
from gangsched.lab.apiserver.kinds import bootstrap, builtin_strategies, serve_metrics
from gangsched.lab.apiserver.registry import Registry, utc_now
from gangsched.lab.apiserver.simulated.nodes.slices import check_driver
from gangsched.whole_file import write_whole

# Range from which the length of a watch without its own timeout is drawn, as with the real
# --min-request-timeout.
WATCH_S = (1800.0, 3600.0)


class Simulation:
    """What to simulate: nodes and their faults, kubelets, how fast their time passes."""

    def __init__(
        self,
        *,
        nodes: int = 0,
        gpus: int = 8,
        racks: int = 4,
        kubelets: bool = True,
        speed: float = 1.0,
        kills: Sequence[simulated.Kill] = (),
        unhealthy: Mapping[str, Sequence[str]] | None = None,
        driver: simulated.Driver | None = None,
    ) -> None:
        """Raises: ConfigError for invalid values."""
        if not 0 < speed < 1e6:
            raise ConfigError(f"--speed {speed}: expected a number above 0")
        self.kubelets = kubelets
        self.speed = speed
        self.kills = tuple(kills)
        self.driver = check_driver(driver or simulated.Driver())
        self.nodes = simulated.build_nodes(nodes, gpus=gpus, racks=racks)
        simulated.make_unhealthy(self.nodes, unhealthy or {})
        simulated.check_kills(self.nodes, self.kills)


class EmbeddedCluster:
    """A cluster in this process: in memory, without authentication, on 127.0.0.1 unless told otherwise.

    `port` 0 takes a free one. With `tls` (a server's context) it speaks https, and its kubeconfig trusts `ca`
    (PEM). With `nodes` (or a `simulation`) it has nodes with kubelets and a cluster's controllers; without,
    it is an API server only. `podgroup_claims` is the feature gate DRAWorkloadResourceClaims.
    Raises: ConfigError, on entering, if the address cannot be bound.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        gpus: int = 8,
        racks: int = 4,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        ca: bytes = b"",
        simulation: Simulation | None = None,
        seed: int | None = None,
        podgroup_claims: bool = False,
    ) -> None:
        self._host = host
        self._asked_port = port
        self._tls = tls
        self._ca = ca
        if simulation is None and nodes:
            simulation = Simulation(nodes=nodes, gpus=gpus, racks=racks)
        self._simulation = simulation
        self._rng = Random(seed)
        # Admission adds data for controllers only if there are controllers.
        simulated_too = simulation is not None
        strategies = builtin_strategies(
            service_accounts=simulated_too, not_ready_taint=simulated_too, podgroup_claims=podgroup_claims
        )
        self.registry = Registry(now=utc_now, rng=self._rng, strategies=strategies)
        self._handlers = Handlers(self.registry)
        self._openapi = OpenApi(
            self.registry.resources,
            lambda resource, version: self.registry.strategy(resource).schema(version),
        )
        self._documents = Documents(Discovery(self.registry.resources, ""), self._openapi)
        self._http: HttpServer | None = None
        self._simulating: asyncio.Task[None] | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        bootstrap(self.registry)
        if self._simulation is not None:
            for node in self._simulation.nodes:
                self.registry.create(self.registry.resource("nodes"), node)
            if self._simulation.kubelets:
                serve_metrics(self.registry)
        http = HttpServer(self._respond, watch_s=lambda: self._rng.uniform(*WATCH_S))
        await http.listen(self._host, self._asked_port, self._tls)
        self._http = http
        shown = f"[{self._host}]" if ":" in self._host else self._host
        address = f"{shown}:{http.port}"
        self.url = f"{'https' if self._tls else 'http'}://{address}"
        self._documents = Documents(Discovery(self.registry.resources, address), self._openapi)
        if self._simulation is not None:
            self._simulate(self._simulation)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._simulating is not None:
            self._simulating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._simulating
            self._simulating = None
        if self._http is not None:
            await self._http.close()
            self._http = None

    def kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig for this cluster, readable by its owner alone. Raises: ConfigError."""
        return write_kubeconfig(Path(path), self.url, ca=self._ca)

    def _respond(self, request: Request) -> Answer | Watching:
        answer = self._handlers.handle(request)
        return self._documents.handle(request) if answer is None else answer

    def _simulate(self, simulation: Simulation) -> None:
        cluster = simulated.SimulatedCluster(
            self.registry,
            speed=simulation.speed,
            seed=self._rng.getrandbits(32),
            kubelets=simulation.kubelets,
            driver=simulation.driver,
        )
        for kill in simulation.kills:
            cluster.kill_later(kill)
        self._simulating = asyncio.create_task(simulated.run(cluster), name="simulated cluster")


def write_kubeconfig(path: Path, url: str, *, ca: bytes = b"", name: str = "gangsched") -> Path:
    """Raises: ConfigError, if the file cannot be written."""
    cluster = {"server": url}
    if ca:
        cluster["certificate-authority-data"] = base64.b64encode(ca).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    try:
        path.touch(mode=0o600)
        write_whole(path, json.dumps(document, indent=1).encode() + b"\n")
    except OSError as error:
        raise ConfigError(f"cannot be written: {error.strerror or error}", source=str(path)) from None
    return path

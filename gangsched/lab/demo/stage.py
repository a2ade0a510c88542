"""The real stage: an embedded cluster with simulated kubelets, and the scheduler, in this process and loop.

What is done on it goes over HTTP as a user's would; what is seen is the scheduler's own state. Called by
gangsched.lab.demo.command.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
import msgspec

from gangsched.config import SchedulerConfig, TracingSettings, default_config
from gangsched.config.queueing import QueueingSettings
from gangsched.core.explaining.explain import explain
from gangsched.core.explaining.reports import GroupView, NodeView, view_nodes
from gangsched.core.scheduler import Scheduler
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.apiserver.app import EmbeddedCluster
from gangsched.lab.demo.claimed import views
from gangsched.lab.demo.play import StoryFailed
from gangsched.lab.demo.samples import JOBS, read
from gangsched.lab.demo.story import N_GPUS, N_NODES, N_RACKS, TOTAL_MBPS, Action, Delete, Explain, Report
from gangsched.model.owners import ORDERED
from gangsched.model.stated.bandwidth import MEGABYTE, REMAINING_KEY, RemainingBandwidth, remaining_annotation
from gangsched.plugins import IN_TREE
from gangsched.process.app import SchedulerApp
from gangsched.telemetry.service import Tracing
from gangsched.web.listening import WebSettings

_READY_S = 20.0
# What is in flight at the end is answered in a fraction of this by a server in the same process.
_STOP_S = 2.0
_FLUSH_S = 2.0
# A gang that does not fit is promised a start.
QUEUEING = QueueingSettings(mode="hard")
# For this machine alone, so without a certificate and a login.
_PAGES = WebSettings(0, "127.0.0.1", always_allow=("/*",), plain=True)


class LiveStage:
    """Submits to the server, looks at the scheduler. `kubeconfig` leads kubectl to the same place."""

    def __init__(
        self, app: SchedulerApp, client: ApiClient, *, samples: Path, url: str, kubeconfig: Path
    ) -> None:
        self.url = url
        self.kubeconfig = kubeconfig
        self._app = app
        self._client = client
        self._samples = samples

    async def act(self, action: Action) -> str:
        if isinstance(action, Explain):
            return answer_of(self._app.scheduler, action.group, time.monotonic())
        if isinstance(action, Delete):
            options = msgspec.json.encode({"propagationPolicy": "Background"})
            for job in action.jobs:
                await self._client.delete(f"{JOBS}/{job}", options)
            return ""
        if isinstance(action, Report):
            nodes = sorted(view_nodes(self._app.scheduler), key=lambda one: (len(one.name), one.name))
            for number, node in enumerate(nodes):
                text = remaining_text(action.left_mbps(number), datetime.now(UTC))
                body = msgspec.json.encode({"metadata": {"annotations": {REMAINING_KEY: text}}})
                await self._client.patch(f"/api/v1/nodes/{node.name}", body)
            return ""
        for document in read(self._samples, action.file, action.only):
            await self._client.post(document.collection, msgspec.json.encode(document.body))
        return ""

    def look(self) -> tuple[Sequence[GroupView], Sequence[NodeView], float]:
        return *views(self._app.scheduler), time.monotonic()

    def validate(self) -> None:
        """Recounts the core's promises from scratch. Raises: InvariantError."""
        self._app.scheduler.validate()

    @property
    def server(self) -> str:
        """The address for commands that ask the running scheduler."""
        return f"http://127.0.0.1:{self._app.web_port}"

    @property
    def dashboard(self) -> str:
        """The dashboard's address."""
        return f"{self.server}/dashboard"

    @property
    def is_ready(self) -> bool:
        """Whether the scheduler has received everything that exists."""
        scheduler = self._app.scheduler
        return scheduler.is_synced and scheduler.statistics()["nodes"] == N_NODES


def answer_of(scheduler: Scheduler, group: str, now_s: float) -> str:
    """Returns why the group does not run; "" if there is none of that name."""
    known = (one for key, one in scheduler.shared.groups.items() if key.name == group)
    return next((explain(scheduler, one, now_s).answer for one in known), "")


def remaining_text(left_mbps: int, observed_at: datetime) -> str:
    """Returns what an agent writes of a node whose links have `left_mbps` left, in both directions."""
    left = left_mbps * MEGABYTE
    return remaining_annotation(RemainingBandwidth(left, left, TOTAL_MBPS * MEGABYTE, observed_at))


@asynccontextmanager
async def open_stage(
    *, samples: Path, kubeconfig: Path, port: int, traces: Path | None
) -> AsyncIterator[LiveStage]:
    """Everything is running and synced inside, and nothing of it is left after.

    Raises: ConfigError (port taken, file not writable), StoryFailed (not ready in time).
    """
    async with (
        EmbeddedCluster(nodes=N_NODES, gpus=N_GPUS, racks=N_RACKS, port=port) as cluster,
        _tracing(traces) as tracing,
    ):
        cluster.kubeconfig(kubeconfig)
        credentials = await load_credentials(kubeconfig=str(kubeconfig))
        # The first of equally good nodes, so that the picture is the same each time.
        app = SchedulerApp(_config(), credentials, even_ties=False, tracing=tracing, web=_PAGES)
        async with ApiClient(credentials) as client, anyio.create_task_group() as running:
            running.start_soon(_run, app)
            stage = LiveStage(app, client, samples=samples, url=cluster.url, kubeconfig=kubeconfig)
            try:
                await _until_ready(stage)
                yield stage
            finally:
                with anyio.CancelScope(shield=True):
                    await app.stop(_STOP_S)
                running.cancel_scope.cancel()


def _config() -> SchedulerConfig:
    """The defaults, any Indexed Job is a gang, and starts are promised."""
    config = default_config(IN_TREE)
    inferred = dict.fromkeys(config.settings.infer_gangs, ORDERED)
    settings = msgspec.structs.replace(config.settings, infer_gangs=inferred, queueing=QUEUEING)
    return msgspec.structs.replace(config, settings=settings)


@asynccontextmanager
async def _tracing(path: Path | None) -> AsyncIterator[Tracing | None]:
    """Traces into a file; all traces are there in the end."""
    if path is None:
        yield None
        return
    tracing = Tracing(TracingSettings(file=str(path)))
    try:
        yield tracing
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(tracing.close, _FLUSH_S)


async def _until_ready(stage: LiveStage) -> None:
    deadline_s = time.monotonic() + _READY_S
    while not stage.is_ready:
        if time.monotonic() > deadline_s:
            raise StoryFailed(f"cluster and scheduler were not ready within {_READY_S:.0f} s")
        await anyio.sleep(0.02)


async def _run(app: SchedulerApp) -> None:
    await app.run(on_signals=False)

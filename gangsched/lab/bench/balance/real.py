"""The experiment on real processes: workers are cgroups of this machine, tasks run in them, agents measure.

The scheduler is in this process, as in `embedded`; the agents are processes, and their measurements are
judged, while all tasks run. The ground (`grounds`) starts the tasks: a stand-in for kubelet beside the
embedded API server, or real kubelets on a real one.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec

from gangsched.agent.probes.machine import is_in_memory, read_machine
from gangsched.errors import GangschedError, ParseError
from gangsched.kube.access.credentials import load_credentials
from gangsched.kube.client import ApiClient
from gangsched.lab.bench.balance.embedded import run_pod, scheduler
from gangsched.lab.bench.balance.grounds import Ground, kubelets, processes
from gangsched.lab.bench.balance.model import Algorithm, Kind, Worker, by_kind, judge_shares, utilisation
from gangsched.lab.bench.balance.simulated import Placed
from gangsched.lab.bench.balance.workers import Site, sites
from gangsched.lab.controlplane.daemon import Daemon
from gangsched.load.report import ASSUMED_MHZ
from gangsched.model.objects import Node
from gangsched.model.stated.evenness import MODES, Evenness, Mode
from gangsched.model.stated.load import LOAD_KEY, Utilisation, parse_load
from gangsched.process.app import SchedulerApp

INTERVAL_S = 2.0
WINDOW_S = 1.0
_SCRATCH = Path("/var/tmp")
_PATIENCE_S = 60.0
_LOOK_S = 0.1
_SAMPLE_S = 1.0
# A worker's use is the mean over this long, at the end.
_JUDGED_S = 20.0

_encode = msgspec.json.encode
_decode_node = msgspec.json.Decoder(Node).decode


class RealOutcome(msgspec.Struct):
    """One algorithm's outcome on real processes. used: each worker's mean utilisation as its agent measured
    it.
    stated: the model's values for the same tasks on the same workers. ended: tasks that had stopped, for
    example killed because a worker's memory was full. load_average: the machine's, over the last minute, at
    the end: other programs' activity included.
    """

    algorithm: str
    placed: dict[str, dict[str, int]]
    used: dict[str, Utilisation]
    stated: dict[str, Utilisation]
    evenness: dict[Mode, Evenness]
    stated_evenness: dict[Mode, Evenness]
    ended: list[str]
    seconds: float
    load_average: float


def place(
    algorithm: Algorithm,
    workers: Sequence[Worker],
    tasks: list[Kind],
    *,
    seconds: float,
    on_kubelets: bool = False,
) -> RealOutcome:
    """Places the tasks, lets all of them run for `seconds`, and judges. Raises: GangschedError."""
    with ExitStack() as stack:
        scratch = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="gangsched-bench-", dir=_SCRATCH))
        )
        if is_in_memory(scratch):
            raise GangschedError(f"{_SCRATCH} is in memory: tasks must write to a disk")
        host_mhz = read_machine().mhz or ASSUMED_MHZ
        made = stack.enter_context(sites(workers, host_mhz=host_mhz, scratch=scratch))
        ground = stack.enter_context(kubelets(made, scratch, host_mhz)) if on_kubelets else None
        try:
            return anyio.run(_place, algorithm, made, tasks, seconds, scratch, ground)
        except BaseExceptionGroup as group:
            raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def _place(
    algorithm: Algorithm,
    made: list[Site],
    tasks: list[Kind],
    seconds: float,
    scratch: Path,
    own: Ground | None,
) -> RealOutcome:
    placed: Placed = {site.name: [] for site in made}
    async with AsyncExitStack() as stack:
        ground = await stack.enter_async_context(processes(made, scratch)) if own is None else own
        kubeconfig = ground.kubeconfig
        client = await stack.enter_async_context(
            ApiClient(await load_credentials(kubeconfig=str(kubeconfig)))
        )
        await ground.add_nodes(client)
        await stack.enter_async_context(_agents(made, kubeconfig, scratch))
        await _measured(client, made)
        credentials = await load_credentials(kubeconfig=str(kubeconfig))
        app = await stack.enter_async_context(scheduler(algorithm, credentials, settle_s=WINDOW_S + 0.5))
        await _heard(app, made)
        for number, task in enumerate(tasks):
            name = await run_pod(client, ground.pod(task, number))
            placed[name].append(task)
            site = next(site for site in made if site.name == name)
            ground.placed(site, task, number)
            await _started(site, task, number)
            await anyio.sleep(INTERVAL_S)
        used = await _watch(client, made, seconds)
        ended = await ground.ended(client)
    stated = {site.name: utilisation(site.worker, placed[site.name]) for site in made}
    return RealOutcome(
        algorithm.name,
        {name: by_kind(some) for name, some in placed.items()},
        used,
        stated,
        {mode: judge_shares([used[site.name] for site in made], mode) for mode in MODES},
        {mode: judge_shares([stated[site.name] for site in made], mode) for mode in MODES},
        ended,
        seconds,
        os.getloadavg()[0],
    )


async def _started(site: Site, task: Kind, number: int) -> None:
    file = site.file_of(number)
    with anyio.move_on_after(_PATIENCE_S):
        while not await anyio.to_thread.run_sync(file.exists):  # noqa: ASYNC110 (it tells nobody)
            await anyio.sleep(_LOOK_S)
        return
    raise GangschedError(f"task {number} ({task.name}) did not start on {site.name} within {_PATIENCE_S:g} s")


@asynccontextmanager
async def _agents(made: list[Site], kubeconfig: Path, scratch: Path) -> AsyncIterator[None]:
    """Runs an agent for each worker, outside its cgroup: the agent's use does not count as the tasks'
    load."""
    running: list[Daemon] = []
    try:
        for site in made:
            config = scratch / f"{site.name}.json"
            config.write_bytes(_encode(_agent_config(site)))
            command = [sys.executable, "-m", "gangsched.command.cli", "agent", f"--node-name={site.name}"]
            command += [f"--config={config}", f"--kubeconfig={kubeconfig}", "--nvml=off"]
            log = scratch / f"{site.name}.log"
            env = {**os.environ, "NO_PROXY": "*"}
            running.append(Daemon(f"agent of {site.name}", command, log=log, env=env))
        yield
    finally:
        for agent in running:
            agent.stop()


def _agent_config(site: Site) -> dict[str, object]:
    often = {"periodSeconds": 1, "thresholdPercent": 1}
    return {
        "apiVersion": "gangsched.io/v1",
        "kind": "AgentConfiguration",
        "bandwidth": {"nics": [site.nic], "totalMBps": site.network_mbps},
        "load": {
            "enabled": True,
            "windowSeconds": WINDOW_S,
            **often,
            "cgroup": site.cgroup,
            "diskMBps": site.disk_mbps,
            "cpuMHz": read_machine().mhz or ASSUMED_MHZ,
        },
    }


async def _reported(client: ApiClient, made: list[Site]) -> dict[str, Utilisation]:
    """Returns the last report of each worker's agent, if there is one."""
    found = {}
    for site in made:
        node = _decode_node(await client.get(f"/api/v1/nodes/{site.name}"))
        with suppress(KeyError, ParseError):
            found[site.name] = parse_load((node.metadata.annotations or {})[LOAD_KEY]).utilisation
    return found


async def _measured(client: ApiClient, made: list[Site]) -> None:
    with anyio.move_on_after(_PATIENCE_S):
        while len(await _reported(client, made)) < len(made):  # noqa: ASYNC110 (it is asked)
            await anyio.sleep(_LOOK_S)
        return
    raise GangschedError(f"not every worker's agent reported within {_PATIENCE_S:g} s")


async def _heard(app: SchedulerApp, made: list[Site]) -> None:
    """Waits until the scheduler has every worker's first report."""
    nodes = app.scheduler.shared.cache.nodes
    with anyio.fail_after(_PATIENCE_S):
        while True:
            known = [nodes.nodes[nodes.row_of[site.name]] for site in made if site.name in nodes.row_of]
            heard = [one for one in known if one is not None and LOAD_KEY in (one.metadata.annotations or {})]
            if len(heard) == len(made):
                return
            await anyio.sleep(_LOOK_S)


async def _watch(client: ApiClient, made: list[Site], seconds: float) -> dict[str, Utilisation]:
    """Lets the tasks run; returns the mean use over the last _JUDGED_S of it."""
    end_s = time.monotonic() + seconds
    seen: dict[str, list[Utilisation]] = {site.name: [] for site in made}
    while (left_s := end_s - time.monotonic()) > 0:
        await anyio.sleep(min(_SAMPLE_S, left_s))
        if left_s <= _JUDGED_S:
            for name, used in (await _reported(client, made)).items():
                seen[name].append(used)
    return {name: _mean(samples) for name, samples in seen.items()}


def _mean(samples: list[Utilisation]) -> Utilisation:
    columns = zip(*(one.terms for one in samples), strict=True)
    return Utilisation(*(sum(column) / len(samples) for column in columns))

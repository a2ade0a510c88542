"""Three unequal workers, four kinds of task, what they use, and the algorithms that are compared. Pure.

The model is stated, not measured: a task uses what its kind states from the moment it is bound, a worker's
utilisation is the sum over its tasks, at most 1, and agents report exactly that. Requests cover only cpu and
memory, as in Kubernetes, and differ from the use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np

from gangsched.config import SchedulerConfig, parse_config
from gangsched.extension.loading import KnownPlugins
from gangsched.model.stated.evenness import (
    Evenness,
    Mode,
    evenness,
    largest_terms,
    load_and_strength,
    terms_of,
)
from gangsched.model.stated.load import Performance, Utilisation

MEGA, GIGA = 10**6, 10**9


class Worker(msgspec.Struct, frozen=True):
    """A node."""

    name: str
    performance: Performance


class Kind(msgspec.Struct, frozen=True):
    """A kind of task: what it asks for, and what it uses (GHz, bytes, MB/s)."""

    name: str
    n_tasks: int
    cpu_request: str
    memory_request: str
    cpu_ghz: float
    memory_bytes: float
    network_mbps: float
    disk_mbps: float


class Algorithm(msgspec.Struct, frozen=True):
    """score: the plugins that score, with their args; nothing else does."""

    name: str
    score: Mapping[str, Mapping[str, Any]]


WORKERS = (
    Worker(
        "worker-1", Performance(cores=4, mhz=2400, memory_bytes=8 * GIGA, network_mbps=1250, disk_mbps=400)
    ),
    Worker(
        "worker-2", Performance(cores=8, mhz=2400, memory_bytes=16 * GIGA, network_mbps=125, disk_mbps=200)
    ),
    Worker(
        "worker-3", Performance(cores=16, mhz=3000, memory_bytes=32 * GIGA, network_mbps=312.5, disk_mbps=500)
    ),
)

KINDS = (
    Kind("cpu", 10, "500m", "256Mi", 1.5, 0.2 * GIGA, 1.0, 1.0),
    Kind("memory", 9, "250m", "1Gi", 0.3, 1.5 * GIGA, 1.0, 1.0),
    Kind("network", 8, "250m", "256Mi", 0.3, 0.2 * GIGA, 40.0, 1.0),
    Kind("disk", 8, "250m", "256Mi", 0.3, 0.2 * GIGA, 1.0, 30.0),
)

ALGORITHMS = (
    Algorithm(
        "Kubernetes 1.11",
        {"LeastRequested": {}, "NodeResourcesBalancedAllocation": {"formula": "AsPrinted"}},
    ),
    Algorithm("kube-scheduler today", {"NodeResourcesFit": {}, "NodeResourcesBalancedAllocation": {}}),
    Algorithm("LoadAware without network", {"LoadAware": {"terms": ["cpu", "memory", "disk"]}}),
    Algorithm("LoadAware, literal", {"LoadAware": {"mode": "literal"}}),
    Algorithm("LoadAware, paper", {"LoadAware": {"mode": "paper"}}),
    Algorithm("LoadAware", {"LoadAware": {}}),
)
BASELINE, AS_PRINTED, OURS = (ALGORITHMS[i].name for i in (0, 3, -1))

PLUGINS = KnownPlugins([str(Path(__file__).with_name("published.py"))])
"""All plugins, and the baseline's first score, as `--plugin` loads it."""


def arrivals(seed: int) -> list[Kind]:
    """Returns the tasks in order of arrival; another seed gives another order of the same tasks."""
    tasks = [kind for kind in KINDS for _ in range(kind.n_tasks)]
    Random(seed).shuffle(tasks)
    return tasks


def by_kind(tasks: Sequence[Kind]) -> dict[str, int]:
    """Counts the tasks of each kind."""
    return {kind.name: sum(task.name == kind.name for task in tasks) for kind in KINDS}


def utilisation(worker: Worker, tasks: Sequence[Kind]) -> Utilisation:
    """The utilisation of a worker with these tasks."""
    can = worker.performance
    used = (
        sum(task.cpu_ghz for task in tasks) / (can.cores * can.mhz / 1000),
        sum(task.memory_bytes for task in tasks) / can.memory_bytes,
        sum(task.network_mbps for task in tasks) / can.network_mbps,
        sum(task.disk_mbps for task in tasks) / can.disk_mbps,
    )
    return Utilisation(*(min(1.0, share) for share in used))


def judge(placed: Mapping[str, Sequence[Kind]], mode: Mode) -> Evenness:
    """Computes H of each worker, in their order, by all four terms."""
    return judge_shares([utilisation(worker, placed[worker.name]) for worker in WORKERS], mode)


def judge_shares(used: Sequence[Utilisation], mode: Mode) -> Evenness:
    """The same, from each worker's use."""
    each = [terms_of(worker.performance) for worker in WORKERS]
    shares = np.array([one.terms for one in used]).T
    sums = load_and_strength(shares, np.array(each).T, mode=mode, largest=largest_terms(each))
    return evenness(*sums)


def config(algorithm: Algorithm, **load_args: Any) -> SchedulerConfig:
    """A profile in which no other plugin scores; `load_args` go to LoadAware, where it is used."""
    extra = {"LoadAware": load_args}
    args = [{"name": name, "args": {**own, **extra.get(name, {})}} for name, own in algorithm.score.items()]
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": "gangsched",
                "plugins": {
                    "score": {
                        "disabled": [{"name": "*"}],
                        "enabled": [{"name": name} for name in algorithm.score],
                    }
                },
                "pluginConfig": args,
            }
        ],
    }
    return parse_config(json.dumps(document), source=algorithm.name, plugins=PLUGINS)

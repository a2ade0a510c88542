"""A Cluster whose configuration has queues, as a file would say it."""

from __future__ import annotations

from functools import cache
from typing import Any

from gangsched.config import Settings, parse_config
from gangsched.config.documents import file_with
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import at, make_node, make_pod
from gangsched.model.objects import Pod
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster

GPU = "nvidia.com/gpu"


def settings_of(ours: str) -> tuple[Any, Settings]:
    """(the whole configuration, its settings) of a file with these fields of ours."""
    config = parse_config(file_with(ours), source="f.yaml", plugins=IN_TREE)
    return config, config.settings


# What is read again is another configuration, also where it says the same.
_parsed_once = cache(settings_of)


def queued(ours: str, *, nodes: int = 1, gpus: int = 8, kind: type[Cluster] = Cluster) -> Cluster:
    config, settings = _parsed_once(ours)

    def make(settings: Settings) -> Scheduler:
        wall_ahead_s = at(0).timestamp()
        return Scheduler(build_profiles(config), settings, node_capacity=4, wall_ahead_s=wall_ahead_s)

    c = kind(settings, make=make)
    for i in range(nodes):
        c.node(make_node(f"n{i}", gpus=gpus))
    return c


def reconfigured(c: Cluster, ours: str) -> Cluster:
    config, settings = settings_of(ours)
    return c.reconfigure(settings, build_profiles(config))


def pods(namespace: str, *names: str, gpus: int = 1, **more: Any) -> list[Pod]:
    return [make_pod(name, namespace=namespace, gpus=gpus, **more) for name in names]

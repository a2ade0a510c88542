"""Estimated starts: what is forecast comes true if pods end as they state and nothing else comes."""

from __future__ import annotations

from random import Random
from statistics import median
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings, default_config
from gangsched.config.queueing import QueueingSettings
from gangsched.core.estimates import estimated_starts, in_steps
from gangsched.lab.sim.objects import inventory, make_node, make_pod
from gangsched.model.devices.annotations import INVENTORY_KEY
from gangsched.model.objects import ContainerPort, Pod
from gangsched.model.pod_group import GroupKey
from gangsched.model.walltime import WALLTIME_KEY
from gangsched.plugins import IN_TREE, build_profiles
from tests.support.scenario import Cluster, cluster, gang, with_annotations


def queueing(nodes: int, gpus: int = 8, **more: Any) -> Cluster:
    return cluster(nodes=nodes, gpus=gpus, settings=Settings(queueing=QueueingSettings(**more)))


def job(name: str, pods: int, gpus: int, walltime_s: int) -> list[Any]:
    made = gang(name, pods=pods, gpus=gpus) if pods > 1 else [make_pod(name, gpus=gpus)]
    return with_annotations(made, {WALLTIME_KEY: f"{walltime_s}s"}) if walltime_s else made


def listening(name: str) -> Pod:
    pod = make_pod(name, gpus=0)
    [container] = pod.spec.containers
    return replace(
        pod, spec=replace(pod.spec, containers=(replace(container, ports=(ContainerPort(host_port=80),)),))
    )


def estimates(c: Cluster) -> dict[str, float]:
    return {key.name: at_s for key, at_s in estimated_starts(c.scheduler, c.now_s).items()}


def behind_a_claim() -> Cluster:
    """`large` has a claim on both nodes, of which one is held for 600 s; `passes` waits behind it."""
    c = queueing(2, bound=1, mode="hard").submit(job("holds", 1, 8, 600)).run()
    c.submit(job("large", 2, 8, 100)).run()
    c.submit(job("before", 1, 8, 10)).run()
    c.delete("before").run()
    return c.submit(job("passes", 1, 8, 3600)).run()


def test_a_gang_starts_when_what_runs_ends_and_the_next_when_it_has() -> None:
    c = queueing(2).submit(job("old", 2, 8, 600)).run()
    c.submit(job("first", 2, 8, 300)).run().wait(1.0)
    c.submit(job("second", 1, 8, 50)).run().wait(1.0)
    found = estimates(c)
    assert 601.0 <= found["first"] <= 615.0
    assert 901.0 <= found["second"] <= 935.0


def test_a_small_one_that_fits_beside_is_not_behind_the_large_one() -> None:
    c = queueing(2).submit(job("old", 1, 8, 600), job("half", 1, 6, 60)).run()
    c.submit(job("large", 2, 8, 300)).run().wait(1.0)
    c.submit(job("small", 1, 4, 30)).run()
    found = estimates(c)
    assert found["small"] < 70.0 < 600.0 < found["large"]


def test_nothing_is_reported_where_nothing_ends_or_it_would_not_fit() -> None:
    c = queueing(1).submit(job("old", 1, 8, 600)).run()
    c.submit(job("too-large", 1, 9, 60), job("after", 1, 8, 0)).run().wait(1.0)
    c.submit(job("behind-that", 1, 8, 60)).run()
    assert list(estimates(c)) == ["after"]


def test_a_claim_is_a_claim_and_keeps_its_room_in_estimates() -> None:
    found = estimates(behind_a_claim())
    assert "large" not in found
    assert 701.0 <= found["passes"] <= 725.0


def test_the_room_of_a_late_claim_is_not_free_before_its_group_has_run() -> None:
    """The scheduler may rest for longer than what a claim's group runs for, while people ask."""
    c = behind_a_claim()
    asked_s = 600.0 + 100.0 + 200.0
    [at_s] = estimated_starts(c.scheduler, asked_s).values()
    assert at_s >= asked_s + 100.0


def test_devices_that_are_ill_are_no_room() -> None:
    c = queueing(0).node(make_node("ill", annotations={INVENTORY_KEY: inventory("ill", 8, unhealthy=(7,))}))
    c.submit(job("half", 1, 4, 600)).run()
    c.submit(job("all", 1, 8, 60), job("seven", 1, 7, 60)).run().wait(1.0)
    assert list(estimates(c)) == ["seven"]


def test_nothing_is_reported_of_who_would_fit_now_and_waits_for_something_else() -> None:
    c = queueing(1).submit(job("old", 1, 2, 600)).run()
    c.submit(listening("first"), listening("second"), job("large", 1, 8, 60)).run().wait(1.0)
    assert list(estimates(c)) == ["large"]


def test_without_walltimes_being_read_nothing_is_estimated() -> None:
    c = cluster(nodes=1, gpus=8).submit(job("old", 1, 8, 600)).run().submit(job("next", 1, 8, 60)).run()
    assert not estimates(c)


class Line:
    """Jobs in line on three nodes, each of which ends when it said."""

    def __init__(self, seed: int) -> None:
        rng = Random(seed)
        self.c = queueing(3, 4)
        self.began: dict[str, float] = {}
        for k in range(12):
            pods = rng.choice((1, 1, 2, 3))
            self.c.submit(job(f"job-{k}", pods, rng.randint(1, 4), rng.randint(10, 60))).run()
        self.step()

    def step(self) -> None:
        """A second."""
        for pod in list(self.c.pods.values()):
            name = pod.metadata.name
            if pod.spec.node_name:
                began_s = self.began.setdefault(name, self.c.now_s)
                if self.c.now_s >= began_s + float((pod.metadata.annotations or {})[WALLTIME_KEY][:-1]):
                    self.c.delete(name).run()
        self.c.wait(1.0)

    def start_of(self, name: str) -> float | None:
        return next((s for pod, s in self.began.items() if pod == name or pod.startswith(f"{name}-")), None)


def test_asking_changes_nothing() -> None:
    asked, quiet = Line(7), Line(7)
    for _ in range(60):
        estimates(asked.c)
        asked.step()
        quiet.step()
    assert asked.c.effects == quiet.c.effects


@pytest.mark.parametrize("n_steps", range(12))
@pytest.mark.parametrize("change", ["other profile", "no queueing", "nothing"])
def test_another_configuration_between_two_steps_has_them_begin_again(change: str, n_steps: int) -> None:
    """As a process reads it from its file while it estimates."""
    c = queueing(nodes=1)
    for k in range(4):
        c.submit(job(f"a{k}", 1, 8, 60)).run()
    steps, found = in_steps(c.scheduler, c.now_s), dict[GroupKey, float]()
    profiles, settings = c.profiles(), c.settings
    try:
        for step in range(1_000):
            if step == n_steps:
                name = "other" if change == "other profile" else "gangsched"
                profiles = build_profiles(default_config(IN_TREE, scheduler_name=name))
                settings = Settings() if change == "no queueing" else settings
                c.reconfigure(settings, profiles)
            next(steps)
    except StopIteration as done:
        found = done.value
    assert step >= n_steps
    assert len(found) == (3 if change == "nothing" else 0)


def test_if_all_end_as_stated_most_start_about_when_it_was_estimated() -> None:
    """Not all: where one starts a second later, another may pass it, and all behind them start otherwise."""
    errors = []
    for seed in range(5):
        line = Line(seed)
        found, from_s = estimates(line.c), line.c.now_s
        for _ in range(500):
            line.step()
            if all(line.start_of(name) is not None for name in found):
                break
        for name, at_s in found.items():
            start_s = line.start_of(name)
            assert start_s is not None, f"seed {seed}: {name} was estimated, and never starts"
            errors.append(abs(at_s - start_s) / max(start_s - from_s, 10.0))
    assert len(errors) > 20
    assert median(errors) <= 0.2, sorted(errors)

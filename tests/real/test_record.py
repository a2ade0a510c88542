"""A scheduler on a real kube-apiserver is recorded through churn, kills and a reload, and replayed equal.

Each process has its own journal: those that were killed too, to the last record that was on the disk.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from gangsched.journal.records import Turn
from gangsched.journal.segments import Reader, segments_in
from gangsched.lab.controlplane.daemon import free_ports
from tests.real import replicas
from tests.real.cluster import Cluster
from tests.real.process import Scheduler, service_account, write_config
from tests.real.test_reload import rewrite, says

pytestmark = pytest.mark.real

SEED = 20


def replay(directory: Path, *flags: str) -> str:
    """What it prints; it must end well."""
    done = replicas.replay(directory, *flags)
    assert done.code == 0, done.said
    return done.said


def has_bound(directory: Path) -> bool:
    """Whether the last process' journal has a bind by now."""
    *_, last = segments_in(directory)
    return any(isinstance(one, Turn) and b"BindSucceeded" in bytes(one.events) for one in Reader(last.path))


def churn(cluster: Cluster, rng: Random, names: list[str], n: int) -> None:
    """Gangs come, some too large for now, and others are deleted to make room."""
    for _ in range(n):
        name = f"g{len(names)}"
        names.append(name)
        cluster.gang(name, pods=rng.randint(1, 6), gpus=rng.choice((1, 2, 4)))
        if len(names) > 4 and rng.random() < 0.7:
            gone = names[rng.randrange(len(names) - 1)]
            cluster.delete(*(pod["metadata"]["name"] for pod in cluster.members(gone)))


def test_what_is_left_of_a_long_life_is_replayed_from_the_state_in_it(cluster: Cluster) -> None:
    """Segments of three seconds; the first one is deleted, as it would be one day for its age. With pages, as
    users run it: the core is observed then."""
    print(f"seed {SEED}")
    rng, names = Random(SEED), list[str]()
    directory = cluster.directory / "journal"
    cluster.nodes(4, gpus=8)
    record = {"directory": str(directory), "maxAge": "24s"}
    config = write_config(cluster.directory / "recorded.yaml", record=record, queueing={})
    account = service_account(cluster.plane, cluster.directory / "recorded-account.yaml")
    (port,) = free_ports(1)
    scheduler = Scheduler(config, account, cluster.directory / "recorded.log", port=port)
    cluster.schedulers.append(scheduler)
    says(cluster, scheduler, "synced, scheduling")

    def has_three() -> bool:
        churn(cluster, rng, names, 1)
        return len(segments_in(directory)) >= 3

    cluster.eventually(has_three, "there are three segments")
    scheduler.stop_cleanly()
    first, *_ = segments_in(directory)
    first.path.unlink()
    out = replay(directory)
    ((_, n_events, _, n_binds),) = replicas.numbers_of(out)
    assert n_events > 0 < n_binds, out
    assert "no new segment of the journal" not in scheduler.said


def test_churn_with_kills_and_a_reload_is_replayed_equal(cluster: Cluster) -> None:
    print(f"seed {SEED}")
    rng, names = Random(SEED), list[str]()
    directory = cluster.directory / "journal"
    cluster.nodes(4, gpus=8)

    def started() -> Scheduler:
        return cluster.schedule(record={"directory": str(directory)})

    for _ in range(2):
        scheduler = started()
        says(cluster, scheduler, "synced, scheduling")
        churn(cluster, rng, names, 6)

        def has_bound_by_now() -> bool:
            churn(cluster, rng, names, 1)
            return has_bound(directory)

        cluster.eventually(has_bound_by_now, "a bind is on the disk")
        scheduler.kill()
    scheduler = started()
    churn(cluster, rng, names, 4)
    says(cluster, scheduler, "synced, scheduling")
    config = Path(next(one for one in scheduler.command if one.startswith("--config=")).partition("=")[2])
    rewrite(config, [{"schedulerName": "gangsched"}], settleSeconds=3, ties="roundRobin")
    says(cluster, scheduler, "another configuration is in effect")
    churn(cluster, rng, names, 6)
    for name in names[:-1]:
        cluster.delete(*(pod["metadata"]["name"] for pod in cluster.members(name)))
    last = names[-1]
    cluster.whole(last)
    scheduler.stop_cleanly()

    out = replay(directory)
    found = replicas.numbers_of(out)
    assert len(found) == 3, out
    assert all(n_binds > 0 for *_, n_binds in found), out
    assert out.count("the process was killed, or still runs") == 2
    assert out.count("It ends there: the scheduler stopped.") == 1
    assert f"default/{last} has been bound for" in replay(directory, "--story", last)

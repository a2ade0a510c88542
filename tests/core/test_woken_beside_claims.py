"""Who is tried when a pod ends on a claimed node: the claimer and who can fill in, and not the whole line."""

from __future__ import annotations

import pytest

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.state.line import queue as line
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Pod
from gangsched.model.walltime import WALLTIME_KEY
from tests.support.long import all_but
from tests.support.scenario import Cluster, cluster, gang, with_annotations

# As many as one tenant may have.
N_CLAIMS = 32


def pod(name: str, gpus: int, walltime: str) -> list[Pod]:
    return with_annotations([make_pod(name, gpus=gpus)], {WALLTIME_KEY: walltime})


def n_attempts(c: Cluster, name: str) -> int:
    return c.group(name).attempts


def claimed(n_in_line: int) -> Cluster:
    """32 nodes of 2 GPUs, held one by one for an hour and each claimed whole; in line for one GPU pods
    that run for longer, and behind them one that does not."""
    settings = Settings(queueing=QueueingSettings(1, mode="hard"))
    c = cluster(nodes=N_CLAIMS, gpus=2, settings=settings)
    for k in range(2 * N_CLAIMS):
        c.submit(pod(f"runs-{k}", 1, "1h")).run()
    for k in range(N_CLAIMS):
        c.submit(pod(f"large-{k}", 2, "2h")).run()
    c.node(make_node("other-0", gpus=1)).submit(pod("passes-0", 1, "4h")).run()
    c.node(make_node("other-1", gpus=1)).submit(pod("passes-1", 1, "4h")).run()
    for _ in range(60):
        c.wait(10.0)
        if len(c.claims()) == N_CLAIMS and c.pod("passes-1").spec.node_name:
            break
    assert len(c.claims()) == N_CLAIMS
    assert c.pod("passes-1").spec.node_name
    for k in range(n_in_line):
        c.submit(pod(f"long-{k}", 1, "5h")).run()
    c.submit(pod("short", 1, "10m")).run()
    return c.wait(30.0)


@pytest.mark.parametrize(("n_in_line", "most_pairs"), all_but(1, [(100, 60), (1_000, 20_000)]))
def test_of_a_thousand_in_line_the_claimer_and_who_fills_in_are_tried(
    n_in_line: int, most_pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are more than may be compared with every change: they are alike."""
    monkeypatch.setattr(line, "_MAX_PAIRS", most_pairs)
    c = claimed(n_in_line)
    ends = next(one for one in c.pods.values() if one.metadata.name == "runs-7")
    claim = next(one for one in c.claims().all if one.nodes == (ends.spec.node_name,))
    claimer = claim.unit[0].key.name
    before, n_claimer, n_short = c.count("attempts"), n_attempts(c, claimer), n_attempts(c, "short")
    c.delete("runs-7").run().wait(2.0)
    assert c.pod("short").spec.node_name == ends.spec.node_name
    assert n_attempts(c, "short") == n_short + 1
    assert n_attempts(c, claimer) > n_claimer
    assert c.count("attempts") - before <= 4, "nobody else was"


def test_once_the_claim_is_gone_the_next_in_line_gets_the_room() -> None:
    c = claimed(50)
    c.delete("short").run()
    node = c.pod("runs-7").spec.node_name
    claim = next(one for one in c.claims().all if one.nodes == (node,))
    c.delete("runs-7").run()
    assert not c.pod("long-0").spec.node_name
    c.delete(claim.unit[0].key.name).run().wait(20.0)
    assert c.pod("long-0").spec.node_name == node


def test_who_has_room_beside_a_claim_once_less_important_pods_go_is_tried() -> None:
    c = cluster(nodes=2, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(make_pod("holds", gpus=8, priority=10)).run()
    c.submit(make_pod("low", gpus=4), make_pod("ends", gpus=2, priority=10)).run()
    both = [
        make_pod(f"big-{k}", group="big", min_members=2, gpus=n, priority=10) for k, n in enumerate((8, 4))
    ]
    c.submit(both).run()
    c.submit(make_pod("passes", gpus=1, priority=10)).run().wait(10.0)
    c.submit(make_pod("may-not", gpus=1, priority=10, preempts=False)).run().wait(10.0)
    assert len(c.claims()) == 1
    c.submit(make_pod("next", gpus=2, priority=10)).run().wait(60.0)
    assert not c.pod("next").spec.node_name
    c.delete("ends").run().wait(30.0)
    assert c.pod("next").spec.node_name
    assert "low" not in {pod.metadata.name for pod in c.pods.values()}


def test_claims_that_stay_have_no_group_tried_again_and_again() -> None:
    """Four gangs wait for the same three nodes, of which two are free, and for an hour nothing happens."""
    c = cluster(nodes=3, gpus=8, settings=Settings(queueing=QueueingSettings(1, mode="hard")))
    c.submit(pod("runs", 8, "3h")).run()
    for k in range(4):
        c.submit(with_annotations(gang(f"waits-{k}", pods=3, gpus=8), {WALLTIME_KEY: "1h"})).run()
    for k in range(6):
        c.submit(pod(f"passes-{k}", 8, "1m")).run().wait(10.0).delete(f"passes-{k}").run()
    assert len(c.claims()) == 4
    view = c.view()
    c.wait(300.0)
    before, journal_end = c.count("attempts"), view.journal_end
    c.wait(3600.0)
    assert view.journal_end == journal_end, "nothing has changed"
    assert c.count("attempts") - before == 4 * 3600.0 / 300.0, "each is tried every 300 s, and no more"

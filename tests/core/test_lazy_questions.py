"""Asking fewer questions, and verdicts that are kept up: the same placements as without any of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
import pytest

from gangsched.core.cache.node_info import NodeInfo
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.cycle.choosing.packing import Batch, pack
from gangsched.core.cycle.placing import Placing
from gangsched.core.framework.filters.per_node import NodeInfos
from gangsched.core.framework.interface import SUCCESS, CycleState, FloatArray, IntArray, Status
from gangsched.core.framework.plugin_calls import guarded
from gangsched.core.framework.scores.scoring import Scoring
from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model.objects import Pod
from tests.core.plugins import with_plugins
from tests.core.rules import parse
from tests.core.test_search_in_tree import _random_rules, member
from tests.plugins import build
from tests.support.long import all_but
from tests.support.scenario import Cluster


class Fussy:
    """Filter and Score of single nodes: a lot drawn by node and number of pods there."""

    name = "Fussy"

    def __init__(self, seed: int, *, lets: float, scores: Sequence[float], sees_pods: bool) -> None:
        self.seed = seed
        self.lets = lets
        self.scores = scores
        self.sees_pods = sees_pods
        self.n_asked = 0
        self.weight = 1.0

    def _lot(self, what: str, node_info: NodeInfo) -> Random:
        self.n_asked += 1
        n = len(node_info.pods) if self.sees_pods else 0
        return Random(f"{self.seed}-{what}-{node_info.name}-{n}")

    def filter_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> Status:
        is_let = self._lot("lets", node_info).random() < self.lets
        return SUCCESS if is_let else Status.unschedulable("node(s) lost")

    def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
        return self._lot("scores", node_info).choice(self.scores)


class Steps:
    """A Score of whole tens, so that sums with those of Fussy are often equal, against everybody else."""

    name = "Steps"
    score_by_row = True
    weight = 1.0

    def score(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        return np.array([10.0, 0.0, 30.0, 20.0])[rows % 4]


def _cluster(seed: int) -> tuple[Cluster, list[Fussy]]:
    """The same for the same seed."""
    rng = Random(f"lazy-{seed}")
    n_nodes = rng.choice((3, 20, 60))
    plugins = [
        Fussy(
            seed,
            lets=rng.choice((0.2, 0.7, 1.0)),
            scores=rng.choice(((100.0,), (0.0, 50.0, 100.0), (10.0, 20.0, 30.0))),
            sees_pods=rng.random() < 0.7,
        )
    ]
    plugins[0].weight = rng.choice((1.0, 1000.0))
    c = with_plugins(*plugins if rng.random() < 0.9 else (), *[Steps()] * (rng.random() < 0.5), nodes=0)
    rooms = rng.choice(((4,), (2, 3, 4), tuple(range(1, 12))))
    for i in range(n_nodes):
        c.node(make_node(f"n{i:02}", gpus=0, cpu=rng.choice(rooms), rack=f"r{rng.randrange(6)}"))
    for k in range(rng.randint(1, 4)):
        n, sizes = rng.choice((1, 2, 3, 8)), rng.choice(((1,), (2,), (1, 2)))
        rules = parse(_random_rules(rng)) if rng.random() < 0.5 else None
        more: dict[str, Any] = {"group": f"g{k}", "min_members": n}
        for m in range(n):
            name, cpu = f"g{k}-{m}", sizes[m % len(sizes)]
            c.submit(
                make_pod(name, gpus=0, cpu=str(cpu), **more)
                if rules is None
                else member(name, rules, cpu=cpu, **more)
            )
    return c, plugins


def _where(c: Cluster) -> dict[str, str]:
    c.run()
    return {key: pod.spec.node_name or "" for key, pod in sorted(c.pods.items())}


class _Plain:
    """The parts that are done cleverly, as they are described."""

    @staticmethod
    def kept(trial: Trial, key: object, make: Any) -> Any:
        return make()

    @staticmethod
    def best(
        scoring: Scoring,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        lets: Any = None,
    ) -> int | None:
        rows = rows if lets is None else rows[lets(rows)]
        scores = scoring.score(state, template, view, rows) if len(rows) > 1 else None
        return int(rows[0 if scores is None else scores.argmax()]) if len(rows) else None

    @staticmethod
    def packed(
        placing: Placing,
        template: PodTemplate,
        state: CycleState,
        room: IntArray,
        n_members: int,
        *,
        n_least: int = 0,
    ) -> list[tuple[int, int]]:
        """With everybody's verdict on every node beforehand, and scores also where too few fit."""
        profile, trial = placing.demand.profile, placing.trial
        room = profile.capacity(state, template, trial)
        key = placing._topology_key
        return pack(Batch(state, template, trial, profile, key), room, n_members, placing.used)

    @staticmethod
    def one_by_one(
        placing: Placing, template: PodTemplate, members: Sequence[PodInfo], state: CycleState
    ) -> int:
        """Every Filter asked about every node before each member."""
        filtering, trial = placing.demand.profile.filtering, placing.trial
        score = placing.demand.profile.score
        room = filtering.capacity(state, template, trial)
        plan = deque(row for row, n in placing.packed(template, state, room, len(members)) for _ in range(n))
        ranked: IntArray | None = None
        last, here = -1, 0
        for n_placed, info in enumerate(members):
            room = filtering.capacity(state, template, trial)
            row = plan.popleft() if plan and ranked is None else -1
            here = here if row == last else 0
            if ranked is None and (row < 0 or not room[row]):
                ceiling = filtering.static_capacity(state, template, trial)
                rows = np.flatnonzero(ceiling > 0)
                scores = score(state, template, trial, rows) if len(rows) else None
                rank = np.zeros(len(rows)) if scores is None else -scores
                most = np.minimum(ceiling[rows], max(here, 1))
                ranked = rows[np.lexsort((rows, rank, ceiling[rows], -most))]
            if ranked is not None:
                free = [one for one in (*placing.used, *ranked.tolist()) if room[one]]
                if not free:
                    return n_placed
                row = free[0]
            last, here = row, here + 1
            placing.put(row, template, [info])
        return len(members)


@pytest.mark.parametrize("block", all_but(1, range(10)))
def test_placements_are_those_of_asking_everybody_each_time(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_asked = n_asked_by_plain = 0
    for seed in range(block * 12, block * 12 + 12):
        c, plugins = _cluster(seed)
        found = _where(c)
        n_asked += sum(plugin.n_asked for plugin in plugins)
        with monkeypatch.context() as patch:
            patch.setattr(Trial, "kept", _Plain.kept)
            patch.setattr(Scoring, "best", _Plain.best)
            patch.setattr(Scoring, "_scores_at_once", lambda *_: None)
            patch.setattr(Placing, "packed", _Plain.packed)
            patch.setattr(Placing, "_one_by_one", _Plain.one_by_one)
            plain, plugins = _cluster(seed)
            assert found == _where(plain), f"seed {seed}"
            n_asked_by_plain += sum(plugin.n_asked for plugin in plugins)
    assert n_asked < n_asked_by_plain


def test_the_best_is_the_first_of_the_highest_sums_whatever_was_not_asked() -> None:
    class Halves:
        name = "Halves"
        score_by_row = True

        def score(
            self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
        ) -> FloatArray | None:
            return halves[rows]

    class OneByOne:
        name = "OneByOne"
        n_asked = 0

        def score_node(self, state: CycleState, pod: Pod, node_info: NodeInfo) -> float:
            self.n_asked += 1
            return float(lots[node_info.row])

    c = build.Cluster(*(build.node(f"n{i}") for i in range(60)))
    n_asked = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        halves = rng.choice([[0.0, 50.0], [0.0, 50.0, 100.0], [50.0]][seed % 3], 60)
        lots = rng.choice([0.0, 50.0, 100.0], 60, p=[[0.5, 0.5, 0.0], [0.1, 0.8, 0.1]][seed % 2])
        lets = rng.random(60) < rng.choice([0.1, 0.8, 1.0])
        rows = np.flatnonzero(rng.random(60) < 0.9)
        plugin = OneByOne()
        scoring = Scoring(
            [(Halves(), 1.0), (plugin, 1.0)], (), is_observed=frozenset(), infos=NodeInfos(), ask=guarded
        )
        found = scoring.best(c.state, c.template(), c.view, rows, lambda some: lets[some])  # noqa: B023
        sums = np.where(lets[rows], halves[rows] + lots[rows], -1.0)
        right = int(rows[sums.argmax()]) if lets[rows].any() else None
        assert found == right, f"seed {seed}"
        n_asked += plugin.n_asked
    assert n_asked < 300 * 60 / 2

"""Shares over time: days of two teams with more work than room, in virtual time; seeds are printed."""

from __future__ import annotations

import heapq
import random

import pytest

from tests.core.queued import book, pods, queued

TREE = """
fairness: {{halfLife: 24h, compare: [nvidia.com/gpu]}}
queues:
- {{name: a, share: {a}, namespaces: [a]}}
- {{name: b, share: {b}, namespaces: [b]}}
"""
HOUR_S = 3600.0
GPUS = 16


class Teams:
    """A cluster of 16 GPUs; each team that is at work always has pods in line, of 1 to 4 GPUs."""

    def __init__(self, seed: int, *, a: float, b: float, mean_s: float) -> None:
        self.rng = random.Random(seed)
        self.mean_s = mean_s
        self.cluster = queued(TREE.format(a=a, b=b), nodes=4, gpus=4)
        self.now_s = 0.0
        self.ends: list[tuple[float, str]] = []
        self.running: dict[str, tuple[str, int]] = {}
        self.waiting: dict[str, dict[str, int]] = {"a": {}, "b": {}}
        self.used_s = {"a": 0.0, "b": 0.0}
        self.n = 0

    def work(self, until_s: float, *teams: str) -> dict[str, float]:
        """These teams are at work; returns the GPU seconds that each has had meanwhile."""
        before = dict(self.used_s)
        while self.now_s < until_s:
            for team in teams:
                while len(self.waiting[team]) < 6:
                    self.n += 1
                    name, gpus = f"{team}{self.n}", self.rng.choice([1, 1, 2, 4])
                    self.waiting[team][name] = gpus
                    self.cluster.submit(pods(team, name, gpus=gpus))
            self.cluster.run()
            self._note_started()
            then_s = min(until_s, self.ends[0][0] if self.ends else until_s)
            for team, gpus in self.running.values():
                self.used_s[team] += gpus * (then_s - self.now_s)
            self.cluster.wait(then_s - self.now_s)
            self.now_s = then_s
            while self.ends and self.ends[0][0] <= self.now_s:
                _, name = heapq.heappop(self.ends)
                del self.running[name]
                self.cluster.delete(name)
            self._note_started()
        return {team: self.used_s[team] - before[team] for team in self.used_s}

    def end_all(self) -> None:
        """Whatever runs ends now."""
        self.cluster.delete(*self.running)
        self.running, self.ends = {}, []

    def _note_started(self) -> None:
        for team, names in self.waiting.items():
            for name in [name for name in names if self.cluster.pod(name).spec.node_name]:
                self.running[name] = (team, names.pop(name))
                runs_s = self.rng.uniform(0.5, 1.5) * self.mean_s
                heapq.heappush(self.ends, (self.now_s + runs_s, name))


@pytest.mark.parametrize("seed", range(2))
def test_two_saturated_teams_share_two_to_one_over_a_day(seed: int) -> None:
    teams = Teams(seed, a=2, b=1, mean_s=2 * HOUR_S)
    had = teams.work(24 * HOUR_S, "a", "b")
    x = [had["a"] / 2, had["b"] / 1]
    jain = sum(x) ** 2 / (2 * sum(one * one for one in x))
    print(f"seed {seed}: {had}, Jain {jain:.4f}")
    assert jain >= 0.97, f"seed {seed}"


@pytest.mark.parametrize(("seed", "mean_s"), [(1, 180.0), (2, 900.0)])
def test_a_team_back_after_a_week_does_not_take_the_cluster(seed: int, mean_s: float) -> None:
    """All pods of the week end as it comes back, and so it could have everything at once."""
    teams = Teams(seed, a=1, b=1, mean_s=24 * HOUR_S)
    teams.work(7 * 24 * HOUR_S, "a")
    assert book(teams.cluster).decayed("a", teams.cluster.now_s) > 0.9
    teams.end_all()
    teams.mean_s = mean_s
    had = teams.work(teams.now_s + HOUR_S, "a", "b")
    part = had["b"] / (had["a"] + had["b"])
    print(f"seed {seed}, pods of {mean_s:g} s: {part:.3f} of the cluster in the first hour")
    assert 0.40 <= part <= 0.60, f"seed {seed}"

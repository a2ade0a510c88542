"""Forecasts: estimated starts are written on the gang's object, apart from promises, and compared later."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from gangsched.core.estimates import estimated_starts
from gangsched.core.explaining.explain import explain
from gangsched.core.groups.attempts.forecasts import RATIOS
from gangsched.lab.sim.objects import make_pod, make_pod_group
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.model.effects import START_PROMISED
from gangsched.model.objects import SchedulingGroup
from gangsched.model.owners import ORDERED
from gangsched.model.walltime import WALLTIME_KEY
from tests import controllers as made
from tests.support.scenario import Cluster, cluster, lone, with_annotations


def queueing(*, nodes: int = 2, **more: Any) -> Cluster:
    return cluster(nodes=nodes, gpus=8, settings=Settings(queueing=QueueingSettings(**more)))


def submit_gang(
    c: Cluster, name: str, pods: int, status: Mapping[str, Any] | None = None, *, is_run: bool = True
) -> None:
    item = make_pod_group(name, spec={"schedulingPolicy": {"gang": {"minCount": pods}}})
    c.object("core", replace(item, status=dict(status or {})))
    member = SchedulingGroup(pod_group_name=name)
    made = with_annotations([make_pod(f"{name}-{k}", gpus=8) for k in range(pods)], {WALLTIME_KEY: "300s"})
    c.submit([replace(pod, spec=replace(pod.spec, scheduling_group=member)) for pod in made])
    if is_run:
        c.run()


def estimate(c: Cluster) -> None:
    """As the edge does it."""
    c.tell(ev.StartsEstimated(c.now_s, tuple(sorted(estimated_starts(c.scheduler, c.now_s).items()))))


def conditions(c: Cluster, name: str) -> list[dict[str, Any]]:
    """What was written of a gang's start, each time that it changed."""
    written = [one.status for one in c.all(ef.WritePodGroupStatus) if one.name == name]
    found = [dict(one) for status in written for one in status["conditions"] if one["type"] == START_PROMISED]
    return [one for one, before in zip(found, [None, *found], strict=False) if one != before]


def test_a_gang_that_waits_is_told_about_when_it_starts() -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    assert not conditions(c, "large")
    estimate(c)
    [said] = conditions(c, "large")
    assert (said["status"], said["reason"]) == ("False", "Forecast")
    assert said["message"] == (
        "An estimate: it starts about 2026-01-01 00:11 UTC if nothing else comes; no room is kept for it."
    )
    assert said["message"] in explain(c.scheduler, c.group("large"), c.now_s).answer
    assert "estimate" not in c.said("large-0")


def test_one_that_was_not_tried_yet_is_told_nothing() -> None:
    c = queueing()
    submit_gang(c, "large", 2, is_run=False)
    estimate(c)
    assert not conditions(c, "large")
    assert c.run().placed("large")


def test_it_is_reported_again_only_if_it_changes_much() -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    for _ in range(10):
        estimate(c)
        c.wait(10.0)
    assert len(conditions(c, "large")) == 1
    c.update(with_annotations([c.pod("old")], {WALLTIME_KEY: "7200s"})[0])
    for _ in range(10):
        estimate(c)
        c.wait(10.0)
    assert [one["message"][:49] for one in conditions(c, "large")] == [
        "An estimate: it starts about 2026-01-01 00:11 UTC",
        "An estimate: it starts about 2026-01-01 02:01 UTC",
    ]


def test_what_can_no_longer_be_estimated_is_not_reported_any_more() -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    estimate(c)
    c.node(replace(c.nodes["n1"], spec=replace(c.nodes["n1"].spec, unschedulable=True))).run().wait(70.0)
    estimate(c)
    assert [one["reason"] for one in conditions(c, "large")] == ["Forecast", "Unknown"]
    assert "estimate" not in explain(c.scheduler, c.group("large"), c.now_s).answer


def test_a_claim_takes_the_place_of_an_estimate_and_they_are_never_mixed() -> None:
    c = queueing(bound=1, mode="hard").submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    estimate(c)
    c.submit(lone("before", 8, "10s")).run()
    c.delete("before").run()
    c.submit(lone("passes", 8, "2h")).run().wait(2.0)
    estimate(c)
    c.wait(61.0)
    estimate(c)
    assert [(one["status"], one["reason"]) for one in conditions(c, "large")] == [
        ("False", "Forecast"),
        ("True", "Claimed"),
    ]
    assert explain(c.scheduler, c.group("passes"), c.now_s).answer.startswith("An estimate: it starts about")
    c.delete("old").run()
    assert c.placed("large")
    assert conditions(c, "large")[-1]["reason"] == "Started"
    forecasts = c.scheduler.attempts.forecasts
    assert sum(forecasts.ratios) == 0, "the claim's start says nothing about the estimate"


def test_a_start_says_how_good_its_first_estimate_was() -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    estimate(c)
    c.wait(240.0)
    estimate(c)
    c.delete("old").run().wait(15.0)
    assert c.placed("large")
    forecasts = c.scheduler.attempts.forecasts
    assert sum(forecasts.ratios) == 1
    assert forecasts.ratios[RATIOS.index(0.5)] == 1
    assert 0.38 <= forecasts.total_ratio <= 0.43
    assert [one["reason"] for one in conditions(c, "large")] == ["Forecast", "Started"]


def test_the_next_leader_takes_back_what_the_last_one_estimated() -> None:
    c = queueing()
    said = {"type": START_PROMISED, "status": "False", "reason": "Forecast", "message": "An estimate: …"}
    submit_gang(c, "large", 2, {"conditions": [said]})
    assert c.placed("large")
    assert conditions(c, "large")[-1]["reason"] == "Started"


def test_groups_that_are_gone_or_replaced_get_no_estimate() -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    found = tuple(estimated_starts(c.scheduler, c.now_s).items())
    c.delete("large-0", "large-1", "old").run()
    submit_gang(c, "large", 2)
    c.tell(ev.StartsEstimated(c.now_s, found))
    assert not conditions(c, "large")


@pytest.mark.parametrize(("deadline_s", "is_warned"), [(900, True), (1500, False)])
def test_a_job_whose_deadline_runs_out_while_it_waits_is_warned_about_once(
    deadline_s: int, is_warned: bool
) -> None:
    """It began at 1 s, and starts after 600 s: 5 of 15 minutes are left, or 15 of 25."""
    settings = Settings(queueing=QueueingSettings(), infer_gangs={"gangsched": ORDERED})
    c = cluster(nodes=1, gpus=8, settings=settings).submit(lone("old", 8, "600s")).run()
    job = made.job("a", parallelism=1, status={"startTime": "2026-01-01T00:00:01Z"})
    job["spec"]["activeDeadlineSeconds"] = deadline_s
    c.tell(ev.OwnerPut(made.owner(job))).submit(made.decoded(made.job_pods("a", 1))).run()
    estimate(c)
    c.wait(70.0)
    estimate(c)
    found = [one.message for one in c.all(ef.RecordEvent) if one.reason == "DeadlineWhileWaiting"]
    assert len(found) == is_warned
    if is_warned:
        assert "5 of 15 minutes are left until Job d/a is ended" in found[0]


def test_when_a_job_began_changes_no_gang() -> None:
    settings = Settings(infer_gangs={"gangsched": ORDERED})
    c = cluster(nodes=1, gpus=8, settings=settings).submit(lone("old", 8)).run()
    job = made.job("a", parallelism=1)
    job["spec"]["activeDeadlineSeconds"] = 900
    c.tell(ev.OwnerPut(made.owner(job))).submit(made.decoded(made.job_pods("a", 1))).run()
    began = made.owner({**job, "status": {"startTime": "2026-01-01T00:00:01Z"}})
    assert not c.scheduler.owners.put(ev.OwnerPut(began))
    found = c.scheduler.owners.owner(c.group("a").key)
    assert found == began


def test_without_queueing_an_estimate_is_nothing() -> None:
    c = cluster(nodes=1, gpus=8).submit(lone("old", 8, "600s")).run().submit(lone("next", 8, "60s")).run()
    n_before = len(c.effects)
    c.tell(ev.StartsEstimated(c.now_s, ((c.group("next").key, 700.0),)))
    assert len(c.effects) == n_before


# -- ranges ----------------------------------------------------------------------------------------------


def started_after(c: Cluster, *shares: float) -> Cluster:
    """Jobs that were estimated to start in 1000 s, one after the other, each after so much of that."""
    for share in shares:
        k = c.count("groups_bound")
        c.submit(lone(f"before-{k}", 8, "1000s")).run().submit(lone(f"behind-{k}", 8, "1000s")).run()
        estimate(c)
        c.wait(1000.0 * share).delete(f"before-{k}").run().wait(15.0)
        assert c.pod(f"behind-{k}").spec.node_name
        c.delete(f"behind-{k}").run()
    return c


SHARES = tuple(k / 10 for k in range(1, 21))


@pytest.mark.parametrize("how", ["a reload", "another process"])
def test_what_was_estimated_is_taken_back_where_nothing_is_any_more(how: str) -> None:
    c = queueing().submit(lone("old", 8, "600s")).run()
    submit_gang(c, "large", 2)
    estimate(c)
    [said] = conditions(c, "large")
    if how == "a reload":
        c.reconfigure(Settings())
    else:
        c.objects["core", "large"] = replace(c.objects["core", "large"], status={"conditions": [said]})
        c.settings = Settings()
        c.restart()
    c.run().wait(2.0)
    assert conditions(c, "large")[-1]["reason"] == "Unknown"
    assert "estimate" not in explain(c.scheduler, c.group("large"), c.now_s).answer
    c.delete("old").run().wait(2.0)
    assert c.placed("large")
    assert conditions(c, "large")[-1]["reason"] == "Started"


def test_after_twenty_starts_a_range_is_given_that_most_of_them_kept() -> None:
    c = started_after(queueing(nodes=1), *SHARES[:19])
    assert c.scheduler.attempts.forecasts.range_s(100.0) is None
    started_after(c, SHARES[19])
    found = c.scheduler.attempts.forecasts.range_s(100.0)
    assert found is not None
    assert found == pytest.approx((20.0, 190.0), abs=3.0), "of the twenty, one at either end is left out"
    assert c.scheduler.attempts.forecasts.range_s(5.0) is None, "none of them was to start so soon"


def test_the_range_is_reported_with_the_estimate_and_is_no_reason_to_tell_it_again() -> None:
    c = started_after(queueing(nodes=1), *SHARES)
    c.submit(lone("old", 8, "6000s")).run()
    submit_gang(c, "next", 1)
    estimate(c)
    [said] = conditions(c, "next")
    assert said["message"].startswith("An estimate: it starts about 2026-01-01 ")
    between = said["message"].partition(", four in five between ")[2]
    early, late = between.removesuffix(" UTC, if nothing else comes; no room is kept for it.").split(" and ")
    about = said["message"].removeprefix("An estimate: it starts about 2026-01-01 ")[:5]
    assert _minutes(about) - _minutes(early) == pytest.approx(80, abs=3), "a fifth of 100 minutes"
    assert _minutes(late) - _minutes(about) == pytest.approx(90, abs=5), "nearly twice as long"
    assert said["message"] in explain(c.scheduler, c.group("next"), c.now_s).answer
    c.scheduler.attempts.forecasts._last.extend([0.9] * 50)
    c.scheduler.attempts.forecasts._spread = None
    for _ in range(10):
        c.wait(30.0)
        estimate(c)
    assert len(conditions(c, "next")) == 1
    c.wait(11_400.0)
    assert "four in five" not in explain(c.scheduler, c.group("next"), c.now_s).answer, "it is later"


def _minutes(clock: str) -> int:
    hours, minutes = clock.split(":")
    return 60 * int(hours) + int(minutes)


def test_another_day_is_named() -> None:
    c = started_after(queueing(nodes=1), *SHARES)
    c.submit(lone("old", 8, "20h")).run()
    submit_gang(c, "next", 1)
    estimate(c)
    words = conditions(c, "next")[-1]["message"]
    assert "about 2026-01-02 02:00 UTC, four in five between 2026-01-01 09:5" in words
    assert " and 2026-01-02 19:" in words, "on the day of the estimate, but the other end is not"


def test_the_last_hundred_starts_count() -> None:
    c = started_after(queueing(nodes=1), *SHARES)
    forecasts = c.scheduler.attempts.forecasts
    started_after(c, *[1.0] * 100)
    found = forecasts.range_s(1000.0)
    assert found is not None
    assert found == pytest.approx((1000.0, 1000.0), rel=0.02)
    assert (len(forecasts._last), sum(forecasts.ratios)) == (100, 120)


class Town:
    """Jobs that come at random to four nodes of 8, and state up to `over` times as long as they run."""

    def __init__(self, seed: int, n_jobs: int, *, over: float, load: float) -> None:
        self._rng, self._over, self._load = Random(seed), over, load
        self.c = queueing(nodes=4)
        self._run_s = {f"job-{k}": self._rng.uniform(120.0, 1800.0) for k in range(n_jobs)}
        self._to_come = [*self._run_s]
        self._ends: list[tuple[float, str]] = []
        self._began: set[str] = set()
        self._told: dict[str, tuple[float, float]] = {}
        """By job: the first range that it was told."""
        self.held: list[bool] = []
        comes_s = estimates_s = self.c.now_s
        while self._to_come or self._ends or len(self._began) < n_jobs:
            next_s = [estimates_s, *(one for one, _ in self._ends[:1])] + [comes_s] * bool(self._to_come)
            self.c.wait(max(min(next_s) - self.c.now_s, 0.0))
            while self._ends and self._ends[0][0] <= self.c.now_s:
                self.c.delete(heapq.heappop(self._ends)[1]).run()
            if self._to_come and comes_s <= self.c.now_s:
                comes_s += self._come()
            self._start()
            if estimates_s <= self.c.now_s:
                estimates_s += 30.0
                self._estimate()

    def _come(self) -> float:
        """When the next one does."""
        name = self._to_come.pop(0)
        stated_s = int(self._run_s[name] * self._rng.uniform(1.0, self._over)) + 1
        self.c.submit(lone(name, self._rng.choice((2, 4, 8, 8)), f"{stated_s}s")).run()
        return self._rng.expovariate(self._load / 165.0)

    def _start(self) -> None:
        for pod in self.c.pods.values():
            name, now_s = pod.metadata.name, self.c.now_s
            if pod.spec.node_name and name not in self._began:
                self._began.add(name)
                heapq.heappush(self._ends, (now_s + self._run_s[name], name))
                if (told := self._told.get(name)) is not None:
                    self.held.append(told[0] <= now_s <= told[1])

    def _estimate(self) -> None:
        estimate(self.c)
        for key, one in self.c.scheduler.attempts.forecasts._known.items():
            if one.between_s is not None:
                self._told.setdefault(key.name.partition("#")[0], one.between_s)


@pytest.mark.long
def test_about_four_in_five_start_within_the_first_range_reported() -> None:
    held = Town(1, 120, over=4.0, load=1.15).held
    assert len(held) > 50
    assert 0.7 <= sum(held) / len(held) <= 0.95

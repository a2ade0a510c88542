"""A plugin that takes too long is stopped in its own code, named, and costs its pod this attempt."""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gangsched.config import Settings, parse_config
from gangsched.core.framework.plugin_calls import PluginError
from gangsched.core.scheduler import Scheduler
from gangsched.extension.loading import KnownPlugins
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.model import effects as ef
from gangsched.plugins import build_profiles
from tests.support.scenario import Cluster, gang

BUDGET_S = 0.1
HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def cluster_with(tmp_path: Path, source: str, *, budget_s: float = BUDGET_S) -> tuple[Cluster, KnownPlugins]:
    """A cluster of four nodes whose profile has the plugin Own of `source`."""
    path = tmp_path / "own.py"
    path.write_text(
        "import asyncio, gc, itertools, sys, time\n"
        "from gangsched.plugin import SUCCESS, Status\n"
        "class Own:\n    name = 'Own'\n" + textwrap.indent(textwrap.dedent(source), "    ")
    )
    known = KnownPlugins([str(path)], budget_s=budget_s)
    text = HEAD + "profiles: [{schedulerName: gangsched, plugins: {multiPoint: {enabled: [{name: Own}]}}}]"

    def make(settings: Settings) -> Scheduler:
        config = parse_config(text, source="", plugins=known)
        return Scheduler(build_profiles(config, known.factories), settings)

    c = Cluster(make=make)
    for i in range(4):
        c.node(make_node(f"n{i}", gpus=8))
    return c, known


FOREVER = {
    "Filter": "def filter(self, state, template, view):\n    while True: pass\n"
    "def reasons(self, *a): return ()",
    "PreFilter": "def pre_filter(self, state, template, view):\n    time.sleep(3600)",
    "PreFilter, asked whether it concerns a pod": "def concerns(self, template):\n    while True: pass\n"
    "def pre_filter(self, state, template, view):\n    return SUCCESS",
    "Filter, while its reasons are read": "def filter(self, state, template, view):\n"
    "    return view.live & False\n"
    "def reasons(self, state, template, view):\n    while True: yield 'no', view.live",
    "Score": "def score_node(self, state, pod, node_info):\n    while True: pass",
    "Reserve": "def reserve(self, state, group, placements):\n    for _ in itertools.count(): pass\n"
    "def unreserve(self, group, infos): pass",
    "Permit": "def permit(self, group, siblings):\n    try:\n        while True: pass\n"
    "    except Exception:\n        return SUCCESS",
}


@pytest.mark.parametrize("point", FOREVER)
def test_a_plugin_that_never_answers_costs_its_gang_this_attempt(tmp_path: Path, point: str) -> None:
    c, known = cluster_with(tmp_path, FOREVER[point])
    c.submit(gang("a", pods=2)).run()
    known.budget.turn_ended()
    assert c.untouched("a")
    assert c.state("a") == "unschedulable"
    point = point.partition(",")[0]
    assert f"plugin Own failed in {point}: took longer than 0.1 s" in c.said("a-0")
    assert {(b.plugin, b.point) for b in c.all(ef.BlamePlugin)} == {("Own", point)}
    assert c.scheduler.statistics()["reservations"] == 0


def test_a_plugin_is_not_stopped_in_what_python_runs_as_it_collects_garbage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception there is printed and lost, and the plugin would go on for another budget."""
    lost: list[Any] = []

    def takes_long(phase: str, _: Any) -> None:
        until_s = time.monotonic() + 3 * BUDGET_S
        while time.monotonic() < until_s:
            pass

    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    source = "def pre_filter(self, state, template, view):\n    gc.collect()\n    while True: pass"
    c, known = cluster_with(tmp_path, source)
    gc.callbacks.append(takes_long)
    try:
        c.submit(gang("a", pods=2)).run()
    finally:
        gc.callbacks.remove(takes_long)
        known.budget.turn_ended()
    assert "plugin Own failed in PreFilter: took longer than 0.1 s" in c.said("a-0")
    assert not lost


ENDS = {
    "PreFilter": ("def pre_filter(self, state, template, view):\n    sys.exit('bad')", "SystemExit: bad"),
    "Filter": ("def filter_node(self, state, pod, node_info):\n    sys.exit(3)", "SystemExit: 3"),
    "Permit": ("def permit(self, group, siblings):\n    raise asyncio.CancelledError", "CancelledError: "),
    "Score": ("def score_node(self, state, pod, node_info):\n    raise GeneratorExit", "GeneratorExit: "),
}


@pytest.mark.parametrize("point", ENDS)
def test_a_plugin_that_would_end_the_process_costs_its_gang_this_attempt(tmp_path: Path, point: str) -> None:
    """argparse ends a program with SystemExit, and a CancelledError ends the task that hears it."""
    source, why = ENDS[point]
    c, known = cluster_with(tmp_path, source)
    c.submit(gang("a", pods=2)).run()
    known.budget.turn_ended()
    assert c.untouched("a")
    assert f"plugin Own failed in {point}: {why}" in c.said("a-0")
    assert c.scheduler.statistics()["reservations"] == 0


def test_pre_enqueue_that_fails_gates_its_pod_and_is_asked_again(tmp_path: Path) -> None:
    c, known = cluster_with(
        tmp_path,
        """
        n = 0

        def pre_enqueue(self, pod):
            Own.n += 1
            if pod.metadata.name == "bad" and Own.n < 3:
                raise KeyError("quota")
            return SUCCESS
        """,
    )
    c.submit(make_pod("bad"), make_pod("good")).run()
    assert c.pod("good").spec.node_name
    assert c.state("bad") == "gated"
    assert [(b.plugin, b.point) for b in c.all(ef.BlamePlugin)] == [("Own", "PreEnqueue")]
    c.wait(30.0)
    assert c.pod("bad").spec.node_name
    known.budget.turn_ended()


def test_what_a_plugin_uses_over_many_nodes_is_added_up() -> None:
    known = KnownPlugins(budget_s=BUDGET_S)

    def short() -> None:
        time.sleep(BUDGET_S / 10)

    def runs_long() -> None:
        for _ in range(200):
            known.budget.call("Own", "Filter", short)

    with pytest.raises(PluginError, match=r"plugin Own failed in Filter: took longer than 0.1 s"):
        runs_long()
    known.budget.turn_ended()


def test_what_it_uses_on_one_node_after_another_is_added_up(tmp_path: Path) -> None:
    c, known = cluster_with(
        tmp_path,
        """
        def filter_node(self, state, pod, node_info):
            time.sleep(0.06)
            return SUCCESS
        """,
    )
    c.submit(gang("a", pods=2)).run()
    known.budget.turn_ended()
    assert c.untouched("a")
    assert "plugin Own failed in Filter: took longer than 0.1 s" in c.said("a-0")


def test_what_others_use_is_not_added_to_it() -> None:
    known = KnownPlugins(budget_s=BUDGET_S)
    known.budget.call("Own", "Filter", lambda: None)
    time.sleep(3 * BUDGET_S)
    known.budget.call("Own", "Filter", lambda: None)
    known.budget.turn_ended()


def test_between_turns_no_timer_runs_and_the_alarm_is_its_owners_again() -> None:
    known = KnownPlugins(budget_s=BUDGET_S)
    before = signal.getsignal(signal.SIGALRM)
    known.budget.call("Own", "Filter", lambda: None)
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    known.budget.turn_ended()
    assert signal.getsignal(signal.SIGALRM) is before


@pytest.mark.parametrize("hook", ["async def pre_bind", "async def _work"], ids=["its own", "a helper's"])
async def test_a_hook_that_blocks_the_loop_is_stopped_there(tmp_path: Path, hook: str) -> None:
    """A plain hook may return what an async helper of its own does."""
    source = textwrap.dedent(
        f"""
        def pre_bind(self, pod, node_name, handle):
            return self._work(pod, node_name, handle)

        {hook}(self, pod, node_name, handle):
            await handle.get("/")
            time.sleep(3600)
            return SUCCESS
        """
    )
    _, known = cluster_with(tmp_path, source)

    class Handle:
        async def get(self, path: str) -> Any:
            return {}

    own = known.factories["Own"]().pre_bind
    with pytest.raises(PluginError, match=r"plugin Own failed in PreBind: took longer than 0.1 s"):
        await own(make_pod("p"), "n0", Handle())
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0 or known.budget.running is None


async def test_a_hook_that_would_end_the_process_fails_and_is_cancelled_by_itself(tmp_path: Path) -> None:
    _, known = cluster_with(
        tmp_path,
        """
        async def pre_bind(self, pod, node_name, handle):
            await asyncio.sleep(0)
            sys.exit(3)

        async def post_bind(self, pod, node_name, handle):
            await asyncio.sleep(3600)
        """,
    )
    own = known.factories["Own"]()
    task = asyncio.ensure_future(own.pre_bind(make_pod("p"), "n0", None))
    with pytest.raises(PluginError, match="plugin Own failed in PreBind: SystemExit: 3"):
        await task
    task = asyncio.ensure_future(own.post_bind(make_pod("p"), "n0", None))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


QUEUE_SORTS: Mapping[str, str] = {
    "raises": "raise KeyError('owner')",
    "not a tuple": "return 7",
    "not comparable": "return (object(),)",
    "now this, now that": "return ('x',) if group.key.name == 'a' else (1, 2)",
}


@pytest.mark.parametrize("body", QUEUE_SORTS.values(), ids=QUEUE_SORTS)
def test_a_queue_sort_that_fails_puts_its_group_behind_and_stops_nobody(tmp_path: Path, body: str) -> None:
    path = tmp_path / "own.py"
    path.write_text(f"class Own:\n    name = 'Own'\n    def sort_key(self, group):\n        {body}\n")
    known = KnownPlugins([str(path)])
    text = HEAD + (
        "profiles: [{schedulerName: gangsched, "
        "plugins: {queueSort: {enabled: [{name: Own}], disabled: [{name: '*'}]}}}]"
    )

    def make(settings: Settings) -> Scheduler:
        config = parse_config(text, source="", plugins=known)
        return Scheduler(build_profiles(config, known.factories), settings)

    c = Cluster(make=make).node(make_node("n0", gpus=8))
    c.submit(gang("a", pods=1), gang("b", pods=1), gang("c", pods=1)).run()
    known.budget.turn_ended()
    assert c.placed("a")
    assert c.placed("b")
    assert c.placed("c")
    assert "QueueSort" in {b.point for b in c.all(ef.BlamePlugin)}

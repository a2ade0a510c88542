"""What a recorded day would have been: days whose answers are known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.command.cli import main
from gangsched.config import default_config
from gangsched.config.effective import effective_yaml
from gangsched.journal.records import FORMAT, Start, Turn, framed
from gangsched.journal.segments import Stream, name_of, segments_in
from gangsched.lab.counterfactual.answers.answer import Answer
from gangsched.lab.counterfactual.answers.compare import Difference
from gangsched.lab.counterfactual.day import Ending
from gangsched.lab.counterfactual.lives import Lives
from gangsched.lab.counterfactual.reading import read_day
from gangsched.lab.sim.objects import make_node, make_pod
from gangsched.lab.sim.runs.driver import Simulation
from gangsched.model.events import NodeAdded
from gangsched.model.objects import Condition, OwnerReference, Pod, PodStatus
from gangsched.plugins import IN_TREE
from tests.counterfactual.days import cluster, gang, preempted, record
from tests.journal.kept import recorded


def asked(
    capsys: pytest.CaptureFixture[str], directory: Path, *flags: str, seeds: int = 0, code: int = 0
) -> Answer:
    assert main(["counterfactual", str(directory), *flags, "--seeds", str(seeds), "-o", "json"]) == code
    return msgspec.json.decode(capsys.readouterr().out, type=Answer)


def of(found: Answer, name: str) -> Difference:
    (one,) = [one for one in found.gangs if one.gang == f"d/{name}"]
    return one


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`first` has both nodes from 10 s on, for 1000 s and a second of starting; `second` comes at 110 s."""
    directory = tmp_path_factory.mktemp("full")
    arrivals = [
        gang(10.0, "first", pods=2, gpus=8, run_s=1000.0),
        gang(110.0, "second", pods=2, gpus=8, run_s=50.0),
        gang(120.0, "small", pods=1, gpus=0, run_s=20.0),
    ]
    record(directory, cluster(2), arrivals, for_s=1200.0)
    return directory


def test_with_more_nodes_a_gang_that_waited_starts_at_once(
    full: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = asked(capsys, full, "--nodes", "+10", "--like", "n1", seeds=2)
    second = of(found, "second")
    # first ends at 1011 s; second may be in backoff then, for 10 s at most
    assert 901.0 < second.recorded.wait_s < 912.0
    assert second.model.wait_s == pytest.approx(second.recorded.wait_s, abs=1.0)
    assert second.changed.wait_s < 0.5
    assert -912.0 < second.by_s.value < -900.5
    # first and second may each come 12 s earlier or later, and first run a twentieth longer or shorter
    assert second.by_s.n == 2
    assert -912.0 - 75.0 < second.by_s.low < second.by_s.high < -901.0 + 75.0
    assert found.distribution.n_earlier == 1
    assert found.distribution.earlier_s == -second.by_s.value
    assert found.distribution.n_later == 0
    assert found.error.within_1s == 1.0
    assert found.changed.used < found.model.used
    assert found.changed.n_started == 3


def test_without_a_gang_another_starts_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrivals = [gang(10.0, "x", pods=1, gpus=8), gang(50.0, "y", pods=1, gpus=8, run_s=30.0)]
    record(tmp_path, cluster(1), arrivals, for_s=300.0)
    found = asked(capsys, tmp_path, "--without", "d/x")
    assert [one.gang for one in found.gangs] == ["d/y"]
    y = of(found, "y")
    assert y.recorded.started_s is None
    assert y.model.started_s is None
    assert y.model.wait_s == pytest.approx(250.0, abs=0.5)
    assert y.changed.wait_s < 0.5
    assert found.only_with == ["d/y"]
    assert any("1 pod would run that never did in the recording" in one for one in found.not_known)


def test_the_recorded_configuration_changes_nothing(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "same.yaml"
    config.write_text(effective_yaml(default_config(IN_TREE)))
    found = asked(capsys, full, "--config", str(config), seeds=2)
    assert all((one.by_s.value, one.by_s.low, one.by_s.high) == (0.0, 0.0, 0.0) for one in found.gangs)
    assert all((by.value, by.low, by.high) == (0.0, 0.0, 0.0) for by in found.changed_by.values())
    assert found.distribution.n_same == 3


def test_the_same_question_has_the_same_answer(full: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["counterfactual", str(full), "--nodes", "+1", "--like", "n0", "--seeds", "2", "-o", "json"]
    answers = []
    for _ in range(2):
        assert main(flags) == 0
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1]


def test_with_room_for_all_nobody_is_evicted_and_the_evicted_run_through(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the recording `low` is evicted at 100 s, made again, and runs from the end of `high` on."""
    arrivals = preempted()
    record(tmp_path, cluster(2), arrivals, for_s=800.0)
    found = asked(capsys, tmp_path, "--nodes", "+2", "--like", "n0")
    assert (found.recorded.n_evicted, found.model.n_evicted, found.changed.n_evicted) == (2, 2, 0)
    assert found.n_gangs == 3
    # high ends at about 302 s, low then has all of its 301 s before it, and late comes after both; both
    # may be in backoff when they could start, for 10 s at most
    late = of(found, "late")
    assert late.recorded.started_s == pytest.approx(613.0, abs=11.0)
    assert late.model.started_s == pytest.approx(613.0, abs=11.0)
    # with room for two gangs at a time, low ends at 311 s, and high before that, at about 301 s
    assert late.changed.started_s == pytest.approx(306.0, abs=6.0)
    assert any("2 pods kept that were evicted" in one for one in found.not_known)


def test_what_ran_on_a_node_that_goes_starts_over_and_has_all_of_its_run_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`a` and `b` have a node each; n1 goes at 100 s, and one of them waits for the other to end."""

    def lose(simulation: Simulation) -> None:
        def now() -> None:
            there = [pod for pod in simulation.api.pods.values() if pod.spec.node_name == "n1"]
            simulation.api.delete_node("n1")
            for pod in there:
                simulation.api.delete_pod(pod)

        simulation.timeline.at(100.0, now)

    arrivals = [
        gang(10.0, "a", pods=1, gpus=8, run_s=300.0, controlled=True),
        gang(10.0, "b", pods=1, gpus=8, run_s=300.0, controlled=True),
        gang(200.0, "c", pods=1, gpus=8, run_s=100.0, priority=-1),
    ]
    record(tmp_path, cluster(2), arrivals, for_s=1000.0, also=lose)
    found = asked(capsys, tmp_path, "--nodes", "+1", "--like", "n0")
    c = of(found, "c")
    # one ends at 311 s, the other is on n0 from then to 612 s, and c after both, up to 10 s of backoff later
    assert c.recorded.started_s == pytest.approx(622.0, abs=12.0)
    assert c.model.started_s == pytest.approx(622.0, abs=12.0)
    # with another node the other is there from 101 s or so to 402 s, and c on n0 from 311 s on
    assert c.changed.started_s == pytest.approx(316.0, abs=6.0)
    assert found.recorded.n_evicted == found.model.n_evicted == 0


def test_a_pod_that_was_withdrawn_is_so_in_the_model_unless_it_started_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def withdraw(simulation: Simulation) -> None:
        def now() -> None:
            simulation.api.delete_pod(simulation.api.pods["d", "y-0"])

        simulation.timeline.at(100.0, now)

    arrivals = [
        gang(10.0, "x", pods=1, gpus=8, run_s=150.0),
        gang(50.0, "y", pods=1, gpus=8, run_s=30.0),
        gang(60.0, "z", pods=1, gpus=8, run_s=30.0),
    ]
    record(tmp_path, cluster(1), arrivals, for_s=400.0, also=withdraw)
    found = asked(capsys, tmp_path, "--without", "d/x")
    y, z = of(found, "y"), of(found, "z")
    assert y.recorded.started_s is None
    assert y.model.started_s is None
    assert y.model.wait_s == pytest.approx(50.0, abs=0.5)
    assert y.changed.wait_s < 0.5
    # x ends at 161 s, and z may be in backoff then
    assert z.model.started_s == pytest.approx(166.0, abs=6.0)


PLUGIN = """
from gangsched.core.framework.interface import Status


class Never:
    name = "Never"

    def filter_node(self, state, pod, node_info):
        return Status.unschedulable("never")
"""


def test_a_plugin_of_the_users_own_decides_in_the_changed_day_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin, config = tmp_path / "never.py", tmp_path / "never.yaml"
    plugin.write_text(PLUGIN)
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: gangsched, plugins: {multiPoint: {enabled: [{name: Never}]}}}]\n"
    )
    record(tmp_path / "day", cluster(1), [gang(10.0, "x", pods=1, gpus=8)], for_s=100.0)
    found = asked(capsys, tmp_path / "day", "--config", str(config), "--plugin", str(plugin))
    assert found.only_without == ["d/x"]
    assert of(found, "x").changed.wait_s == pytest.approx(90.0, abs=0.5)


def pod(name: str, **status: Any) -> Pod:
    """Of a job, on a node if it has a status."""
    owner = OwnerReference("batch/v1", "Job", "train", "uid-job", controller=True)
    made = make_pod(name)
    meta = replace(made.metadata, owner_references=[owner])
    spec = replace(made.spec, node_name="n0" if status else "")
    return replace(made, metadata=meta, spec=spec, status=PodStatus(**status))


def test_what_another_process_evicted_is_known_by_the_pods_condition() -> None:
    """And the pod that its controller makes then does not come by itself."""
    told = Condition("DisruptionTarget", "True", "PreemptionByScheduler")
    lives = Lives()
    lives.listed(0.0)
    lives.put(pod("a"), 10.0)
    lives.put(pod("a", phase="Running"), 12.0)
    lives.put(pod("a", phase="Running", conditions=[told]), 50.0)
    lives.put(pod("a", phase="Failed", conditions=[told]), 52.0)
    lives.gone(pod("a"), 53.0)
    lives.put(pod("b"), 55.0)
    lives.put(pod("b", phase="Running"), 60.0)
    lives.put(pod("b", phase="Succeeded"), 95.0)
    found, again_s = lives.all_since(5.0)
    a, b = found.values()
    assert (a.evicted, a.ending, a.run_s) == (True, Ending.CUT_OFF, None)
    assert (b.replaces, b.ending, b.run_s) == (a.uid, Ending.SUCCEEDED, 35.0)
    assert again_s == 2.0


def test_a_pod_made_after_one_that_was_evicted_before_the_recording_comes_by_itself() -> None:
    """It was taken for that one's successor, which the day does not have, and never came in the model."""
    told = Condition("DisruptionTarget", "True", "TerminationByKubelet")
    lives = Lives()
    lives.put(pod("old", phase="Failed", conditions=[told]), 1.0)
    lives.listed(2.0)
    lives.put(pod("new"), 1000.0)
    found, again_s = lives.all_since(2.0)
    (new,) = found.values()
    assert (new.pod.metadata.name, new.came_s, new.replaces) == ("new", 998.0, "")
    assert again_s is None


def test_pods_that_one_call_shows_as_evicted_are_not_made_for_each_other() -> None:
    """After a watch that was away for long; following one from another never ended."""
    told = Condition("DisruptionTarget", "True", "TerminationByKubelet")
    lives = Lives()
    lives.listed(2.0)
    for name in ("a", "b", "c"):
        lives.put(pod(name, phase="Failed", conditions=[told]), 10.0)
    lives.put(pod("d"), 10.0)
    found, _ = lives.all_since(2.0)
    made_for = {life.pod.metadata.name: life.replaces for life in found.values()}
    assert made_for["a"] == ""
    for uid in found:
        seen = []
        while uid:
            assert uid not in seen
            seen.append(uid)
            uid = found[uid].replaces


# -- journals that are not whole ----------------------------------------------------------------------


def test_a_day_of_two_processes_is_one_day_and_its_gap_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrivals = [
        gang(10.0, "first", pods=2, gpus=8, run_s=400.0),
        gang(50.0, "second", pods=2, gpus=8, run_s=50.0),
        gang(250.0, "third", pods=1, gpus=8, run_s=50.0),
    ]
    record(tmp_path, cluster(2), arrivals, for_s=700.0, crash_s=200.0)
    found = asked(capsys, tmp_path, "--nodes", "+2", "--like", "n0")
    assert [one.gang for one in sorted(found.gangs, key=lambda one: one.came_s)] == [
        "d/first",
        "d/second",
        "d/third",
    ]
    assert of(found, "first").recorded.wait_s < 0.5
    assert of(found, "second").model.wait_s == pytest.approx(of(found, "second").recorded.wait_s, abs=12.0)
    assert of(found, "second").changed.wait_s < 0.5
    assert any(" s from +" in one and "while no process recorded: " in one for one in found.not_known)


def test_a_journal_whose_first_segments_are_deleted_begins_with_what_ran_then(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (kept,) = recorded(7, n_gangs=6, per_segment=20)
    kept.write_to(tmp_path)
    whole = asked(capsys, tmp_path, "--nodes", "+1", "--like", node_in(tmp_path))
    for number in (1, 2):
        (tmp_path / name_of("day", number)).unlink()
    rest = asked(capsys, tmp_path, "--nodes", "+1", "--like", node_in(tmp_path))
    assert 0 < rest.n_gangs <= whole.n_gangs
    assert rest.length_s < whole.length_s


def test_a_segment_that_is_missing_is_reported_as_a_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, (kept,) = recorded(7, n_gangs=6, per_segment=20)
    kept.write_to(tmp_path)
    whole = asked(capsys, tmp_path, "--nodes", "+1", "--like", node_in(tmp_path))
    assert not any("while no process recorded" in one for one in whole.not_known)
    (tmp_path / name_of("day", 3)).unlink()
    rest = asked(capsys, tmp_path, "--nodes", "+1", "--like", node_in(tmp_path), code=1)
    assert sum(" s from +" in one and "while no process recorded: " in one for one in rest.not_known) == 1
    assert rest.length_s == whole.length_s
    assert {one.gang for one in rest.gangs} <= {one.gang for one in whole.gangs}


def test_calls_that_two_segments_have_came_once(tmp_path: Path) -> None:
    """While a copy of the process writes the state, records go to both: that was reported as a gap of 0 s."""
    _, (kept,) = recorded(7, n_gangs=6, per_segment=20)
    days = []
    for name in ("plain", "twice"):
        (tmp_path / name).mkdir()
        kept.write_to(tmp_path / name)
        days.append(read_day(segments_in(tmp_path / name)))
        kept.segments[0] += kept.segments[1][2:6]
    plain, twice = days
    assert (twice.gaps, twice.others, twice.lost) == (plain.gaps, plain.others, []) == ([], plain.others, [])


def node_in(directory: Path) -> str:
    """Any."""
    day = read_day(segments_in(directory))
    return next(one.event.node.metadata.name for one in day.others if isinstance(one.event, NodeAdded))


# -- mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "nothing would be otherwise: give --config, --nodes, or --without"),
        (["--nodes", "+3"], "--like: is needed too"),
        (["--like", "n0"], "--nodes: is needed too"),
        (["--nodes", "10", "--like", "n0"], "--nodes: '10' is not within +1..+10000; example: +10"),
        (["--nodes", "+0", "--like", "n0"], "--nodes: '+0' is not within"),
        (["--nodes", "+1", "--like", "n7"], "--like: n7: no node of this name is in the recording"),
        (["--without", "d/secund"], "--without: d/secund: no gang and no pod of this name"),
        (["--without", "d/secund"], "did you mean d/second"),
        (["--without", "x", "--seeds", "-1"], "--seeds: -1 is not within 0..100"),
        (["--config", "nowhere.yaml"], "nowhere.yaml: cannot be read"),
        (["--config", "WRONG"], "packing.weight: 200000 is not within"),
        (["--config", "OTHERS"], "and no profile has that schedulerName; it has another"),
        (["--without", "x", "--plugin", "BROKEN"], "No module named 'no_such_module'"),
        (["--without", "d/first", "--svg", "/nowhere/at/all.svg"], "--svg: cannot be written: No such file"),
        (["--without", "d/first", "--svg", "x" * 300], "--svg: cannot be written: File name too long"),
    ],
)
def test_a_mistake_is_reported_with_its_place(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str], said: str
) -> None:
    files = {
        "WRONG": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n---\n"
        "apiVersion: gangsched.io/v1\nkind: GangschedConfiguration\npacking: {weight: 200000}\n",
        "OTHERS": "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles: [{schedulerName: another}]\n",
        "BROKEN": "import no_such_module\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    given = [str(tmp_path / f"{one}.py") if one in files else one for one in flags]
    assert main(["counterfactual", str(full), *given]) == 2
    assert said in capsys.readouterr().err


def test_an_empty_folder_and_an_empty_journal_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--without", "x"]
    assert main(["counterfactual", str(tmp_path), *flags]) == 2
    assert "has no journal" in capsys.readouterr().err
    (tmp_path / name_of("day", 1)).write_bytes(b"")
    assert main(["counterfactual", str(tmp_path), *flags]) == 2
    assert "is too short: nothing is in it" in capsys.readouterr().err


def test_times_that_no_clock_has_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = Start(FORMAT, 1e9, 0.0, True, effective_yaml(default_config(IN_TREE)), {}, {})
    days = [
        (
            replace(start, wall_s=1e300),
            1.0,
            "is not a record of a journal: Expected `float` <= 230000000000.0",
        ),
        (start, 1e9, "a call more than 1,100 days after"),
    ]
    for first, at_s, said in days:
        stream = Stream()
        records = [framed(first), framed(Turn("advance", at_s, ""))]
        (tmp_path / name_of("day", 1)).write_bytes(stream.take(records) + stream.end())
        assert main(["counterfactual", str(tmp_path), "--without", "x"]) == 2
        assert said in capsys.readouterr().err


# -- what is printed ----------------------------------------------------------------------------------


def test_the_table_and_the_picture_say_the_same(
    full: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = tmp_path / "what-if.svg"
    flags = ["--nodes", "+10", "--like", "n1", "--seeds", "1", "--svg", str(drawn)]
    assert main(["counterfactual", str(full), *flags]) == 0
    out = capsys.readouterr().out
    assert "What if: 10 more nodes like n1." in out
    assert "of 3 gangs 100 % start within 1 s of when they did" in out
    assert "Earlier 1 gang, 15 min" in out
    assert "d/second" in out
    assert "Whether users would have sent more, less or something else" in out
    root = ElementTree.fromstring(drawn.read_text())
    words = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "What if: 10 more nodes like n1" in words
    assert "3 gangs in 0.3 hours: 1 start earlier, 0 later, 2 as before" in words
    assert {"1 pod: 1 gang", "2 to 4 pods: 2 gangs"} <= set(words)


def test_a_hostile_name_is_shown_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "n[red]<b>&\x1b[2J"
    record(tmp_path, [make_node(name)], [gang(10.0, "x", pods=1, gpus=8)], for_s=60.0)
    drawn = tmp_path / "what-if.svg"
    flags = ["--nodes", "+1", "--like", name, "--seeds", "0", "--svg", str(drawn)]
    assert main(["counterfactual", str(tmp_path), *flags]) == 0
    out = capsys.readouterr().out
    assert "1 more node like n[red]<b>&" in out
    assert "\x1b" not in out + drawn.read_text()
    assert ElementTree.fromstring(drawn.read_text()).attrib["role"] == "img"

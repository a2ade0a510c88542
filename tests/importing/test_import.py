"""`gangsched import`: jobs of other schedulers become a journal that is replayed, asked and benched."""

from __future__ import annotations

import json
import os
import re
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.command.cli import main
from gangsched.errors import ConfigError
from gangsched.journal.records import End, Start, Turn, framed, read_events
from gangsched.journal.segments import Reader, segments_at, segments_in
from gangsched.lab.bench.queueing.traces.jobs import Job
from gangsched.lab.bench.queueing.traces.traces import jobs_of, read_trace
from gangsched.lab.counterfactual.reading import read_day
from gangsched.lab.importing.writing import JournalFile
from gangsched.model import events as ev

Json = dict[str, Any]
SWF = """; MaxProcs: 16
1 0 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1
2 10 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1
3 2o 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1
bad
5 30 0 -1 4 -1 -1 4 200 -1 0 3 1 -1 1 -1 -1 -1
6 40 5 100 64 -1 -1 64 200 -1 1 3 1 -1 1 -1 -1 -1
"""
SACCT = """JobID|User|Submit|Start|End|State|AllocTRES|ReqTRES|TimelimitRaw
100|ann|2026-05-04T02:00:00|2026-05-04T02:00:05|2026-05-04T03:00:05|COMPLETED|billing=8,cpu=8,gres/gpu=16,mem=64G,node=2||120
100.batch||2026-05-04T02:00:00|2026-05-04T02:00:05|2026-05-04T03:00:05|COMPLETED|cpu=8,mem=64G,node=1||
101_[5-9%2]|bob|2026-05-04T02:10:00|Unknown|Unknown|PENDING||cpu=1,gres/gpu=1,mem=4G,node=1|60
101_1|bob|2026-05-04T02:10:00|2026-05-04T02:20:00|2026-05-04T02:30:00|TIMEOUT|cpu=1,gres/gpu:h100=1,mem=4G,node=1||60
102|bob|2026-05-04T02:10:00|2026-05-04T02:20:00|Unknown|RUNNING|cpu=1,gres/gpu=1,mem=4G,node=1||UNLIMITED
103|bob|yesterday|2026-05-04T02:20:00|Unknown|RUNNING|cpu=1|||
104|bob|2026-05-04T02:40:00|2026-05-04T02:41:00|2026-05-04T02:51:00|CANCELLED by 0|cpu=4,mem=8G,node=1||30
105|bob|2026-05-04T02:40:00|None|2026-05-04T02:51:00|CANCELLED by 0||cpu=4,mem=8G,node=1|30
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,0
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,10769854,9437497
openb-pod-0018,1000,1024,0,0,,BE,Failed,9437498,10769854,
openb-pod-0019,200000,1024,0,0,,BE,Succeeded,9437498,10769854,9437499
"""
NODES = """sn,cpu_milli,memory_mib,gpu,model
openb-node-0000,64000,262144,2,P100
openb-node-0001,96000,786432,8,V100M32
openb-node-0002,96000,786432,x,V100M32
openb-node-0001,96000,786432,8,V100M32
"""


def imported(tmp_path: Path, kind: str, text: str, *more: str) -> tuple[int, Path]:
    source, out = tmp_path / f"jobs.{kind}", tmp_path / "out"
    source.write_text(text)
    return main(["import", kind, str(source), str(out), *more]), out


def events_of(out: Path) -> list[ev.Event]:
    (segment,) = segments_in(out)
    turns = [record for record in Reader(segment.path) if isinstance(record, Turn)]
    return [event for turn in turns for event in read_events(turn.events)]


def test_a_log_of_jobs_becomes_a_journal_that_replays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = imported(tmp_path, "swf", SWF, "--nodes", "2", "--gpus", "4")
    assert code == 0
    told = capsys.readouterr().out
    assert "2 jobs over 1 min 50 s are in" in told
    assert "left out: jobs without a run time: 1" in told
    assert "left out: jobs that no node, or the whole cluster, has room for: 1" in told
    assert "left out: lines that cannot be read: 2" in told
    assert "jobs.swf: line 4: field 2: '2o' is not a number" in told
    assert "jobs.swf: line 5 has 1 field, a job of the Standard Workload Format has 18" in told
    assert "not in it: which node a job ran on, when it started, its memory" in told
    assert main(["replay", str(out)]) == 0
    assert "8 of them binds, all as recorded" in capsys.readouterr().out


def test_a_log_has_the_date_that_its_header_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--nodes", "2", "--gpus", "4")
    code, out = imported(tmp_path, "swf", "; UnixStartTime: 1119998998\n" + SWF, *flags)
    assert code == 0
    assert "the date" not in capsys.readouterr().out
    (segment,) = segments_in(out)
    start = next(iter(Reader(segment.path)))
    assert isinstance(start, Start)
    assert (start.now_s, start.wall_s) == (0.0, 1119998998.0)
    assert main(["replay", str(out)]) == 0
    assert "2005-06-28 22:49:58.000 to 2005-06-28 22:51:48.000 UTC" in capsys.readouterr().out


@pytest.mark.parametrize("said", ["", "soon", "-1", "9" * 12, "0"])
def test_a_log_without_a_date_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str) -> None:
    code, _ = imported(tmp_path, "swf", f";UnixStartTime: {said}\n{SWF}", "--nodes", "2", "--gpus", "4")
    assert code == 0
    told = capsys.readouterr().out
    assert "not in it: the date: its first job comes at 2000-01-01 00:00 UTC; UnixStartTime" in told
    is_named = f"line 1: UnixStartTime: {said!r} is not a number of seconds since 1970" in told
    assert is_named == (said != "0")


def test_times_that_no_log_has_are_not_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    never = "7 -1 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n"
    endless = "8 50 5 999999999999 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n"
    code, _ = imported(tmp_path, "swf", SWF + never + endless, "--nodes", "2", "--gpus", "4")
    assert code == 0
    told = capsys.readouterr().out
    assert "left out: jobs without a time of arrival: 1" in told
    assert "left out: jobs that ran for more than 1,100 days: 1" in told
    late = "9 99999999999 5 100 4 -1 -1 4 200 -1 1 3 1 -1 1 -1 -1 -1\n"
    (tmp_path / "late").mkdir()
    code, out = imported(tmp_path / "late", "swf", SWF + late, "--nodes", "2", "--gpus", "4")
    assert code == 2
    assert "has jobs that come 1,157,407 days apart, more than 1,100: a time in it" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("csv", "arrival_s,run_s,devices\n500000000000,60,2\n500000000100,60,2\n"),
        ("swf", "; UnixStartTime: 99999999999\n1 999999999998 5 100 4 -1 -1 4 200 -1 1 3\n"),
    ],
)
def test_a_log_of_a_year_that_no_journal_has_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, text: str
) -> None:
    """It became a journal that no command could read."""
    code, out = imported(tmp_path, kind, text)
    assert code == 2
    assert "has jobs that come after the year 9000" in capsys.readouterr().err
    assert not out.exists()


def test_pods_of_a_slurm_job_are_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = imported(tmp_path, "sacct", SACCT, "--nodes", "2")
    assert code == 0
    told = capsys.readouterr().out
    assert "3 jobs over 1 h 10 min are in" in told
    for line in ("jobs that never started: 2", "jobs that had not ended: 1", "steps of jobs: 1"):
        assert f"left out: {line}" in told
    assert "line 7: field Submit: 'yesterday' is not a time" in told
    pods = [event.pod for event in events_of(out) if isinstance(event, ev.PodAdded)]
    requests = [msgspec.to_builtins(pod.spec.containers[0].resources)["requests"] for pod in pods]
    assert requests == [
        *[{"cpu": "4000m", "memory": "32768Mi", "nvidia.com/gpu": "8"}] * 2,
        {"cpu": "1000m", "memory": "4096Mi", "nvidia.com/gpu": "1"},
        {"cpu": "4000m", "memory": "8192Mi"},
    ]
    (segment,) = segments_in(out)
    start = next(iter(Reader(segment.path)))
    assert isinstance(start, Start)
    assert (start.now_s, start.wall_s) == (0.0, 1777860000.0)  # 2026-05-04T02:00:00Z


def test_a_job_without_devices_has_to_have_room_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On 2 nodes of 64 CPUs and 110 pods: by its CPUs, its memory, or its nodes, of which each is a pod."""
    head, *_ = SACCT.splitlines()
    when = "2026-05-04T02:00:00|2026-05-04T02:00:05|2026-05-04T03:00:05|COMPLETED"
    large = ("cpu=192,node=3", "cpu=4,mem=4000G,node=4", "cpu=4,node=1000000000", "mem=999999999E,node=1")
    rows = [f"{number}|ann|{when}|{amount}||" for number, amount in enumerate(("cpu=128,node=2", *large))]
    code, _ = imported(tmp_path, "sacct", "\n".join([head, *rows]), "--nodes", "2")
    assert code == 0
    told = capsys.readouterr().out
    assert "1 job over 1 h 00 min is in" in told
    assert "left out: jobs that no node, or the whole cluster, has room for: 4" in told


def test_pods_and_nodes_of_the_openb_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = tmp_path / "nodes.csv"
    nodes.write_text(NODES)
    code, out = imported(tmp_path, "csv", PODS, "--node-list", str(nodes))
    assert code == 0
    told = capsys.readouterr().out
    assert re.search(r"2 jobs over 145 days 02 h are in", told)
    assert "jobs that never started: 1" in told
    assert "jobs that no node, or the whole cluster, has room for: 1" in told
    assert "nodes.csv: line 4: field gpu: 'x' is not a number" in told
    assert "nodes.csv: line 5: openb-node-0001 is there already" in told
    found = {
        event.node.metadata.name: event.node for event in events_of(out) if isinstance(event, ev.NodeAdded)
    }
    assert list(found) == ["openb-node-0000", "openb-node-0001"]
    assert (found["openb-node-0001"].metadata.labels or {})["nvidia.com/gpu.product"] == "V100M32"
    bound = {
        event.pod.spec.node_name
        for event in events_of(out)
        if isinstance(event, ev.PodUpdated) and event.pod.spec.node_name
    }
    assert "openb-node-0001" in bound
    assert main(["replay", str(out)]) == 0


@pytest.mark.parametrize("kind", ["swf", "csv", "sacct", "kubernetes"])
def test_a_mark_of_the_encoding_is_no_part_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Spreadsheets and PowerShell begin files with it; the first column was another one, or all was bad."""
    texts = {
        "swf": "; UnixStartTime: 1119998998\n" + SWF,
        "csv": "arrival_s,run_s,devices\n0,10,1\n",
        "sacct": SACCT,
        "kubernetes": listed(a_node(), ran("a", "p1")),
    }
    nodes = tmp_path / "nodes.csv"
    nodes.write_text("\ufeffsn,cpu_milli,memory_mib,gpu\na,64000,262144,8\nb,64000,262144,8\n")
    more = () if kind == "kubernetes" else ("--node-list", str(nodes))
    code, out = imported(tmp_path, kind, "\ufeff" + texts[kind], *more)
    assert code == 0, capsys.readouterr().err
    assert any(isinstance(event, ev.PodAdded) for event in events_of(out))
    assert ("the date" in capsys.readouterr().out) == (kind == "csv")


def test_a_journal_is_a_workload_of_the_bench(tmp_path: Path) -> None:
    """What comes out is what went in."""
    code, out = imported(tmp_path, "swf", SWF, "--nodes", "2", "--gpus", "4")
    assert code == 0
    source = str(tmp_path / "jobs.swf")
    with pytest.raises(ConfigError):
        list(jobs_of(source))
    good = [one for one in jobs_of(source, refuse=lambda _: None) if isinstance(one, Job)][:2]
    jobs = read_trace(str(out), 10, 8).workload.jobs
    assert [(job.arrival_s, job.run_s, job.n_devices, job.stated_s) for job in jobs] == [
        (job.arrival_s, job.run_s, job.n_devices, job.stated_s) for job in good
    ]


@pytest.mark.parametrize(
    ("kind", "text", "more", "problem"),
    [
        ("swf", "", (), "has no job for these nodes: nothing is in it"),
        ("swf", "x\n", (), "has no job for these nodes: nothing is in it; the first of 1 bad lines: "),
        ("sacct", "JobID|State\n", (), "line 1 has no column Submit, Start, End: sacct -a -P -o"),
        ("sacct", "JobID|Submit|Start|End\n", (), "line 1 has no column AllocTRES or ReqTRES"),
        ("csv", "a,b\n", (), "has the columns a, b: arrival_s, run_s and devices are needed"),
        ("swf", SWF, ("--nodes", "0"), "--nodes: 0 is not within 1..20000"),
        ("swf", SWF, ("--gpus", "65"), "--gpus: 65 is not within 1..64"),
        ("swf", SWF, ("--nodes", "2", "--node-list", "x"), "--nodes: cannot be given with --node-list"),
        ("kubernetes", "{}", ("--nodes", "2"), "--nodes: is not for kubernetes"),
        ("kubernetes", "{}", ("--node-list", "x"), "--node-list: is not for kubernetes"),
        ("swf", SWF, ("--node-list", "/nowhere"), "--node-list: cannot be read: No such file"),
    ],
)
def test_what_cannot_be_imported_is_reported_and_leaves_nothing(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    text: str,
    more: tuple[str, ...],
    problem: str,
) -> None:
    code, out = imported(tmp_path, kind, text, *more)
    assert code == 2
    assert problem in capsys.readouterr().err
    assert not out.exists()


def test_a_directory_with_something_in_it_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    code, out = imported(tmp_path, "swf", SWF)
    assert code == 2
    assert "is not empty: give an empty directory, or a new one" in capsys.readouterr().err
    assert [one.name for one in out.iterdir()] == ["mine"]


@pytest.mark.parametrize("kind", ["swf", "csv", "sacct"])
@settings(max_examples=25, deadline=None)
@given(
    junk=st.lists(st.text(max_size=60) | st.sampled_from(["|" * 9, "1 " * 18, "1e999 " * 18, "x" * 20_000]))
)
def test_a_bad_line_costs_that_line_alone(
    tmp_path_factory: pytest.TempPathFactory, kind: str, junk: list[str]
) -> None:
    good = {"swf": SWF.splitlines()[1], "sacct": SACCT.splitlines()[1], "csv": PODS.splitlines()[1]}[kind]
    head = {"swf": "; x", "sacct": SACCT.splitlines()[0], "csv": PODS.splitlines()[0]}[kind]
    path = tmp_path_factory.mktemp("junk") / f"a.{kind}"
    lines = [line.replace("\n", " ").replace("\r", " ") for line in junk]
    path.write_text("\n".join([head, good, *lines, good]) + "\n", encoding="utf-8", errors="replace")
    bad: list[ConfigError] = []
    found = [one for one in jobs_of(str(path), kind, bad.append) if isinstance(one, Job)]
    assert len(found) >= 2
    assert (found[0].arrival_s, found[0].n_devices) == (found[-1].arrival_s, found[-1].n_devices)
    assert all(re.search(r": line \d+", str(error)) for error in bad)


# -- Kubernetes --------------------------------------------------------------------------------------------


def a_node(name: str = "n1") -> Json:
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}
    made = "2026-01-01T00:00:00Z"
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": made},
        "status": {"allocatable": amounts},
    }


def a_pod(name: str, uid: str, **more: Any) -> Json:
    container = {"name": "c", "resources": {"requests": {"nvidia.com/gpu": "4"}}}
    made = "2026-05-04T02:00:00Z"
    meta = {"name": name, "namespace": "t", "uid": uid, "creationTimestamp": made}
    spec = {"schedulerName": "default-scheduler", "containers": [container], **more.pop("spec", {})}
    return {"kind": "Pod", "metadata": meta, "spec": spec, **more}


def ran(name: str, uid: str) -> Json:
    status = {
        "phase": "Succeeded",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-05-04T02:05:00Z"}
        ],
        "containerStatuses": [{"state": {"terminated": {"finishedAt": "2026-05-04T02:35:00Z"}}}],
    }
    return a_pod(name, uid, spec={"nodeName": "n1"}, status=status)


def listed(*items: Json) -> str:
    return json.dumps({"kind": "List", "apiVersion": "v1", "items": items}, indent=1)


def audited(at: str, verb: str, name: str, subresource: str = "", **more: Any) -> str:
    ref = {"resource": "pods", "namespace": "t", "name": name, "subresource": subresource}
    told = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "stageTimestamp": f"2026-05-04T{at}.000000Z",
        "objectRef": ref,
        "responseStatus": {"code": 201},
        **more,
    }
    return json.dumps(told) + "\n"


def test_what_kubectl_prints_becomes_what_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = a_pod("bad", "p3") | {"metadata": {"name": 5}}
    text = listed(a_node(), ran("a", "p1"), a_pod("b", "p2"), bad, {"kind": "Event"})
    code, out = imported(tmp_path, "kubernetes", text)
    assert code == 0
    told = capsys.readouterr().out
    assert "2 pods over 35 min 00 s are in" in told
    assert "1 of them were bound" in told
    assert "missing: objects that are neither pods nor nodes: 1" in told
    assert "missing: pods that were deleted before" in told
    assert "items[3]: Expected `str`, got `int`" in told
    assert main(["replay", str(out)]) == 0
    lives = read_day(segments_at(out)).lives
    assert (lives["p1"].came_s, lives["p1"].bound_s, lives["p1"].run_s) == (0.0, 300.0, 1800.0)
    assert lives["p2"].bound_s is None


@pytest.mark.parametrize("is_log", [False, True])
def test_what_is_piped_into_it_becomes_what_happened(tmp_path: Path, is_log: bool) -> None:
    """As bash's `<(kubectl get pods,nodes -A -o json)` and `<(zcat audit.log.gz)` hand it over."""
    made = audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"))
    text = made * 2000 if is_log else listed(a_node(), ran("a", "p1"))
    reading, writing = os.pipe()

    def write() -> None:
        with os.fdopen(writing, "w") as pipe:
            pipe.write(text)

    writer = threading.Thread(target=write)
    writer.start()
    (tmp_path / "nodes.json").write_text(listed(a_node()))
    files = [f"/dev/fd/{reading}", str(tmp_path / "nodes.json")]
    assert main(["import", "kubernetes", *files, str(tmp_path / "out")]) == 0
    writer.join()
    os.close(reading)
    assert [*read_day(segments_at(tmp_path / "out")).lives] == ["p1"]


def test_a_history_of_one_moment_is_no_day_to_ask_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its picture was divided by its length, and shares of nothing were printed."""
    code, out = imported(tmp_path, "kubernetes", listed(a_node(), a_pod("b", "p2")))
    assert code == 0
    assert main(["replay", str(out)]) == 0
    flags = ("--nodes", "+1", "--like", "n1", "--svg", str(tmp_path / "day.svg"))
    assert main(["counterfactual", str(out), *flags]) == 2
    assert "is too short: ends as the cluster has been listed" in capsys.readouterr().err


def logged(tmp_path: Path, log: str) -> Path:
    """The journal of an audit log and of one node."""
    nodes, source, out = tmp_path / "nodes.json", tmp_path / "audit.log", tmp_path / "out"
    nodes.write_text(listed(a_node()))
    source.write_text(log)
    assert main(["import", "kubernetes", str(source), str(nodes), str(out)]) == 0
    return out


def test_an_audit_log_becomes_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = a_pod("a", "p1", status={"phase": "Failed"})
    log = (
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"))
        + audited("02:00:01", "create", "b", requestObject=a_pod("b", ""))
        + audited("02:00:02", "create", "c")
        + audited("02:00:03", "create", "d", responseObject=a_pod("d", "p4"), responseStatus={"code": 409})
        + audited("02:01:00", "create", "a", "binding", requestObject={"target": {"name": "n1"}})
        + audited("02:01:00", "create", "x", "binding", requestObject={"target": {"name": "n1"}})
        + "no json\n"
        + audited("02:31:00", "patch", "a", "status", responseObject=status, responseStatus={"code": 200})
        + audited("02:32:00", "delete", "b", responseStatus={"code": 200})
    )
    out = logged(tmp_path, log)
    told = capsys.readouterr().out
    assert "2 pods over 32 min 00 s are in" in told
    assert "missing: pods of which the log has no more than the name (level Metadata): 1" in told
    assert "missing: binds and ends of pods whose creation is not in it: 1" in told
    assert "audit.log: line 7: JSON is malformed" in told
    assert main(["replay", str(out)]) == 0
    lives = {life.pod.metadata.name: life for life in read_day(segments_at(out)).lives.values()}
    assert (lives["a"].bound_s, lives["a"].node, lives["a"].run_s) == (60.0, "n1", 1800.0)
    assert (lives["b"].bound_s, lives["b"].gone_s) == (None, 1920.0)


def test_what_a_log_of_a_lower_level_lacks_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods without a name were one pod that waited for ever, and so was one whose bind has no body."""
    made = a_pod("", "")
    made["metadata"] = {"generateName": "web-", "namespace": "t"}
    log = (
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"))
        + 3 * audited("02:00:01", "create", "", requestObject=made)
        + audited("02:00:02", "create", "web-abcde", "binding", requestObject={"target": {"name": "n1"}})
        + audited("02:01:00", "create", "a", "binding")
    )
    logged(tmp_path, log)
    told = capsys.readouterr().out
    assert "1 pod over" in told
    assert "pods whose name the API server made, which the log does not have (level Request): 3" in told
    assert "binds of which the log does not have the node (level Metadata): 1" in told
    assert "binds and ends of pods whose creation is not in it: 1" in told


def test_who_only_reads_pods_makes_nothing_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each log has such lines, so each import told of binds and ends that it lacked, without a number."""
    log = (
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"))
        + audited("02:00:01", "list", "")
        + audited("02:00:02", "get", "older")
        + audited("02:01:00", "create", "a", "binding", requestObject={"target": {"name": "n1"}})
    )
    logged(tmp_path, log)
    told = capsys.readouterr().out
    assert "1 of them were bound" in told
    assert "whose creation is not in it" not in told


def test_what_was_only_tried_did_not_happen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pod of kubectl diff waited for ever, and one whose deletion was tried ended when it was bound."""
    uri, tried = "/api/v1/namespaces/t/pods", "?dryRun=All&fieldManager=kubectl"
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "dryRun": ["All"]}
    log = (
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"), requestURI=uri)
        + audited("02:00:01", "create", "b", responseObject=a_pod("b", "p2"), requestURI=uri + tried)
        + audited("02:00:02", "delete", "a", requestURI=f"{uri}/a{tried}")
        + audited("02:00:03", "delete", "a", requestURI=f"{uri}/a", requestObject=options)
        + audited("02:01:00", "create", "a", "binding", requestObject={"target": {"name": "n1"}})
    )
    out = logged(tmp_path, log)
    assert "1 pod over" in capsys.readouterr().out
    (life,) = read_day(segments_at(out)).lives.values()
    assert (life.pod.metadata.name, life.bound_s, life.gone_s) == ("a", 60.0, None)


def test_pods_that_are_deleted_together_are_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They waited for ever, as where a namespace was deleted, and nothing was reported missing."""
    deleted = {"kind": "PodList", "items": [a_pod("a", "p1"), a_pod("older", "p0")]}
    log = (
        audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1"))
        + audited("02:00:00", "create", "b", responseObject=a_pod("b", "p2"))
        + audited("02:02:00", "deletecollection", "", responseObject=deleted)
        + audited("02:03:00", "deletecollection", "", responseObject={"kind": "Status"})
        + audited("02:04:00", "deletecollection", "")
    )
    out = logged(tmp_path, log)
    told = capsys.readouterr().out
    assert "does not have the pods (level Metadata): 2" in told
    assert "binds and ends of pods whose creation is not in it: 1" in told
    gone = {life.pod.metadata.name: life.gone_s for life in read_day(segments_at(out)).lives.values()}
    assert gone == {"a": 120.0, "b": None}


def test_a_log_that_was_rotated_is_one_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the second file has of a pod of the first was counted as of pods that nobody created."""
    first, second, nodes = tmp_path / "audit-1.log", tmp_path / "audit.log", tmp_path / "nodes.json"
    status = a_pod("a", "p1", status={"phase": "Succeeded"})
    first.write_text(audited("02:00:00", "create", "a", responseObject=a_pod("a", "p1")))
    second.write_text(
        audited("02:01:00", "create", "a", "binding", requestObject={"target": {"name": "n1"}})
        + audited("02:31:00", "patch", "a", "status", responseObject=status)
    )
    nodes.write_text(listed(a_node()))
    out = tmp_path / "out"
    assert main(["import", "kubernetes", str(first), str(second), str(nodes), str(out)]) == 0
    told = capsys.readouterr().out
    assert "1 of them were bound" in told
    assert "whose creation is not in it" not in told
    (life,) = read_day(segments_at(out)).lives.values()
    assert (life.bound_s, life.node, life.run_s) == (60.0, "n1", 1800.0)


def test_a_pod_of_no_time_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It would make a day of decades."""
    undated, ancient = a_pod("u", "p7"), a_pod("v", "p8")
    del undated["metadata"]["creationTimestamp"]
    ancient["metadata"]["creationTimestamp"] = "0001-01-01T00:00:00Z"
    late = ran("w", "p9")
    late["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] = "9999-12-31T23:59:59Z"
    code, out = imported(tmp_path, "kubernetes", listed(a_node(), ran("a", "p1"), undated, ancient, late))
    assert code == 0
    told = capsys.readouterr().out
    assert "1 pod over 35 min 00 s is in" in told
    assert "items[2]: has no creationTimestamp" in told
    assert "items[3]: 0001-01-01T00:00:00+00:00 is not a time of a cluster" in told
    assert "items[4]: 9999-12-31T23:59:59+00:00 is not a time of a cluster" in told
    assert main(["replay", str(out)]) == 0


def test_pods_that_lie_decades_apart_are_no_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = a_pod("old", "p7")
    old["metadata"]["creationTimestamp"] = "2016-01-01T00:00:00Z"
    code, _ = imported(tmp_path, "kubernetes", listed(a_node(), ran("a", "p1"), old))
    assert code == 2
    assert "lasts 3,776 days, more than 1,100" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "is neither an audit log nor a list, as kubectl get pods,nodes -A -o json prints it"),
        ("[" * 100_000, "is neither an audit log nor a list"),
        (listed(a_node()), "has no pod: kubectl get pods,nodes -A -o json prints both"),
        (listed(ran("a", "p1")), "has no node: kubectl get pods,nodes -A -o json prints both"),
    ],
    ids=["nothing", "deep", "no pod", "no node"],
)
def test_what_has_no_past_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, problem: str
) -> None:
    code, out = imported(tmp_path, "kubernetes", text)
    assert code == 2
    assert problem in capsys.readouterr().err
    assert not out.exists()


def test_a_disk_that_is_full_at_the_end_leaves_nothing_either(tmp_path: Path) -> None:
    """A part of the journal was left, so that the same command found the directory not empty."""
    out = tmp_path / "out"
    file = JournalFile(out, "import-swf")
    file._file.close()
    file._file = open("/dev/full", "wb")  # noqa: SIM115
    file.put(framed(End(1.0, "over")))
    with pytest.raises(ConfigError, match="out: cannot be written to: No space left on device"):
        file.__exit__(None, None, None)
    assert not out.exists()


@pytest.mark.parametrize("more", ["mine", ""])
def test_a_directory_that_somebody_else_changed_meanwhile_ends_in_the_reason(
    tmp_path: Path, more: str
) -> None:
    """With a file of somebody else in it, or without its own, it ended in a traceback."""
    out = tmp_path / "out"
    file = JournalFile(out, "import-swf")
    (out / more).touch()
    if not more:
        file._path.unlink()
    with pytest.raises(ConfigError, match="a reason"), file:
        raise ConfigError("a reason")
    assert [path.name for path in out.parent.rglob("*")] == (["out", "mine"] if more else [])


def test_a_directory_that_nobody_can_make_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "jobs.swf"
    source.write_text(SWF)
    assert main(["import", "swf", str(source), str(tmp_path / ("x" * 300))]) == 2
    assert "cannot be written to: File name too long" in capsys.readouterr().err
    assert main(["import", "swf", str(source), str(source / "below")]) == 2
    assert "cannot be written to: Not a directory" in capsys.readouterr().err

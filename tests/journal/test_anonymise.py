"""`gangsched anonymise`: nothing of a hostile day's texts is left, and the same is decided."""

from __future__ import annotations

import errno
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangsched.command.cli import main
from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.journal.anonymise.anonymising import Anonymising, Done
from gangsched.journal.anonymise.command import _key
from gangsched.journal.anonymise.renaming import Renaming
from gangsched.journal.recorder import Recorder
from gangsched.journal.records import Start, State, Turn, framed
from gangsched.journal.segments import Reader, segments_in
from gangsched.journal.state import BuildCore, Given
from gangsched.lab.sim.wire.weather import STORM
from gangsched.model import events as ev
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.effects import BindPod
from gangsched.model.objects import CustomObject, Node, ObjectMeta, Pod
from gangsched.plugins import IN_TREE, build_profiles
from tests.journal.kept import Kept, recorded

KEY = bytes(range(32))
UID = "5e6f7a8b-{:04}-4c0d-8e1f-aabbccddeeff"
LONG = "verylongproject" * 200
SECRETS = (
    *("bluewhale", "Kraken", "octopus", "submarine", "narwhal-7b", "müller", "日本語", "frédérique"),
    *(
        "harpoon",
        "lighthouse",
        "deepsea.example.org",
        "9876543210",
        "5e6f7a8b",
        "aabbccddeeff",
        "10.77.66.55",
    ),
    *("jellyfish", "seahorse", "barnacle", "coral", "anemone", "plankton", "walrus", "cuttlefish", LONG),
)
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: submarine
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: deepsea.example.org/jellyfish, operator: NotIn, values: [harpoon]}]
---
apiVersion: gangsched.io/v1
kind: GangschedConfiguration
record: {directory: /home/frédérique/walrus}
"""


NOTE = 'not json: {"owner": frédérique, \\u00fc, [a-z]+(harpoon|coral).*$'
NESTED = json.dumps({"müller": ["9876543210", {"日本語": 'walrus "x"'}]})


def node(n: int) -> ev.Event:
    devices = [{"id": f"Kraken-{n}-{k}", "health": "Healthy", "numa": k // 2} for k in range(4)]
    body = {
        "metadata": {
            "name": f"octopus-{n}.deepsea.example.org",
            "uid": UID.format(n),
            "labels": {
                "kubernetes.io/hostname": f"octopus-{n}.deepsea.example.org",
                "topology.kubernetes.io/rack": f"lighthouse_{n % 2}",
                "deepsea.example.org/jellyfish": "Kraken",
                "deepsea.example.org/floor": str(n),
            },
            "annotations": {
                "gangsched.io/devices": json.dumps({"nvidia.com/gpu": devices}),
                "deepsea.example.org/note": NOTE,
                "deepsea.example.org/owner": NESTED,
            },
        },
        "status": {
            "allocatable": {
                "cpu": "64",
                "memory": "549755813888",
                "pods": "110",
                "nvidia.com/gpu": "4",
                "deepsea.example.org/plankton": "12345678901",
            },
            "images": [{"names": ["registry.deepsea.example.org/coral/anemone:v1.2"], "sizeBytes": 10**9}],
        },
    }
    return ev.NodeAdded(msgspec.convert(body, Node))


def pod(n: int, gang: str, namespace: str = "bluewhale", **spec: Any) -> Pod:
    body = {
        "metadata": {
            "name": f"{gang}-worker-{n}",
            "namespace": namespace,
            "uid": UID.format(1000 + n),
            "creationTimestamp": "2026-05-04T02:15:00Z",
            "resourceVersion": "123456789",
            "labels": {"app": "seahorse", "harpoon": "coral"},
            "annotations": {
                "gangsched.io/pod-group": gang,
                "gangsched.io/min-members": "2",
                "gangsched.io/topology": "preferred: topology.kubernetes.io/rack",
                "barnacle": LONG,
                "kubectl.kubernetes.io/last-applied-configuration": json.dumps(
                    {
                        "metadata": {
                            "name": gang,
                            "annotations": {"nested": json.dumps({"ip": "10.77.66.55"})},
                        }
                    },
                    ensure_ascii=True,
                ),
            },
            "ownerReferences": [
                {"kind": "Cuttlefish", "name": "cuttlefish", "uid": UID.format(7), "controller": True}
            ],
        },
        "spec": {
            "schedulerName": "submarine",
            "containers": [
                {
                    "name": "anemone",
                    "image": "registry.deepsea.example.org/coral/anemone:v1.2",
                    "resources": {
                        "requests": {"cpu": "1", "nvidia.com/gpu": "1", "deepsea.example.org/plankton": "5"}
                    },
                }
            ],
            "affinity": {
                "podAffinity": {
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {
                            "weight": 5,
                            "podAffinityTerm": {
                                "topologyKey": "topology.kubernetes.io/rack",
                                "labelSelector": {
                                    "matchExpressions": [
                                        {
                                            "key": "harpoon",
                                            "operator": "In",
                                            "values": ["coral", "^walrus.*$"],
                                        }
                                    ]
                                },
                            },
                        }
                    ]
                }
            },
            **spec,
        },
        "status": {
            "conditions": [
                {"type": "Ready", "status": "False", "message": "mount of barnacle failed: müller"}
            ]
        },
    }
    return msgspec.convert(body, Pod)


def build(given: Given) -> Scheduler:
    config = parse_config(CONFIG, source="", plugins=IN_TREE)
    return Scheduler(build_profiles(config), config.settings, wall_ahead_s=1e6, **given._asdict())


def answer_to(bind: BindPod) -> ev.Event:
    if bind.uid == UID.format(1011):
        return ev.BindFailed(bind.uid, bind.attempt, 403, "Forbidden", 'admission "walrus" denied müller')
    return ev.BindSucceeded(bind.uid, bind.attempt)


@cache
def hostile_day(per_segment: int = 10**9) -> Kept:
    kept = Kept(per_segment)
    recorder = Recorder(kept, first_of)
    scheduler = build(Given(None, recorder.picks, lambda defect: pytest.fail(defect.problem)))
    config = parse_config(CONFIG, source="", plugins=IN_TREE)

    def again(_: object) -> BuildCore:
        return build

    recorder.begin(scheduler, config, again, leading=True)
    group = CustomObject(
        ObjectMeta(name="narwhal-7b", namespace="bluewhale", uid=UID.format(5)),
        spec={"minMember": 2, "coral": ["walrus"]},
    )
    recorder.handle(
        [*map(node, range(6)), ev.PodGroupAdded("coscheduling", "scheduling.x-k8s.io/v1alpha1", group)], 1.0
    )
    recorder.handle([*map(ev.KindSynced, scheduler.kinds)], 1.5)
    day: list[tuple[float, list[ev.Event]]] = [
        (2.0, [ev.PodAdded(pod(n, "narwhal-7b")) for n in range(3)]),
        (3.0, [ev.PodAdded(pod(n + 10, "müller")) for n in range(2)]),
        (
            4.0,
            [
                ev.PodAdded(pod(n + 20, "日本語", nodeSelector={"deepsea.example.org/floor": "2"}))
                for n in range(2)
            ],
        ),
        (5.0, [ev.PodAdded(pod(n + 30, LONG[:60], nodeSelector={"barnacle": "coral"})) for n in range(2)]),
        (
            6.0,
            [
                ev.ObjectRefused(
                    "Pod", "bluewhale", "walrus", UID.format(99), "spec.frédérique: expected str", "submarine"
                )
            ],
        ),
        (
            7.0,
            [ev.GroupRejected(GroupKey("core", "bluewhale", "plankton"), "frédérique", "no harpoon today")],
        ),
    ]
    for now_s, events in day:
        recorder.handle(events, now_s)
        while (one := recorder.pop()) is not None:
            for effect in recorder.schedule(one, now_s):
                if isinstance(effect, BindPod):
                    recorder.handle([answer_to(effect)], now_s + 0.1)
    recorder.advance(60.0)
    recorder.end("the disk of frédérique is full", 61.0)
    return kept


def written(kept: Kept, directory: Path, n_dropped: int = 0) -> Path:
    """Its segments, without the first ones."""
    directory.mkdir(exist_ok=True)
    kept.write_to(directory)
    for segment in segments_in(directory)[:n_dropped]:
        segment.path.unlink()
    return directory


def texts_in(directory: Path) -> str:
    """All that is in it, decompressed, escapes of JSON read, and what they are called."""
    found = [one.name for one in directory.iterdir()]
    for segment in segments_in(directory):
        for record in Reader(segment.path):
            raw = framed(record)[8:].decode()
            found.append(raw)
            if isinstance(record, State):
                found.append(record.body.decode(errors="replace"))
            else:
                found += re.findall(r'"(?:[^"\\]|\\.)*"', raw.replace('\\"', '"'))
    whole = "\n".join(found)
    return whole + re.sub(r"\\u([0-9a-f]{4})", lambda one: chr(int(one[1], 16)), whole)


def n_turns_of(directory: Path) -> int:
    return sum(isinstance(record, Turn) for one in segments_in(directory) for record in Reader(one.path))


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "key"
    path.write_bytes(KEY)
    path.chmod(0o600)
    return str(path)


@pytest.mark.parametrize(("per_segment", "n_dropped"), [(10**9, 0), (9, 0), (9, 1)])
def test_nothing_of_a_hostile_day_is_left_and_it_replays(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str], per_segment: int, n_dropped: int
) -> None:
    day = written(hostile_day(per_segment), tmp_path / "day", n_dropped)
    out = tmp_path / "out"
    before = texts_in(day).lower()
    assert all(secret.lower() in before for secret in SECRETS if n_dropped == 0)
    assert main(["anonymise", str(day), str(out), "--key", key]) == 0, capsys.readouterr().out
    assert "up to names" in capsys.readouterr().out
    after = texts_in(out).lower()
    assert [secret for secret in SECRETS if secret.lower() in after] == []
    assert n_turns_of(out) == n_turns_of(day) > 5
    assert main(["replay", str(out)]) == 0
    assert "all as recorded" in capsys.readouterr().out


def test_why_there_is_a_gap_and_a_state_without_calls_before_it_are_renamed_too(tmp_path: Path) -> None:
    """As after a reload that began to record: no call is before its first segment."""
    kept = Kept()
    for one in hostile_day(9).records_of(2):
        if isinstance(one, Start):
            one = msgspec.structs.replace(one, n_before=0, gap="the disk of walrus is full: /home/frédérique")
        kept.put(framed(one))
    out = tmp_path / "out"
    out.mkdir()
    Anonymising(segments_in(written(kept, tmp_path / "day")), KEY).write(out)
    after = texts_in(out).lower()
    assert "the disk of " in after
    assert [secret for secret in SECRETS if secret.lower() in after] == []


@pytest.mark.parametrize("seed", range(4, 4 + int(os.environ.get("ANONYMISED_DAYS", "1"))))
def test_a_stormy_day_is_the_same_up_to_names_from_each_of_its_segments(tmp_path: Path, seed: int) -> None:
    """Kills, faults, several processes; backoffs and reservations are in the states that they begin with."""
    _, journals = recorded(seed, STORM, per_segment=100)
    n_began_late = 0
    for number, kept in enumerate(journals):
        for n_dropped in range(0, len(kept.segments), 2):
            day = written(kept, tmp_path / f"day{number}-{n_dropped}", n_dropped)
            out = tmp_path / f"out{number}-{n_dropped}"
            out.mkdir()
            done = Anonymising(segments_in(day), KEY).write(out)
            assert done.n_turns == n_turns_of(day), f"seed {seed}"
            n_began_late += n_dropped > 0
    assert n_began_late, f"seed {seed}"


def test_what_hangs_on_a_part_of_a_word_is_found_and_nothing_is_left(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue takes namespaces that begin with "blue", which is no word of theirs."""
    text = CONFIG + "queues:\n- {name: sea, namespaces: ['blue*'], limit: {nvidia.com/gpu: 0}}\n"
    day = written(limited_day(text), tmp_path / "day")
    out = tmp_path / "out"
    assert main(["anonymise", str(day), str(out), "--key", key]) == 1
    said = capsys.readouterr().out
    assert "A decision would be another one under other names, at call " in said
    assert "Nothing is left in" in said
    assert not out.exists()


def limited_day(text: str) -> Kept:
    config = parse_config(text, source="", plugins=IN_TREE)
    kept = Kept()
    recorder = Recorder(kept, first_of)
    scheduler = Scheduler(build_profiles(config), config.settings, pick=recorder.picks, wall_ahead_s=1e6)
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    recorder.handle([*map(node, range(2)), *map(ev.KindSynced, scheduler.kinds)], 1.0)
    recorder.handle([ev.PodAdded(pod(n, "coral")) for n in range(2)], 2.0)
    while (one := recorder.pop()) is not None:
        recorder.schedule(one, 3.0)
    return kept


def test_a_day_that_does_not_replay_is_reported(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept()
    for one in hostile_day().records:
        is_attempt = isinstance(one, Turn) and one.do == "schedule"
        kept.put(framed(msgspec.structs.replace(one, effects="0" * 16) if is_attempt else one))
    day = written(kept, tmp_path / "day")
    out = tmp_path / "out"
    out.mkdir()
    assert main(["anonymise", str(day), str(out), "--key", key]) == 1
    assert "The journal itself does not replay here: call " in capsys.readouterr().out
    assert list(out.iterdir()) == []


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "mode", "problem"),
    [
        (None, 0, "No such file or directory; `openssl rand -out FILE 32; chmod 600 FILE` makes one"),
        (b"", 0o600, "has 0 bytes, 16 to 4096 are needed"),
        (b"k" * 15, 0o600, "has 15 bytes, 16 to 4096 are needed"),
        (b"k" * 5000, 0o600, "has more than 4096 bytes, 16 to 4096 are needed"),
        (
            b"root:x:0:0:root:/root:/bin/bash\n" * 9,
            0o644,
            "has lines of text, and is no key that nobody could",
        ),
        (
            b"kind: Pod\n\tname: a\n",
            0o600,
            "has lines of text, and is no key that nobody could guess; `openssl",
        ),
        (b"x" * 5000, 0o644, "has more than 4096 bytes"),
        (KEY, 0o640, "has mode 0640, so others have it too: chmod 600"),
        (KEY, 0o604, "has mode 0604, so others have it too: chmod 600"),
    ],
)
def test_a_bad_key_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: bytes | None, mode: int, problem: str
) -> None:
    day = written(hostile_day(), tmp_path / "day")
    path = tmp_path / "key"
    if body is not None:
        path.write_bytes(body)
        path.chmod(mode)
    assert main(["anonymise", str(day), str(tmp_path / "out"), "--key", str(path)]) == 2
    assert problem in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "body",
    [
        bytes(range(256)),
        b"\n\xff" * 16,
        b"correct horse battery staple\n",
        b"\n".join([b"QUJD" * 16] * 4) + b"\n",
        b"-----BEGIN PRIVATE KEY-----\n" + b"QUJD" * 16 + b"\n-----END PRIVATE KEY-----\n",
    ],
)
def test_what_makers_of_keys_write_is_a_key(tmp_path: Path, body: bytes) -> None:
    path = tmp_path / "key"
    path.touch(mode=0o600)
    path.write_bytes(body)
    assert _key(path) == body


def test_a_directory_without_a_journal_is_refused(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "day").mkdir()
    assert main(["anonymise", str(tmp_path / "day"), str(tmp_path / "out"), "--key", key]) == 2
    assert "has no journal: no file named *.journal.zst" in capsys.readouterr().err


def test_a_directory_that_is_not_empty_is_left_alone(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str]
) -> None:
    day = written(hostile_day(), tmp_path / "day")
    before = [path.read_bytes() for path in day.iterdir()]
    assert main(["anonymise", str(day), str(day), "--key", key]) == 2
    assert "is not empty: give an empty directory, or a new one" in capsys.readouterr().err
    assert [path.read_bytes() for path in day.iterdir()] == before


def test_files_that_somebody_else_put_there_meanwhile_stay(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in OUT was deleted, also what a second run of the command had written, which found it empty too."""
    day, out = written(hostile_day(), tmp_path / "day"), tmp_path / "out"
    write = Anonymising.write

    def full(self: Anonymising, where: Path) -> Done:
        write(self, where)
        (where / "below").mkdir()
        (where / "mine").write_text("mine")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Anonymising, "write", full)
    assert main(["anonymise", str(day), str(out), "--key", key]) == 2
    assert "out: cannot be written: No space left on device" in capsys.readouterr().err
    assert sorted(path.name for path in out.iterdir()) == ["below", "mine"]


def test_a_directory_that_vanishes_meanwhile_is_reported(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day, out = written(hostile_day(), tmp_path / "day"), tmp_path / "out"
    settle = Renaming.settle

    def gone(self: Renaming) -> None:
        settle(self)
        out.rmdir()

    monkeypatch.setattr(Renaming, "settle", gone)
    assert main(["anonymise", str(day), str(out), "--key", key]) == 2
    assert "out: cannot be written: No such file or directory" in capsys.readouterr().err


def test_what_cannot_be_taken_back_is_reported(
    tmp_path: Path, key: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    day, out = written(hostile_day(), tmp_path / "day"), tmp_path / "out"
    write = Anonymising.write

    def replaced(self: Anonymising, where: Path) -> Done:
        write(self, where)
        for path in where.iterdir():
            path.unlink()
        where.rmdir()
        where.touch()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Anonymising, "write", replaced)
    assert main(["anonymise", str(day), str(out), "--key", key]) == 2
    assert ".journal.zst: is incomplete, and cannot be deleted: Not a directory" in capsys.readouterr().err

"""`gangsched anonymise` of days of Indexed Jobs, whose pods are named by index and at random."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import msgspec
import pytest

from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.journal.anonymising import Anonymising
from gangsched.journal.recorder import Recorder
from gangsched.journal.segments import segments_in
from gangsched.model import events as ev
from gangsched.model.effects import BindPod
from gangsched.model.objects import Pod
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.sim.objects import make_node
from tests.journal.kept import Kept
from tests.journal.test_anonymise import texts_in

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: gangsched}]
"""
SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


def suffix_of(rng: Random) -> str:
    return "".join(rng.choices(SUFFIX, k=5))


def pods_of_job(rng: Random, name: str) -> list[Pod]:
    """As the Job controller makes them, and as the watch brings them: in any order."""
    job_uid = str(UUID(int=rng.getrandbits(128)))
    made = []
    for index in range(12):
        labels = {
            "batch.kubernetes.io/controller-uid": job_uid,
            "batch.kubernetes.io/job-name": name,
            "batch.kubernetes.io/job-completion-index": str(index),
            "gangsched.io/pod-group": name,
        }
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job_uid, "controller": True}
        meta = {
            "name": f"{name}-{index}-{suffix_of(rng)}",
            "generateName": f"{name}-{index}-",
            "namespace": "whales",
            "uid": str(UUID(int=rng.getrandbits(128))),
            "labels": labels,
            "annotations": {
                "batch.kubernetes.io/job-completion-index": str(index),
                "gangsched.io/min-members": "4",
            },
            "ownerReferences": [owner],
        }
        container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
        spec = {"schedulerName": "gangsched", "hostname": f"{name}-{index}", "containers": [container]}
        made.append(msgspec.convert({"metadata": meta, "spec": spec}, Pod))
    rng.shuffle(made)
    return made


def day_of_jobs(rng: Random) -> tuple[Kept, list[str]]:
    """More than fits, so that some pods of each Job wait; and the suffixes in it."""
    config = parse_config(CONFIG, source="", plugins=IN_TREE)
    kept = Kept()
    recorder = Recorder(kept, first_of)
    scheduler = Scheduler(build_profiles(config), config.settings, pick=recorder.picks, wall_ahead_s=0.0)
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    nodes = [f"gke-pool-9c4f2b7d-{suffix_of(rng)[:4]}-{at}" for at in range(5)]
    recorder.handle([ev.NodeAdded(make_node(name, gpus=4)) for name in nodes], 1.0)
    recorder.handle([*map(ev.KindSynced, scheduler.kinds)], 1.0)
    suffixes = []
    for at, name in enumerate(["narwhal-7b", "orca", f"orca-{suffix_of(rng)}"]):
        pods = pods_of_job(rng, name)
        suffixes += [one.metadata.name.rpartition("-")[2] for one in pods]
        recorder.handle([*map(ev.PodAdded, pods)], 2.0 + at)
        while (group := recorder.pop()) is not None:
            for effect in recorder.schedule(group, 2.0 + at):
                if isinstance(effect, BindPod):
                    recorder.handle([ev.BindSucceeded(effect.uid, effect.attempt)], 2.5 + at)
    recorder.end("the scheduler stopped", 9.0)
    return kept, suffixes


@pytest.mark.parametrize("seed", range(12))
def test_a_day_of_indexed_jobs_is_written_whatever_their_suffixes_are(tmp_path: Path, seed: int) -> None:
    kept, suffixes = day_of_jobs(Random(seed))
    (tmp_path / "day").mkdir()
    (tmp_path / "out").mkdir()
    kept.write_to(tmp_path / "day")
    done = Anonymising(segments_in(tmp_path / "day"), bytes(range(32))).write(tmp_path / "out")
    assert done.n_effects > 20
    after = texts_in(tmp_path / "out")
    assert [one for one in (*suffixes, "narwhal", "orca", "whales") if one in after] == []

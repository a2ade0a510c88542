"""`gangsched anonymise` of days of Jobs, whose pods are named by index and at random, or by what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from uuid import UUID

import msgspec
import pytest

from gangsched.config import parse_config
from gangsched.core.framework.plan import first_of
from gangsched.core.scheduler import Scheduler
from gangsched.journal.anonymise.anonymising import Anonymising
from gangsched.journal.recorder import Recorder
from gangsched.journal.segments import segments_in
from gangsched.lab.sim.objects import make_node
from gangsched.model import events as ev
from gangsched.model.effects import BindPod
from gangsched.model.objects import Pod
from gangsched.plugins import IN_TREE, build_profiles
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


def pods_of_roles(rng: Random, name: str) -> list[Pod]:
    """As the training operators make them: no suffix, and a short word for what each does."""
    made = []
    for role, n in (("ps", 3), ("chief", 1), ("eval", 2), ("worker", 6)):
        for index in range(n):
            meta = {
                "name": f"{name}-{role}-{index}",
                "namespace": "whales",
                "uid": str(UUID(int=rng.getrandbits(128))),
                "labels": {"gangsched.io/pod-group": name},
                "annotations": {"gangsched.io/min-members": "12"},
            }
            container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "1"}}}
            spec = {"schedulerName": "gangsched", "containers": [container]}
            made.append(msgspec.convert({"metadata": meta, "spec": spec}, Pod))
    rng.shuffle(made)
    return made


def day_of_jobs(
    rng: Random, names: Sequence[str], pods_of: Callable[[Random, str], list[Pod]]
) -> tuple[Kept, list[str]]:
    """More than fits, so that some pods wait; and the last parts of their names."""
    config = parse_config(CONFIG, source="", plugins=IN_TREE)
    kept = Kept()
    recorder = Recorder(kept, first_of)
    scheduler = Scheduler(build_profiles(config), config.settings, pick=recorder.picks, wall_ahead_s=0.0)
    recorder.begin(scheduler, config, lambda _: pytest.fail("no state is asked for"), leading=True)
    nodes = [f"gke-pool-9c4f2b7d-{suffix_of(rng)[:4]}-{at}" for at in range(5)]
    recorder.handle([ev.NodeAdded(make_node(name, gpus=4)) for name in nodes], 1.0)
    recorder.handle([*map(ev.KindSynced, scheduler.kinds)], 1.0)
    suffixes = []
    for at, name in enumerate(names):
        pods = pods_of(rng, name)
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
    rng = Random(seed)
    kept, suffixes = day_of_jobs(rng, ["narwhal-7b", "orca", f"orca-{suffix_of(rng)}"], pods_of_job)
    after = written(kept, tmp_path)
    assert [one for one in (*suffixes, "narwhal", "orca", "whales") if one in after] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_day_of_jobs_with_roles_and_ranks_by_length_is_written(tmp_path: Path, seed: int) -> None:
    kept, _ = day_of_jobs(Random(seed), ["orca", "orca-7b"], pods_of_roles)
    after = written(kept, tmp_path)
    assert [one for one in ("orca", "chief", "whales", "-ps-") if one in after] == []


def written(kept: Kept, directory: Path) -> str:
    """All texts of the day under other names."""
    (directory / "day").mkdir()
    (directory / "out").mkdir()
    kept.write_to(directory / "day")
    done = Anonymising(segments_in(directory / "day"), bytes(range(32))).write(directory / "out")
    assert done.n_effects > 20
    return texts_in(directory / "out")

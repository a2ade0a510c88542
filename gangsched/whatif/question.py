"""The changes asked about beside the job, and the trial of both on a snapshot. Pure: no file, no socket.
Lives here: the question, and refusing jobs that this scheduler would never see. Not here: reading manifests
(manifests), what a trial does (trial). Called by the command, and by the dashboard's port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from gangsched.config.strict import nearest
from gangsched.errors import ConfigError
from gangsched.model.objects import Pod
from gangsched.model.printable import several
from gangsched.snapshot import Snapshot
from gangsched.whatif.answer import Answer, answer
from gangsched.whatif.manifests import Manifests
from gangsched.whatif.trial import Trial

ASKED_AT = "/dashboard/whatif"
"""Where a running scheduler answers."""
TOGETHER = "--add-nodes N and --like NODE go together"


class Question(msgspec.Struct, frozen=True):
    """add_nodes: how many copies of the node `like` to add. drain: nodes. without: gangs or pods. preempt:
    less important pods may be evicted for the job."""

    add_nodes: int = 0
    like: str = ""
    drain: Sequence[str] = ()
    without: Sequence[str] = ()
    preempt: bool = False


_Name = Annotated[str, Meta(max_length=600)]
_Names = Annotated[list[_Name], Meta(max_length=50)]


class Asked(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """What a running scheduler is sent: a Question, and the job as YAML. namespace: of objects that name
    none."""

    yaml: str
    add_nodes: Annotated[int, Meta(ge=0, le=10_000)] = 0
    like: _Name = ""
    drain: _Names = []
    without: _Names = []
    preempt: bool = False
    namespace: _Name = "default"


def check(manifests: Manifests, snapshot: Snapshot, served: Sequence[str], *, way: str) -> None:
    """Refuses pods that this scheduler would never see, and names that are taken. `way`: advice for a pod
    with another schedulerName. Raises: ConfigError."""
    taken = {pod.key for pod in snapshot.pods}
    running = Counter(owner for pod in snapshot.pods if (owner := _owner(pod)))
    for pod in manifests.pods:
        if (name := pod.spec.scheduler_name) not in served:
            raise ConfigError(
                f"pod {pod.key}: names the scheduler {name!r}{nearest(name, served)}; this"
                f" configuration serves {', '.join(served)}: {way}",
                path="spec.schedulerName",
            )
        if pod.key in taken:
            raise ConfigError(f"pod {pod.key} exists already: gangsched explain {pod.key}")
        owner = _owner(pod)
        if owner in running:
            raise ConfigError(
                f"{owner} exists already, with {several(running[owner], 'pod')}, and these would join them:"
                " ask gangsched explain about it, or give it another name here"
            )


def _owner(pod: Pod) -> str:
    """The object whose controller makes the pod, by kind, namespace and name; "" for a pod without one."""
    owner = pod.metadata.controller
    return f"{owner.kind} {pod.metadata.namespace}/{owner.name}" if owner is not None else ""


def examine(
    question: Question, snapshot: Snapshot, manifests: Manifests, now_s: float, now: datetime
) -> Answer:
    """Runs the trial of the job on the snapshot, which is used up. Raises: ConfigError."""
    if bool(question.add_nodes) != bool(question.like):
        raise ConfigError(TOGETHER)
    trial = Trial(snapshot, now_s)
    trial.settle()
    changes = []
    if question.add_nodes:
        added = trial.add_nodes(question.add_nodes, question.like)
        changes.append(f"{len(added)} more like {question.like}")
    for name in question.drain:
        changes.append(f"{name} drained, {several(trial.drain(name), 'pod')} gone from it")
    for name in question.without:
        changes.append(f"without {name}, {several(trial.without(name), 'pod')}")
    trial.settle()
    trial.submit(manifests.pods, manifests.others)
    trial.settle()
    return answer(trial, manifests.pods, changes, snapshot.unread, now)

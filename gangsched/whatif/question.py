"""The proposed changes besides the job, and the trial of both on a snapshot. Pure: no file, no socket. Lives
here: the question, and rejecting jobs that this scheduler would never see. Not here: reading manifests
(manifests), what a trial does (trial). Called by the command, and by the dashboard's port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from gangsched.command.snapshot import Snapshot, as_seen
from gangsched.core.explaining.explain import explain
from gangsched.errors import ConfigError
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean, one_line, several
from gangsched.reading.strict import nearest
from gangsched.whatif.answer import Answer, answer, refused_gangs
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
    """A request to a running scheduler: a Question and the job as YAML. namespace: the default one."""

    yaml: str
    add_nodes: Annotated[int, Meta(ge=0, le=10_000)] = 0
    like: _Name = ""
    drain: _Names = []
    without: _Names = []
    preempt: bool = False
    namespace: _Name = "default"


def check(manifests: Manifests, snapshot: Snapshot, served: Sequence[str], *, way: str) -> Manifests:
    """Returns them without the pods of other schedulers. `way`: advice for a pod with another schedulerName.
    Raises: ConfigError, if this scheduler would never see any of the pods, for a name that is misspelt, and
    for names that are taken."""
    own, others = [], Counter[str]()
    for pod in manifests.pods:
        name = pod.spec.scheduler_name
        if name in served:
            own.append(pod)
        elif hint := nearest(name, served):
            raise _not_served(pod, served, hint, way)
        else:
            others[name] += 1
    if not own and manifests.pods:
        raise _not_served(manifests.pods[0], served, "", way)
    taken = {pod.key for pod in snapshot.pods}
    running = Counter(owner for pod in snapshot.pods if (owner := _owner(pod)))
    for pod in own:
        if pod.key in taken:
            raise ConfigError(f"pod {pod.key} exists already: gangsched explain {pod.key}")
        owner = _owner(pod)
        if owner in running:
            raise ConfigError(
                f"{owner} exists already, with {several(running[owner], 'pod')}, and these would join them:"
                " ask gangsched explain about it, or give it another name here"
            )
    notes = [
        f"{several(n, 'pod')} of the scheduler {one_line(name[:80])}: left out" for name, n in others.items()
    ]
    return manifests._replace(pods=own, notes=[*manifests.notes, *notes])


def _not_served(pod: Pod, served: Sequence[str], hint: str, way: str) -> ConfigError:
    return ConfigError(
        f"pod {pod.key}: names the scheduler {pod.spec.scheduler_name!r}{hint}; this"
        f" configuration serves {', '.join(served)}: {way}",
        path="spec.schedulerName",
    )


def _owner(pod: Pod) -> str:
    """Returns the object whose controller makes the pod, by kind, namespace and name; "" if there is none."""
    owner = pod.metadata.controller
    return f"{owner.kind} {pod.metadata.namespace}/{owner.name}" if owner is not None else ""


def examine(
    question: Question, snapshot: Snapshot, manifests: Manifests, now_s: float, now: datetime
) -> Answer:
    """Runs the trial of the job on the snapshot, which it changes. Raises: ConfigError."""
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
    found = answer(trial, manifests.pods, changes, snapshot.unread, now)
    warnings = [clean(one) for one in manifests.warnings]
    gangs = [*found.gangs, *refused_gangs(manifests.refused)]
    found = replace(found, gangs=gangs, notes=[*manifests.notes, *trial.assumed], warnings=warnings)
    return found if not snapshot.hidden else _as_seen(snapshot, trial, manifests.pods, found)


def _as_seen(snapshot: Snapshot, trial: Trial, pods: Sequence[Pod], found: Answer) -> Answer:
    """Returns the answer of a user who may not see all nodes and pods: nothing is claimed about room."""
    groups = {str(group.key): group for pod in pods if (group := trial.group_of(pod)) is not None}
    gangs = []
    for gang in found.gangs:
        if (group := groups.get(gang.name)) is not None and gang.starts != "unread":
            explanation = gang.why or explain(trial.core, group, trial.now_s)
            why = as_seen(snapshot, group, explanation, on_trial=True)
            unplaced = gang.unplaced + [member.name for member in gang.members]
            gang = replace(gang, starts="not", members=[], unplaced=unplaced, why=why, in_s=None, after=[])
        gangs.append(gang)
    return replace(found, gangs=gangs, evicted=[])

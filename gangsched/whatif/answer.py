"""The result of a trial, as a value for people and programs: a part for each gang of the job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from gangsched.core.explaining.explain import Explanation, explain, without_effect
from gangsched.core.types.group import Group
from gangsched.model.objects import Pod
from gangsched.model.text.printable import clean, several
from gangsched.whatif.admission import Refused
from gangsched.whatif.trial import Trial

Starts = Literal["now", "later", "not", "unread"]
_MAX_NAMED = 20
_UNREAD = "the scheduler's own code failed on it: its log would say where"


class Member(msgspec.Struct, frozen=True, rename="camel"):
    """devices: IDs by resource, over all containers; of resource claims: names by driver."""

    name: str
    node: str
    devices: dict[str, list[str]]


class Gang(msgspec.Struct, frozen=True, rename="camel"):
    """starts: now; later, at a time derived from stated ends; not, as far as known; unread: it does not form
    a group, for the reason in problem. in_s, at, after: when it starts later, and after the end of which
    pods. why: the reason if it does not start now. ignored: mistakes in it that do not prevent the start.
    """

    name: str
    scheduler: str
    starts: Starts
    members: list[Member]
    unplaced: list[str]
    in_s: float | None = None
    at: datetime | None = None
    after: list[str] = []
    why: Explanation | None = None
    problem: str = ""
    ignored: list[str] = []


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """changes: the proposed changes besides the job, in words. evicted: pods that it would preempt. endless:
    running pods that state no end, without those of DaemonSets and of kubelet. unread: kinds that could not
    be listed. notes: what of the files is left out, and what is assumed. warnings: fields of the files that
    are probably mistakes, although the API server takes them.
    """

    gangs: list[Gang]
    changes: list[str]
    evicted: list[str]
    endless: int
    unread: list[str]
    notes: list[str] = []
    warnings: list[str] = []

    @property
    def starts_now(self) -> bool:
        """Whether each member of each gang starts now."""
        return all(gang.starts == "now" and not gang.unplaced for gang in self.gangs)


def answer(
    trial: Trial, pods: Sequence[Pod], changes: list[str], unread: Sequence[str], now: datetime
) -> Answer:
    """Returns the answer for a job that was submitted to the trial and has settled. Looks ahead if not all of
    it starts.
    """
    by_group: dict[int, tuple[Group | None, list[Pod]]] = {}
    for pod in pods:
        group = trial.group_of(pod)
        by_group.setdefault(id(group) if group is not None else -len(by_group) - 1, (group, []))[1].append(
            pod
        )
    gangs = [_gang(trial, group, members) for group, members in by_group.values()]
    evicted = [clean(pod.key) for pod in trial.evicted]
    endless = trial.endless()
    waiting = [(i, members) for i, (_, members) in enumerate(by_group.values()) if gangs[i].starts == "not"]
    waits = trial.wait_for([members for _, members in waiting], now)
    for (i, _), (in_s, after) in zip(waiting, waits, strict=True):
        if in_s is None:
            continue  # no pod with a known end helps
        named = [clean(name) for name in after[:_MAX_NAMED]]
        at = now + timedelta(seconds=in_s)
        gangs[i] = msgspec.structs.replace(gangs[i], starts="later", in_s=round(in_s, 1), at=at, after=named)
    return Answer(gangs, changes, evicted, endless, [clean(one) for one in unread])


def refused_gangs(refused: Sequence[Refused]) -> list[Gang]:
    """Returns a part for each object of which the API server would refuse pods."""
    by_owner: dict[str, list[Refused]] = {}
    for one in refused:
        by_owner.setdefault(one.of, []).append(one)
    return [
        Gang(
            clean(name),
            clean(pods[0].scheduler),
            "unread",
            [],
            [clean(one.pod) for one in pods],
            problem=clean(f"the API server would refuse {several(len(pods), 'pod')} of it: {pods[0].reason}"),
        )
        for name, pods in by_owner.items()
    ]


def _gang(trial: Trial, group: Group | None, pods: Sequence[Pod]) -> Gang:
    members = []
    for pod in pods:
        if (found := trial.bound.get(pod.metadata.uid)) is None:
            continue
        node, allocation = found
        devices: dict[str, list[str]] = {}
        for by_resource in allocation.values():
            for resource, ids in by_resource.items():
                held = devices.setdefault(clean(resource), [])
                held += [clean(one) for one in ids if clean(one) not in held]
        for claim in trial.core.claims_of(pod):
            given = claim.status.allocation
            for one in given.devices.results if given is not None else ():
                devices.setdefault(clean(one.driver), []).append(clean(one.device))
        members.append(Member(clean(pod.metadata.name), clean(node), devices))
    unplaced = [clean(pod.metadata.name) for pod in pods if pod.metadata.uid not in trial.bound]
    scheduler = clean(pods[0].spec.scheduler_name)
    if group is None:
        return Gang(clean(pods[0].key), scheduler, "unread", [], unplaced, problem=_UNREAD)
    name = clean(str(group.key))
    if members:
        ignored = [clean(one) for one in without_effect(trial.core, group)]
        return Gang(name, scheduler, "now", members, unplaced, ignored=ignored)
    return Gang(name, scheduler, "not", [], unplaced, why=explain(trial.core, group, trial.now_s))

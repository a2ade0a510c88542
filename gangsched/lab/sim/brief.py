"""Events and effects, shortened for the story of a broken invariant (lab.sim.driver)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gangsched.model import effects as ef
from gangsched.model import events as ev


def briefly(subject: Any) -> str:
    return ", ".join(map(_brief, subject)) if isinstance(subject, Sequence) else _brief(subject)


def _brief(what: ev.Event | ef.Effect) -> str:
    name = type(what).__name__
    if isinstance(what, ev.PodAdded | ev.PodUpdated | ev.PodDeleted):
        pod = what.pod
        leaving = " leaving" if pod.metadata.deletion_timestamp else ""
        state = f"{pod.spec.node_name} {pod.status.phase}{leaving}"
        return f"{name}({pod.metadata.uid} v{pod.metadata.resource_version} {state})"
    if isinstance(what, ev.PodRead):
        return f"{name}({what.uid} {what.pod.spec.node_name if what.pod else None})"
    if isinstance(what, ef.BindPod):
        return f"{name}({what.uid} {what.node} #{what.attempt})"
    if isinstance(what, ev.NodeAdded | ev.NodeUpdated | ev.NodeDeleted):
        return f"{name}({what.node.metadata.name})"
    if isinstance(what, ef.EvictPod | ef.DeletePod | ef.NominateNode):
        return f"{name}({what.uid} {what.cause_id} {getattr(what, 'node', '')})"
    if isinstance(what, ef.WritePodCondition | ef.RecordEvent):
        return f"{name}({what.name}: {what.reason} {what.message[:120]})"
    if isinstance(what, ef.RunHook):
        return f"{name}({what.ticket} {what.point} {what.plugin} {what.pod.key if what.pod else what.group})"
    if isinstance(what, ev.HookAnswered):
        return f"{name}({what.ticket} {what.code} {what.reason})"
    if isinstance(what, ef.CancelBinds):
        return f"{name}({what.cause_id})"
    uid = getattr(what, "uid", getattr(what, "kind", ""))
    return f"{name}({uid}{' ' + str(what.code) if isinstance(what, ev.BindFailed) else ''})"

"""What a group waits for that has resource claims: for them to be made, to be written, or to be prepared.

Called by core.explaining.explain. Not here: which devices are short (resource_claims).
"""

from __future__ import annotations

from gangsched.core.binding.claim_writes import awaited
from gangsched.core.device_audit.claimed_devices import PREPARED_WITHIN_S, waits_for_devices
from gangsched.core.explaining.room import Found
from gangsched.core.resource_claims.pod_claims import used_claims
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, MemberState
from gangsched.model.text.printable import several


def without_claims(scheduler: Scheduler, group: Group, now_s: float) -> Found | None:
    """What its pods with claims wait for, if that keeps them out of the queue."""
    book = scheduler.shared.cache.claims
    for info in group.in_state(MemberState.GATED):
        if not info.pod.spec.resource_claims or not (problem := book.problem(info.pod)):
            continue
        missing = next((used.entry for used in used_claims(info.pod) if used.name is None), None)
        entries = {one.name: one.resource_claim_template_name for one in info.pod.spec.resource_claims}
        if missing is None or not (template := entries.get(missing)):
            return Found(
                f"Resource claims keep {several(group.counts[MemberState.GATED], 'pod')} of it out of the"
                f" queue: {problem}.",
                ("Fix what is named: kubectl get resourceclaims.",),
            )
        return Found(
            f"Pod {info.pod.metadata.name} has had no resource claim for {now_s - group.since_s:.0f} s: the"
            f" ResourceClaimTemplate {template} does not exist in {group.key.namespace}, or"
            " kube-controller-manager, which makes claims from it, has not done so yet.",
            (
                f"kubectl -n {group.key.namespace} get resourceclaimtemplates {template}: create it if it is"
                " missing. If it is there, see whether kube-controller-manager runs.",
            ),
        )
    return None


def claims_written(scheduler: Scheduler, group: Group, now_s: float) -> Found | None:
    """How far its resource claims are, while they keep it from being bound."""
    uses = scheduler.shared.claim_uses
    uids = dict.fromkeys(
        uid for info in group.in_state(MemberState.ASSUMED) for uid in uses.of_pod.get(info.uid, ())
    )
    records = [uses.records[uid] for uid in uids]
    if unwritten := [one for one in records if not scheduler.binder.claims.is_written(one)]:
        n = len(records) - len(unwritten)
        return Found(
            f"Its resource claims are being written: {n} of {len(records)} are reserved for it, as far as the"
            " watch shows.",
            ("See whether the API server answers: kubectl get --raw /readyz.",),
            then="It is bound when all of them are; if one cannot be had, all are given back.",
        )
    for record in records:
        if record.latest is not None and (still := awaited(record.latest)):
            left_s = max(uses.until_s.due_s(record.uid) - now_s, 0.0)
            return Found(
                f"Its resource claims are reserved, and {record.latest.key} waits for {still[0]}.",
                ("See what the device's driver says: kubectl describe resourceclaims.",),
                then=f"It waits for up to {left_s:.0f} s; then all of its claims are given back.",
            )
    return None


def not_prepared(group: Group, now_s: float) -> Found | None:
    """Pods that are bound with claims, and that kubelet has not begun to start when there is an event."""
    idle = [
        info.pod
        for info in group.in_state(MemberState.BOUND)
        if info.pod.uses_claims and waits_for_devices(info.pod)
    ]
    if not idle or now_s - group.since_s < PREPARED_WITHIN_S:
        return None
    name, node, n = idle[0].metadata.name, idle[0].spec.node_name, several(len(idle), "pod")
    return Found(
        f"It has been bound for {now_s - group.since_s:.0f} s, and kubelet has not begun to start {n} of it"
        f" with resource claims: {name}, on {node}. As it seems, its devices are not prepared.",
        (
            f"kubectl -n {group.key.namespace} describe pod {name}: an event FailedPrepareDynamicResources"
            f" says why. Without one, see whether the devices' driver runs on {node}.",
        ),
    )

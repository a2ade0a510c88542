"""The judges of the simulation by name: what each holds to be so, in every storm that it looks on in.

A violation begins with its judge's name. docs/judges.md is printed from this; the judges themselves are in
the modules of this room, beside what they need to know, and share no code with the scheduler.
"""

from __future__ import annotations

JUDGES: dict[str, str] = {
    # Promises about places and devices.
    "room": "A bind goes to a node that exists, is open to the pod, and has room for all that it asks.",
    "one-holder": "No device ID is on two live pods, bound or promised.",
    "known-devices": "An ID is given only where it is known which live pod has which device.",
    "devices-as-asked": "A pod gets devices as it asks for them: the number, NUMA, links, attributes, IDs.",
    "devices-as-bound": "Annotations, records and what kubelet gave agree with the bind that was sent.",
    "failed-devices": "A pod with a failed device is evicted by its policy, neither early nor late.",
    "pod-constraints": "Selectors, affinity, tolerations, spread and ports hold where a pod is placed.",
    "topology": "Members are in one domain where their gang requires one.",
    "volumes-reached": "A bound pod reaches its volumes.",
    "volumes-for-one-pod": "A claim for a single pod is used by one pod only.",
    "volumes-counted": "No node has more volumes attached than it takes.",
    "volumes-given-once": "No volume is given to two claims.",
    "volumes-bound-first": "All claims of a bound pod are bound.",
    "volumes-found": "At rest no group waits that would find its room and its volumes.",
    "links-kept": "Pods require no more of a link than it has, and none is placed by an old report.",
    "device-in-one-claim": "No device, and no more of a counter than there is, is given to two claims.",
    "claims-as-asked": "An allocation has the devices that its claim asks for.",
    "claims-kept": "A claim is allocated only with the finalizer that keeps it.",
    "entries-of-others": "No write takes off an entry of another scheduler's pod, or of a bound one.",
    "claims-before-binds": "A pod is bound where all its claims are allocated and reserved for it, a gang's "
    "first pod once all members' are; none by a device that another had before.",
    "claims-given-back": "At rest no device is kept, promised or written for a pod that is not bound.",
    "claims-found": "At rest no group waits for devices that a fresh process finds for it.",
    # Promises about gangs.
    "starts-whole": "When a gang's first bind is sent, all members that it needs are reserved, of each role.",
    "sets-start-together": "Groups that name one another start together, and wait for no other group.",
    "whole-in-time": "After faults end, no gang stays bound in part for longer than the settle limit.",
    "partial-bind-policy": "A gang bound in part is completed or unwound in time, as its policy states.",
    "refused-members": "A gang of which kubelet has refused a member is not left in part.",
    "restarts": "A restart or a takeover evicts nothing that would run on without it; marks are true.",
    "gangs-not-torn": "Preemption leaves enough of a gang, or nothing of it.",
    "ranks-unique": "No two members that stay have one rank.",
    "room-held-briefly": "A gang holds room no longer than it, or the configuration, states.",
    # Nothing waits for ever, nothing leaks.
    "nothing-starves": "At rest a fresh process finds nothing to bind that this one has left.",
    "nothing-forgotten": "Every pod is in one group, and every group has a deadline or a named cure.",
    "nothing-leaks": "At rest nothing is reserved, nominated or claimed but for groups that wait.",
    "cache-is-store": "With no request and no event in flight the cache holds what a list would show.",
    "woken-in-time": "No group rests as unschedulable while it would fit.",
    "free-room-used": "No group waits for long while it fits on free room, whatever its state.",
    "overtaking": "No younger group takes room that a waiting one could use, unless it is more important.",
    "bypass-bound": "No complete gang is overtaken by more groups than its bound.",
    "no-endless-refusals": "No group is refused over and over within a moment.",
    # The core's own recount (core.turns.invariants), which a running process can do, too.
    "core": "The core breaks none of its own invariants, and raises nothing.",
    "counts": "Counts on nodes, by priority and by template are the sums over pods.",
    "groups": "Groups and their members refer to one another, and what is in line is in the queue.",
    "reservations": "Room is reserved, nominated and claimed only for groups in a state that waits for it.",
    "holes": "Places of lost members are kept only for running gangs that lack as many, and for a time.",
    "templates": "A pod that waits is placed by what it needs of claims and classes now.",
    "late-binds": "No pod that holds nothing has a Binding that may still land.",
    "logged": "No process logs a fault of its own.",
    # Preemption and queues.
    "preemption-used": "At rest no group waits for room from which less important pods could be evicted.",
    "victims-once": "A group that waits for victims takes no more for the same room, and none in vain.",
    "evictions-allowed": "Nothing is evicted that the configuration does not allow to be.",
    "guarantees-kept": "No queue loses to another what is guaranteed to it.",
    "guarantees-given-back": "What others borrow is given back to a group within its queue's guarantee.",
    "guarantees-soon": "A group within its guarantee starts soon after enough could be taken back for it.",
    "limits-kept": "No queue takes more than its limit, and no group is overtaken at a limit for ever.",
    # Room kept for groups that were overtaken, and stated ends.
    "claim-bound": "No group is overtaken more often than the bound before room is kept for it.",
    "claim-room-kept": "Pods that start while room is kept leave it, and its device IDs, free in time.",
    "claim-promise": "A promised start moves only for a cause that is counted and named.",
    "claim-exists": "Room is kept only for groups that exist and wait.",
    "claim-fills": "At rest no group waits that fits beside the room that is kept.",
    "claims-no-cycle": "Room is kept neither in a circle nor behind what never ends.",
    "claim-evictions": "A pod evicted for kept room has run as long as it stated.",
    "walltime-evictions": "A gang evicted for its walltime was past it, and goes whole.",
    "walltime-in-time": "In calm weather a gang past its walltime is evicted in time.",
    # What people read.
    "group-status": "A PodGroup's status does not call pending what runs, nor scheduled what waits.",
    "conditions-true": "What a pod's condition counts and names is true.",
    "pages-true": "No page fails, and what pages and metrics count is true.",
    "tenants-apart": "What is written into a namespace names no object of another.",
}

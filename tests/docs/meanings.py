"""What each annotation and label means, in words; the reference page puts them beside what the code says.

Lives here: words alone, with where a key stands and who writes it. Which keys there are comes from the code
(generate.py); a test fails for a key without a meaning, and for a meaning without a key. They are not beside
the keys, since most of these are entries of a dialect's tuples, by their use in code (model.pod_group,
model.dialects), and the page has them by who writes them. Not here: fields, each of which says what it means.
"""

from __future__ import annotations

# key: (on, written by, meaning)
KEYS = {
    "gangsched.io/claimed-for": (
        "ResourceClaim, annotation",
        "scheduler",
        "the gang that the claim is, or was, allocated for",
    ),
    "gangsched.io/pod-group": ("Pod, label", "user", "the gang's name, in the pod's namespace"),
    "gangsched.io/infer-gangs": (
        "Namespace, label",
        "user",
        "what is [inferred](controllers.md) there: `Job.JobSet`, `all` or `none`",
    ),
    "gangsched.io/min-members": (
        "Pod",
        "user",
        "how many members must be placed before any starts; all say the same",
    ),
    "gangsched.io/total-members": (
        "Pod or PodGroup",
        "user",
        "reserve from min-members on, start when this many are reserved",
    ),
    "gangsched.io/schedule-timeout": (
        "Pod or PodGroup",
        "user",
        "how long reservations are held while the gang waits: `90s`, `5m`",
    ),
    "gangsched.io/queue": (
        "Pod, annotation or label",
        "user",
        "its queue, one of those that list its namespace ([queues](queues.md))",
    ),
    "gangsched.io/walltime": (
        "Pod or PodGroup",
        "user",
        "how long it runs: `4h`, `90s`; may be edited while it runs"
        " ([walltimes](queueing.md#how-long-groups-run))",
    ),
    "gangsched.io/groups": (
        "Pod or PodGroup",
        "user",
        "JSON list of groups that start together: those that list each other, directly or through others,"
        " 64 in all",
    ),
    "gangsched.io/topology": (
        "Pod or PodGroup",
        "user",
        "labels of nodes that members have in common, the widest first:"
        " `required: topology.example.com/block, preferred: topology.example.com/rack`",
    ),
    "gangsched.io/on-partial-bind": ("Pod or PodGroup", "user", "`complete` or `unwind`"),
    "gangsched.io/disruption-mode": (
        "Pod or PodGroup",
        "user",
        "`all` or `single`: how preemption takes the gang",
    ),
    "gangsched.io/recover-within": (
        "Pod or PodGroup",
        "user",
        "how long the gang may lack members that it needs: `10m`, `90s` ([members that are"
        " lost](gangs.md#members-that-are-lost))",
    ),
    "gangsched.io/if-not-recovered": (
        "Pod or PodGroup",
        "user",
        "what becomes of it then: `stay`, `move` or `give-back`, the default",
    ),
    "gangsched.io/require-device-ids": (
        "Pod or PodGroup",
        "user",
        "resources whose IDs must be known where it goes: `nvidia.com/gpu,example.com/nic`, or `true` for"
        " all",
    ),
    "gangsched.io/packing-weight": (
        "Pod or PodGroup",
        "user",
        "how much packing weighs beside the scores, 0 to 100000; before the setting `packing`",
    ),
    "gangsched.io/on-device-failure": ("Pod or PodGroup", "user", "`none`, `evictMember` or `evictGang`"),
    "gangsched.io/device-constraints": (
        "Pod",
        "user",
        'JSON by resource: `{"nvidia.com/gpu": {"sameNUMA": true, "linked": true, "model": ["H100"],'
        ' "minMemory": "79Gi"}}`',
    ),
    "gangsched.io/required-rbw": (
        "Pod",
        "user",
        "bandwidth the pod must have: `400MB/s`; also `requiredRBW`",
    ),
    "gangsched.io/expected-rbw": ("Pod", "user", "bandwidth it hopes for; also `expectedRBW`"),
    "gangsched.io/rbw-direction": (
        "Pod",
        "user",
        "`egress`, `ingress`, `both` (each; the default) or `total` (in and out together)",
    ),
    "gangsched.io/rbw-scope": (
        "Pod",
        "user",
        "`member` (the default) or `group`: the amount is the whole gang's",
    ),
    "gangsched.io/allocated-devices": ("Pod", "scheduler", "JSON: container, resource, IDs"),
    "gangsched.io/visible-devices": (
        "Pod",
        "scheduler",
        "the IDs of the pod's first resource, with commas, for an env `fieldRef`",
    ),
    "visible-devices.gangsched.io": (
        "Pod",
        "scheduler",
        "`gpu.nvidia.com.visible-devices.gangsched.io/CONTAINER`: one container's IDs of one resource",
    ),
    "gangsched.io/gang": ("Pod", "scheduler", "the group: `namespace/name`"),
    "gangsched.io/rank": (
        "Pod",
        "scheduler",
        "the member's number in the gang, from 0, [along the fabric](gangs.md#which-member-gets-which-place);"
        " what replaces it has the same",
    ),
    "gangsched.io/attempt": ("Pod", "scheduler", "at which attempt it was bound, from 1"),
    "gangsched.io/start": (
        "Pod",
        "scheduler",
        "how its gang started: `together` binds of that attempt (none: the gang ran already), `needs` members"
        " in all, `leftOut` others that existed, ...: a"
        " [restart](operating-reference.md#what-a-restart-forgets) evicts none that ran",
    ),
    "gangsched.io/started-in-queue": (
        "Pod",
        "scheduler",
        "the [queue](queues.md) for which it counts while it is on its node; only with `queues`",
    ),
    "gangsched.io/traceparent": ("Pod", "scheduler", "the gang's W3C trace context"),
    "allocated-devices.gangsched.io": (
        "Pod, label",
        "scheduler",
        "`CONTAINER.nvidia.com.allocated-devices.gangsched.io/gpu: g0.g1` with `allocationIn: labels`",
    ),
    "gangsched.io/devices": (
        "Node",
        "agent",
        'JSON by resource: `{"nvidia.com/gpu": [{"id": "GPU-0", "health": "Healthy", "numa": 0,'
        ' "model": "H100", "memoryMiB": 81559, "links": {"GPU-1": "NV18"}}]}`; only `id` is needed',
    ),
    "devices.gangsched.io": (
        "Node, label",
        "agent",
        "`nvidia.com.devices.gangsched.io/gpu: g0.g1` with `inventoryIn: labels`",
    ),
    "unhealthy-devices.gangsched.io": ("Node, label", "agent", "those of them that are unhealthy"),
    "gangsched.io/device-report": ("Node", "agent", "what kubelet gave to which pod"),
    "gangsched.io/remaining-bandwidth": (
        "Node",
        "agent",
        '`{"egressMBps": 900, "ingressMBps": 850, "totalMBps": 1500, "observedAt": "2026-11-22T12:00:00Z"}`;'
        " MB is 10^6 bytes",
    ),
    "gangsched.io/load": (
        "Node",
        "agent",
        "utilisation 0 to 1 and performance of CPU, memory, network and disk",
    ),
    "gangsched.io/queue-usage": (
        "Lease `gangsched-queues`",
        "scheduler",
        "JSON: the part of the cluster that each [queue](queues.md) has held lately, for the next leader",
    ),
    "gangsched.io/fenced": (
        "Pod, ResourceClaim",
        "scheduler",
        "changed where a write that was sent must not land any more; a label where there is no room for it",
    ),
    "gangsched.io/binds-on-the-way": (
        "Lease",
        "scheduler",
        "the fence's list, pods next in line among them: gang, UID, pod, as JSON",
    ),
    "tracing.k8s.io/traceparent": ("Pod or PodGroup", "submitter", "the submitter's trace context, linked"),
}

FOREIGN_KEYS = {
    "slurmjob.slinky.slurm.net/timelimit": (
        "Pod or PodGroup",
        "user",
        "how long it runs, in minutes; where `gangsched.io/walltime` is not there",
    ),
    "kueue.x-k8s.io/max-exec-time-seconds": (
        "Pod, label",
        "user",
        "how long it runs, in seconds; where neither of the two annotations is there",
    ),
    "jobset.sigs.k8s.io/jobset-name": ("Pod, label", "user", "the JobSet that the pod belongs to"),
    "jobset.sigs.k8s.io/jobset-uid": ("Pod, label", "user", "its UID"),
    "jobset.sigs.k8s.io/replicatedjob-name": ("Pod, label", "user", "which of its replicatedJobs"),
    "jobset.sigs.k8s.io/restart-attempt": ("Pod, label", "user", "each attempt is a gang of its own"),
    "alpha.jobset.sigs.k8s.io/exclusive-topology": ("JobSet", "user", "such a JobSet is no gang"),
    "alpha.jobset.sigs.k8s.io/node-selector": (
        "JobSet",
        "user",
        "with it a JobSet of exclusive topology is one",
    ),
    "leaderworkerset.sigs.k8s.io/name": ("Pod, label", "user", "the LeaderWorkerSet that the pod belongs to"),
    "leaderworkerset.sigs.k8s.io/group-index": ("Pod, label", "user", "each replica is a gang of its own"),
    "leaderworkerset.sigs.k8s.io/worker-index": (
        "Pod, label",
        "user",
        "0: the leader; the pod's index, by which it gets its [place"
        " and rank](gangs.md#which-member-gets-which-place)",
    ),
    "jobset.sigs.k8s.io/job-index": (
        "Pod, label",
        "user",
        "its Job's index, before its own",
    ),
    "leaderworkerset.sigs.k8s.io/template-revision-hash": ("Pod, label", "user", "so is each revision"),
    "leaderworkerset.sigs.k8s.io/size": ("Pod", "user", "the pods of a replica, its leader included"),
    "leaderworkerset.sigs.k8s.io/exclusive-topology": (
        "Pod or LeaderWorkerSet",
        "user",
        "the leader starts first, then the workers as a gang",
    ),
    "kueue.x-k8s.io/pod-group-name": ("Pod, label", "user", "a group of plain pods under Kueue"),
    "kueue.x-k8s.io/pod-group-total-count": ("Pod", "user", "how many pods the group has"),
    "kueue.x-k8s.io/pod-group-serving": ("Pod", "user", "`true`: the group is no gang"),
    "kueue.x-k8s.io/workload": ("Pod", "user", "the admitted Workload, in which the gang's number is"),
    "kueue.x-k8s.io/podset": (
        "Pod, label",
        "user",
        "its pod set in that Workload, each of which needs its number",
    ),
    "kueue.x-k8s.io/workload-slice-name": ("Pod", "user", "of an elastic Job, which is no gang"),
    "kueue.x-k8s.io/elastic-job": ("Pod or Workload", "user", "the same"),
    "scheduling.x-k8s.io/pod-group": (
        "Pod, label",
        "user",
        "a group of Coscheduling, by its PodGroup object",
    ),
    "pod-group.scheduling.sigs.k8s.io": ("Pod, label", "user", "the same, older"),
    "pod-group.scheduling.sigs.k8s.io/name": ("Pod, label", "user", "a lightweight group of Coscheduling"),
    "pod-group.scheduling.sigs.k8s.io/min-available": ("Pod, label", "user", "how many members it needs"),
    "scheduling.k8s.io/group-name": ("Pod", "user", "a group of Volcano, by its PodGroup object"),
    "scheduling.volcano.sh/group-name": ("Pod", "user", "the same"),
    "volcano.sh/task-spec": ("Pod; also as label", "user", "its role in that group"),
    "scheduling.volcano.sh/group-min-member": ("Pod", "user", "refused: Volcano's controller reads it"),
    "pod-group-name": ("Pod", "user", "a group of KAI, by its PodGroup object"),
    "kai.scheduler/subgroup-name": ("Pod, label", "user", "its subgroup, where that PodGroup has subgroups"),
    "kai.scheduler/queue": ("Pod, label", "user", "refused on pods of which KAI's grouper would make a gang"),
    "gang.scheduling.koordinator.sh/name": ("Pod", "user", "a group of Koordinator"),
    "gang.scheduling.koordinator.sh/min-available": ("Pod", "user", "how many start together"),
    "gang.scheduling.koordinator.sh/total-number": (
        "Pod",
        "user",
        "not below min-available; not waited for",
    ),
    "gang.scheduling.koordinator.sh/waiting-time": ("Pod", "user", "how long it may hold reservations"),
    "gang.scheduling.koordinator.sh/mode": (
        "Pod, PodGroup",
        "user",
        "`Strict` or `NonStrict`: all the same here",
    ),
    "gang.scheduling.koordinator.sh/groups": (
        "Pod, PodGroup",
        "user",
        "groups that start together, a JSON list",
    ),
    "gang.scheduling.koordinator.sh/network-topology-spec": (
        "Pod, PodGroup",
        "user",
        "refused if nodes must be near each other, reported if they should be",
    ),
    "gang.scheduling.koordinator.sh/match-policy": (
        "Pod, PodGroup",
        "user",
        "`once-satisfied`; others are refused",
    ),
    "pod-group.scheduling.sigs.k8s.io/match-policy": ("Pod, PodGroup", "user", "the same, older"),
    "grove.io/podgang": ("Pod, label", "user", "refused on pods of which Grove has made no group"),
    "modelserving.volcano.sh/group-name": (
        "Pod, label",
        "user",
        "refused on pods of which kthena has made no group",
    ),
    "disaggregatedset.x-k8s.io/name": (
        "Pod, label",
        "user",
        "reported: the roles of a slice do not start together",
    ),
    "kueue.x-k8s.io/managed": ("Pod, label", "user", "`true`: Kueue's topology is left to Kueue"),
    "kueue.x-k8s.io/podset-required-topology": ("Pod", "user", "refused where Kueue does not manage the pod"),
    "kueue.x-k8s.io/podset-slice-required-topology": ("Pod", "user", "the same"),
    "kueue.x-k8s.io/podset-slice-required-topology-constraints": ("Pod", "user", "the same"),
    "kueue.x-k8s.io/podset-preferred-topology": ("Pod", "user", "reported there"),
    "kai.scheduler/segment-size": ("Pod", "user", "refused where KAI's grouper has made no group"),
    "kai.scheduler/segment-topology-required-placement": ("Pod", "user", "the same"),
    "kai.scheduler/topology-required-placement": ("Pod", "user", "the same"),
    "kai.scheduler/segment-topology-preferred-placement": ("Pod", "user", "reported there"),
    "kai.scheduler/topology-preferred-placement": ("Pod", "user", "the same"),
    "yunikorn.apache.org/app-id": (
        "Pod; also as label",
        "user",
        "an application; a gang where it has task groups",
    ),
    "applicationId": ("Pod, label", "user", "the same, older"),
    "spark-app-selector": ("Pod, label", "user", "the same, as Spark writes it"),
    "yunikorn.apache.org/task-groups": (
        "Pod",
        "user",
        "the application's task groups and how many each needs",
    ),
    "yunikorn.apache.org/task-group-name": ("Pod", "user", "its task group"),
    "yunikorn.apache.org/schedulingPolicyParameters": (
        "Pod",
        "user",
        "`placeholderTimeoutInSeconds`: how long it may hold reservations",
    ),
}

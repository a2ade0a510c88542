"""What each field and each key means, in words; the reference pages put them beside what the code says.

Lives here: words alone. Types, defaults and names come from the code (generate.py), and a test holds both
together: a field without a meaning fails, and so does a meaning without a field.
"""

from __future__ import annotations

SCHEDULER = {
    "parallelism": "How many Bindings the API server is given to work on at once.",
    "leaderElection.leaderElect": "Lead or follow by a Lease. Not set is false here and true in kube-scheduler.",
    "leaderElection.leaseDuration": "How long the followers wait for a silent leader.",
    "leaderElection.renewDeadline": "A leader that has not renewed for this long sends no further bind and exits.",
    "leaderElection.retryPeriod": "How often the Lease is renewed, or asked about.",
    "leaderElection.resourceLock": "`leases` is the only kind there is.",
    "leaderElection.resourceName": "The Lease's name; kube-scheduler's is `kube-scheduler`.",
    "leaderElection.resourceNamespace": "The Lease's namespace.",
    "clientConnection.kubeconfig": "Used where the flag `--kubeconfig` is not given.",
    "clientConnection.acceptContentTypes": "Accepted; JSON is spoken.",
    "clientConnection.contentType": "Accepted; JSON is spoken.",
    "clientConnection.qps": "Accepted and without effect: `parallelism` and the server's fairness bound requests.",
    "clientConnection.burst": "As `qps`.",
    "enableProfiling": "Accepted; there are no profiling pages.",
    "enableContentionProfiling": "Accepted; there are no profiling pages.",
    "percentageOfNodesToScore": "Counts only with `earlyStop: true`; otherwise all nodes are scored.",
    "podInitialBackoffSeconds": "How long a group that failed waits before its next attempt; doubles each time.",
    "podMaxBackoffSeconds": "Where the doubling ends.",
    "profiles[].schedulerName": "Pods that name it are this profile's. One unnamed profile is `default-scheduler`;"
    " there may be 1,000 profiles.",
    "profiles[].percentageOfNodesToScore": "As the field above, for this profile.",
    "profiles[].plugins": "Which plugins run at which point: `multiPoint` or a point, each with `enabled` and"
    ' `disabled` lists of `{name, weight}`; `disabled: [{name: "*"}]` takes all defaults out.',
    "profiles[].pluginConfig[].name": "A plugin's name.",
    "profiles[].pluginConfig[].args": "Its arguments; the tables below have ours.",
    "extenders[].urlPrefix": "The extender's address; a verb is added to it after a slash. Required.",
    "extenders[].filterVerb": "Asked which nodes will do; empty: not asked.",
    "extenders[].preemptVerb": "Refused: extenders are not asked about victims.",
    "extenders[].prioritizeVerb": "Asked which nodes are better; needs a `weight` above 0.",
    "extenders[].weight": "What its scores are multiplied by.",
    "extenders[].bindVerb": "Binds pods in the scheduler's stead; one extender at most.",
    "extenders[].enableHTTPS": "Use TLS; without a `caFile` or `caData` the certificate is not checked, as in"
    " kube-scheduler.",
    "extenders[].tlsConfig.insecure": "Do not check its certificate.",
    "extenders[].tlsConfig.serverName": "The name its certificate must bear.",
    "extenders[].tlsConfig.certFile": "Our certificate, PEM.",
    "extenders[].tlsConfig.keyFile": "Its key, PEM.",
    "extenders[].tlsConfig.caFile": "Who may have signed its certificate, PEM.",
    "extenders[].tlsConfig.certData": "Our certificate, base64 of PEM; wins over the file.",
    "extenders[].tlsConfig.keyData": "The key, base64 of PEM; wins over the file.",
    "extenders[].tlsConfig.caData": "The authority, base64 of PEM; wins over the file.",
    "extenders[].httpTimeout": "How long an answer may take; 0 is 5 s.",
    "extenders[].nodeCacheCapable": "It is sent names of nodes instead of whole nodes.",
    "extenders[].managedResources[].name": "It is asked about pods that want this resource only.",
    "extenders[].managedResources[].ignoredByScheduler": "NodeResourcesFit does not count this resource.",
    "extenders[].ignorable": "If it cannot be reached it is left out; otherwise the pod's attempt fails.",
    "delayCacheUntilActive": "Accepted; a replica that does not lead follows everything.",
}

OURS = {
    "onPartialBind": "What becomes of a gang when a bind fails for good and others succeeded: `complete` binds the"
    " rest, `unwind` evicts what is bound. A gang can override it: `gangsched.io/on-partial-bind`.",
    "settleSeconds": (
        "How long a gang may stay half bound: completing it is tried for half of this, then its bound pods are"
        " evicted. No limit under `allowEviction: false`."
    ),
    "recoverWithinSeconds": "How long a gang that has started may run with fewer members than it needs before the"
    " rest is evicted and starts again as one; 0: for ever. See [gangs](gangs.md#members-that-are-lost).",
    "permitWaitSeconds": "How long a gang holds reservations while it waits, where neither the gang nor a plugin"
    " says. At most 900.",
    "hookTimeoutSeconds": "How long a plugin may take in Permit, PreBind, Bind or PostBind. At most 900.",
    "pluginBudgetSeconds": "How long a plugin of your own may hold up the scheduler in one turn. At most 10.",
    "unschedulableFlushSeconds": "A group that does not fit is tried again after this long even if nothing changed.",
    "topologyKey": "The node label that names a rack: gangs use few nodes, then few racks.",
    "searchPlacements": "How many placements, beyond one for each member, are tried in other orders when the usual"
    " orders fail; fewer where members have more than a few terms about other pods, each of which makes a look longer."
    " 0: none.",
    "searchVictims": "How often one search for victims may ask a node how many pods it takes; fewer likewise.",
    "ties": "Which of equally good nodes a lone pod gets: `random` (seeded), as in kube-scheduler, or each in turn"
    " (`roundRobin`), as in Kubernetes 1.11 and as published.",
    "earlyStop": "`percentageOfNodesToScore` counts for lone pods, as in kube-scheduler.",
    "invalidInventory": "What a node with an unreadable device list offers: `nothing`, or `counts` (its"
    " allocatable, without IDs).",
    "allowEviction": (
        "Whether pods may be evicted: to give back a half-bound gang, and by preemption. `false`: the bound pods"
        " of such a gang stay, and the rest is tried first in line until it has room. From `true` to `false` while"
        " it runs: no pod is asked to go again, be it for others, for its walltime or with its gang."
    ),
    "fence": "Whether every pod is listed in one object before it is bound, so that a leader that was paused or cut"
    " off binds no pod once another leads. Not set: as `leaderElect`. From the next start.",
    "reportingController": "The name that events carry as their reporter.",
    "inferGangs": "Controllers whose pods are a gang without saying so: [with other controllers](controllers.md)."
    " A label `gangsched.io/infer-gangs` of a namespace goes before it.",
    "foreignMarkers": "What becomes of pods and groups that ask for what only another system does: `refuse` with the"
    " reason, `warn` by an event and schedule them without it, or `ignore`.",
    "podGroupPriorityClasses": "PriorityClasses that count [where a PodGroup names them](gangs.md#priority) as they do"
    " on a pod. No quota of pods sees that, so list only those that every tenant may use.",
    "packing.weight": "How much [packing weighs beside the scores](gangs.md#packing-as-one-score-among-others), 0 to"
    " 100000. Not set: gangs are packed first, and scores decide among equally tight placements.",
    "profiles[].packing.weight": "The same for this profile alone.",
    "profiles[].schedulerName": "A profile of KubeSchedulerConfiguration.",
    "profiles[].inferGangs": "The same for this profile alone.",
    "profiles[].foreignMarkers": "The same for this profile alone.",
    "profiles[].defaultWalltime": "As `queueing.defaultWalltime`, for this profile alone; `''`: none.",
    "fairness.halfLife": "After how long what a queue has held counts half, beside what it holds now. 0s: only what it"
    " holds now counts. Needs `queues`.",
    "fairness.compare": "The resources by which shares are compared: a queue's share is the largest part of the cluster"
    " that it holds of any of them.",
    "fairness.otherQueues": "`read`: a pod without `gangsched.io/queue` may name its queue by `kai.scheduler/queue`,"
    " `scheduling.volcano.sh/queue-name` or `yunikorn.apache.org/queue`.",
    "fairness.kueueAdmission": "`passesLimits`: what Kueue has admitted of a queue's pods does not count in its limits"
    " ([queues](queues.md#what-kueue-has-admitted)).",
    "fairness.reclaim": "Which pods are evicted for a queue: those that hold what is guaranteed to it; with `fair`"
    " also those that hold what is its share; with `never` none ([queues](queues.md)).",
    "queues[].name": "Lower case letters, digits and dashes, at most 63; once in the whole tree. Without `queues` there are"
    " none, and all groups stand in one line. See [Queues](queues.md).",
    "queues[].share": "What it is due among the queues beside it, as a proportion.",
    "queues[].guaranteed": "By resource: until it holds as much, it goes before those that hold more than theirs. Those of"
    " the queues below it fit into it.",
    "queues[].limit": "By resource: it and all below it never hold more.",
    "queues[].namespaces": "The namespaces whose pods it is for: names, and prefixes that end in `*`. Each stands in one queue, and only"
    " queues without others below them have any. The closest one counts for a pod that names no queue.",
    "queues[].defaultWalltime": "The walltime of its groups that state none and whose kind has not run yet. Takes"
    " precedence over `queueing.defaultWalltime`; not with `mode: off`.",
    "queues[].bound": "The [bound](queueing.md#who-is-passed-over) of its groups: a number, or `auto`. Not set: that of"
    " the closest queue above it that has one, else `queueing.bound.groups`; not with `mode: off`.",
    "queues[].order": "In the queue, after priority: `fifo`, or `shortest` walltime first; not with `mode: off`.",
    "queues[].queues": "The queues below it, each with the same fields; 8 levels and 1,000 queues at most.",
    "queueing.bound.groups": "After how many groups that start in front of it a gang that does not fit"
    " [gets room kept for it](queueing.md#who-is-passed-over). `auto`: 8 for each"
    " group that runs when it is first refused, and at least 64; and the first in line has a claim as soon as its"
    " start can be promised. A number that a reload brings holds for waiting groups, too.",
    "queueing.bound.mode": "`off`: neither walltimes are read nor passes counted. `shadow`: they are counted and"
    " reported, and nothing else happens. `hard`: at its bound a group gets a [claim](queueing.md#claims), and no group"
    " passes it any more. `budget`: once the claim keeps no more idle [than is earned](queueing.md#without-walltimes);"
    " until then groups continue to pass it. Not set: `budget`.",
    "queueing.bound.protects": "`gangs`: lone pods are not counted, and start among themselves as in kube-scheduler;"
    " `all`: they have a bound, too. Not set: `all` where `mode` is, else `gangs`.",
    "queueing.bound.idlePercent": "With `mode: budget`: how much of each resource of the cluster claims may keep idle,"
    " on average: 1 to 100. Not set: 10.",
    "queueing.onOverrun": "What becomes of a group that runs past the walltime it states. `none`: nothing."
    " `yield`: while a [claim](queueing.md#claims) waits for its place, it is evicted"
    " [half a minute later](queueing.md#past-the-walltime), if the claim's gang can start then. `evict`: it is evicted"
    " half a minute later in any case; needs no claims. Not set: `none`.",
    "queueing.estimates": "[Estimated starts](queueing.md#estimated-starts): `written` to PodGroups as they change, or"
    " made only when `asked` for. Not set: `written` where `queueing` is, else `asked`.",
    "queueing.defaultWalltime": "[How long a group runs](queueing.md#how-long-groups-run) that does not say so and is"
    " like none that ran before: `24h`. Not set: for ever.",
    "devices.handOff": "How a resource's IDs reach containers, by resource name; a resource that is not named uses"
    " `env`. `device-plugin`: through kubelet; `count`: no IDs are given.",
    "devices.require": "Resources whose device IDs must be known: pods that request them go only to nodes that list"
    " their devices, in every profile. One profile alone: the argument `require` of `Devices`. A pod or PodGroup:"
    " `gangsched.io/require-device-ids`.",
    "devices.allocationIn": "Whether a pod's IDs are written as annotations or as labels. Labels need Kubernetes 1.35.",
    "devices.repairAnnotations": "Rewrite device annotations that are not true. Needs the verb patch on pods:"
    " `deploy/device-plugin-hand-off/`.",
    "devices.onMismatch": "`evict` removes a pod whose devices are of no use to it.",
    "devices.onDeviceFailure": "What becomes of pods whose device stays unhealthy: `none`, `evictMember` or"
    " `evictGang`.",
    "devices.failureGraceSeconds": "How long a device must be unhealthy before that.",
    "devices.failureAgainSeconds": "How long after such an eviction a group is not evicted for a device that fails later.",
    "tracing.endpoint": "A collector's URL, OTLP over HTTP; `/v1/traces` is added to a URL without a path.",
    "tracing.file": "A file that traces are appended to, for `gangsched trace`.",
    "tracing.samplingRatio": "What share of the gangs is traced, 0 to 1.",
    "tracing.keep.slowerThan": "Gangs that take longer than this (`90s`), from their first member seen, are traced"
    " whatever `samplingRatio` is.",
    "tracing.keep.failed": "Likewise gangs that gave reservations back, had a failed bind, were evicted, or were"
    " deleted after failed attempts.",
    "tracing.keep.preempting": "Likewise gangs that other pods were evicted for.",
    "record.directory": "Where everything that decisions follow from is written down, for `gangsched replay`; the flag"
    " `--record` goes before it. Empty: nowhere. [Record and replay](record-and-replay.md)",
    "record.maxSizeMB": "All its files together, in 10^6 bytes: the oldest go first.",
    "record.maxAge": "How long they are kept.",
    "tracing.keep.maxHeldSpans": "How many spans, and events on them, are held in memory (about 2 kB each) for gangs"
    " outside the ratio that have not ended.",
}

ARGS = {
    "NodeAffinity": {"addedAffinity": "Node affinity that every pod of the profile must match as well."},
    "NodeResourcesFit": {
        "ignoredResources": "Extended resources that the filter does not count.",
        "ignoredResourceGroups": "The same by group: `example.com` ignores `example.com/anything`.",
        "scoringStrategy.type": "`LeastAllocated` prefers empty nodes, `MostAllocated` full ones,"
        " `RequestedToCapacityRatio` goes by a shape.",
        "scoringStrategy.resources[].name": "A resource that counts for the score.",
        "scoringStrategy.resources[].weight": "Its weight, 1 to 100.",
        "scoringStrategy.requestedToCapacityRatio.shape[].utilization": "A point of the shape: percent in use.",
        "scoringStrategy.requestedToCapacityRatio.shape[].score": "The score there, 0 to 10.",
    },
    "VolumeBinding": {
        "bindTimeoutSeconds": "How long a claim may take to be bound.",
        "shape[].utilization": "A point of the shape: percent of storage in use.",
        "shape[].score": "The score there, 0 to 10.",
    },
    "PodTopologySpread": {
        "defaultConstraints[].maxSkew": "Constraints for pods that state none; the fields are a pod's own.",
        "defaultConstraints[].topologyKey": "A node label.",
        "defaultConstraints[].whenUnsatisfiable": "`DoNotSchedule` or `ScheduleAnyway`.",
        "defaultConstraints[].labelSelector": "Refused: it is made for each pod.",
        "defaultConstraints[].minDomains": "As a pod's.",
        "defaultConstraints[].nodeAffinityPolicy": "As a pod's.",
        "defaultConstraints[].nodeTaintsPolicy": "As a pod's.",
        "defaultConstraints[].matchLabelKeys": "As a pod's.",
        "defaultingType": "`List`: the list above. `System`: kube-scheduler's built-in constraints, which need the"
        " right to follow services and controllers: `deploy/default-spreading/`.",
    },
    "InterPodAffinity": {
        "hardPodAffinityWeight": "The weight of required affinity as a preference of the other side.",
        "ignorePreferredTermsOfExistingPods": "Count only the new pod's preferences.",
    },
    "DefaultPreemption": {
        "minCandidateNodesPercentage": "How many percent of the nodes are weighed as places to make room.",
        "minCandidateNodesAbsolute": "The same as a number; the larger of the two counts.",
    },
    "NodeResourcesBalancedAllocation": {
        "resources[].name": "A resource that counts.",
        "resources[].weight": "Must be 1.",
        "formula": "`AsPrinted` scores `10 - |cpu - memory| * 10` of the requested shares, as Kubernetes 1.11 did and"
        " papers print it.",
    },
    "NodeVolumeLimits": {
        "maxPdVolumes": "How many in-tree EBS, GCE, Azure and Cinder volumes a node without CSI takes, of each kind;"
        " 0: what the environment variable `KUBE_MAX_PD_VOLS` says, else 39 EBS and 16 GCE."
    },
    "Devices": {
        "require": "Resources whose device IDs must be known in this profile; `devices.require` is for all profiles."
    },
    "RemainingBandwidth": {
        "strategy": "Which node with enough bandwidth is best: the one closest to what is expected, or the one with"
        " most.",
        "pool": "Later pods that ask for the same first try the nodes with required to expected left (`LargestSurplus`:"
        " with more than expected).",
        "stalePolicy": "A node not heard of for `staleSeconds` counts as full, or by its last report (`ignore`).",
        "bound": "Leave out nodes with [more left](bandwidth-and-load.md#bandwidth) than a pod's bound; needs"
        " `ClosestToExpected`.",
        "staleSeconds": "When a report is too old.",
        "promise": "Subtract what was promised to pods since the node's last report.",
    },
    "LoadAware": {
        "mode": "`normalized` scales each term to the cluster's largest; `paper` adds them up in their units; `literal` adds utilisations up, as the paper prints L.",
        "terms": "Which terms count.",
        "stalePolicy": "A node not heard of for `staleSeconds` counts as fully loaded, or by its last report.",
        "staleSeconds": "When a report is too old.",
        "predict": "Count what just-placed pods ask for until it shows in a report.",
        "settleSeconds": "For how long at most.",
        "metricsServerSeconds": "How often metrics-server is asked about nodes without an agent; 0: never.",
        "assumedMHz": "The clock rate of those nodes.",
    },
}

AGENT = {
    "nodeName": "Which node this is; empty: the environment variable `NODE_NAME`.",
    "heartbeatSeconds": "The Node is compared with what it should say at least this often.",
    "devices": "JSON files of devices, or directories of `*.json`.",
    "nvml.mode": "`auto`: NVIDIA GPUs where there is a driver. `on`: report if there is none. `off`.",
    "nvml.resource": "The resource that a GPU is.",
    "nvml.ignoreXids": "XIDs that an application caused and that leave the GPU healthy.",
    "registers": "Read devices from what `hami` or `volcano` node agents wrote on the Node.",
    "inventoryIn": "Whether the list is an annotation of the Node or labels.",
    "bandwidth.enabled": "Write `gangsched.io/remaining-bandwidth`.",
    "bandwidth.nics": "Patterns of NIC names that count; none: the physical ones.",
    "bandwidth.totalMBps": "Of one direction; 0: what the links' speeds add up to.",
    "bandwidth.windowsSeconds": "Averaging windows; the first one counts, the others are shown.",
    "bandwidth.periodSeconds": "Written at least this often.",
    "bandwidth.thresholdPercent": "And when it moved by this much of the total.",
    "load.enabled": "Write `gangsched.io/load`.",
    "load.windowSeconds": "The averaging window.",
    "load.periodSeconds": "Written at least this often.",
    "load.thresholdPercent": "And when a term moved by this much.",
    "load.cpuMHz": "The clock rate; 0: what the system reports.",
    "load.diskMBps": "The disks' throughput; 0: not known.",
    "load.diskProbe": "A directory in which the throughput is measured once at the start; empty: not.",
    "load.cgroup": "A cgroup that is this node, as `/proc/PID/cgroup` names it; empty: the machine.",
    "kubelet.devicePlugins": "Where kubelet's device plugin sockets are.",
    "kubelet.podResources": "kubelet's PodResources socket.",
    "kubelet.podsApi": "kubelet's Pods API socket (Kubernetes 1.37); empty or absent: the API server is asked.",
    "kubelet.resources": "Resources of other device plugins, listed by what they told kubelet.",
    "plugins[].resource": "A resource that the agent offers to kubelet. Required.",
    "plugins[].handOff": "`device-plugin`, `env` or `count`: see [the three hand-offs](devices.md#three-hand-offs).",
    "plugins[].tellNuma": "Tell kubelet the devices' NUMA nodes.",
    "plugins[].env": "Variables of the container; `{ids}` stands for its IDs.",
    "plugins[].all.deviceFiles[].host": "What a container gets once: a device file on the host.",
    "plugins[].all.deviceFiles[].container": "Its path in the container; empty: the same.",
    "plugins[].all.deviceFiles[].permissions": "Of `r`, `w` and `m`.",
    "plugins[].all.mounts[].host": "A path on the host.",
    "plugins[].all.mounts[].container": "The path in the container; empty: the same.",
    "plugins[].all.mounts[].readOnly": "Mount it read-only.",
    "plugins[].all.cdi": "CDI device names.",
    "plugins[].each": "What a container gets for each device; fields as in `all`, `{id}` stands for the ID.",
    "plugins[].byDevice": "The same by device ID, instead of `each`, for devices whose files have other names.",
}

# key: (on, written by, meaning)
KEYS = {
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
        "how long it runs: `4h`, `90s`; may be edited while it runs ([walltimes](queueing.md#how-long-groups-run))",
    ),
    "gangsched.io/groups": (
        "Pod or PodGroup",
        "user",
        "JSON list of groups that start together: those that list each other, directly or through others, 64 in all",
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
    "gangsched.io/require-device-ids": (
        "Pod or PodGroup",
        "user",
        "resources whose IDs must be known where it goes: `nvidia.com/gpu,example.com/nic`, or `true` for all",
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
        "the member's number in the gang, from 0; what replaces it has the same",
    ),
    "gangsched.io/attempt": ("Pod", "scheduler", "at which attempt it was bound, from 1"),
    "gangsched.io/start": (
        "Pod",
        "scheduler",
        "how its gang started: `together` binds of that attempt (none: the gang ran already), `needs` members in "
        "all, `leftOut` others that existed, ...: a [restart](operating-reference.md#what-a-restart-forgets) evicts none that ran",
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
    "gangsched.io/fenced": ("Pod", "scheduler", "changed where a bind that was sent must not land any more"),
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
    "leaderworkerset.sigs.k8s.io/worker-index": ("Pod, label", "user", "0: the leader"),
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

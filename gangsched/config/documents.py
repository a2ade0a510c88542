"""The two documents of the configuration file as written, with their defaults.

The first is kube-scheduler's own, so that its files work unchanged; the second is ours. Defaults are
kube-scheduler's unless the comment differs. A field's description is its row in docs/configuration.md, hence
the links. Rules between fields are in config itself. Sources: k8s.io/kube-scheduler `config/v1/types.go`,
kubernetes `pkg/scheduler/apis/config/v1/defaults.go`.
"""

# Without the __future__ import: annotations kept as text would be compiled at each start, twice.
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gangsched.config.extenders import ExtenderDocument

KUBE_API_VERSION = "kubescheduler.config.k8s.io/v1"
KUBE_KIND = "KubeSchedulerConfiguration"
OUR_API_VERSION = "gangsched.io/v1"
OUR_KIND = "GangschedConfiguration"
DEFAULT_SCHEDULER_NAME = "gangsched"
"""Without a file. A file whose only profile has no name means kube-scheduler's `default-scheduler`."""


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Shared options."""


class PluginRef(_Document, frozen=True):
    """weight is for score only; 0 and a missing weight mean 1."""

    name: str
    weight: int = 0


class PluginSet(_Document, frozen=True):
    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class PluginSets(_Document, frozen=True):
    """A profile's changes at each extension point; multiPoint means every point that a plugin serves."""

    multi_point: PluginSet = PluginSet()
    pre_enqueue: PluginSet = PluginSet()
    queue_sort: PluginSet = PluginSet()
    pre_filter: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    post_filter: PluginSet = PluginSet()
    pre_score: PluginSet = PluginSet()
    score: PluginSet = PluginSet()
    reserve: PluginSet = PluginSet()
    permit: PluginSet = PluginSet()
    pre_bind: PluginSet = PluginSet()
    bind: PluginSet = PluginSet()
    post_bind: PluginSet = PluginSet()
    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()


class PluginArgs(_Document, frozen=True):
    name: Annotated[str, Meta(description="A plugin's name.")]
    args: Annotated[
        dict[str, Any] | None,
        Meta(description="Its arguments; the tables below have ours."),
    ] = None


class Profile(_Document, frozen=True):
    scheduler_name: Annotated[
        str | None,
        Meta(
            description="Pods that name it are this profile's. One unnamed profile is `default-scheduler`;"
            " there may be 1,000 profiles."
        ),
    ] = None
    percentage_of_nodes_to_score: Annotated[
        int | None,
        Meta(description="As the field above, for this profile."),
    ] = None
    plugins: Annotated[
        PluginSets,
        Meta(
            description="Which plugins run at which point: `multiPoint` or a point, each with `enabled` and"
            ' `disabled` lists of `{name, weight}`; `disabled: [{name: "*"}]` takes all defaults out.'
        ),
    ] = PluginSets()
    plugin_config: tuple[PluginArgs, ...] = ()


class LeaderElection(_Document, frozen=True):
    """An unset leaderElect is false here (kube-scheduler: true), resourceName gangsched (kube-scheduler)."""

    leader_elect: Annotated[
        bool | None,
        Meta(description="Lead or follow by a Lease. Not set is false here and true in kube-scheduler."),
    ] = None
    lease_duration: Annotated[
        str,
        Meta(description="How long the followers wait for a silent leader."),
    ] = "15s"
    renew_deadline: Annotated[
        str,
        Meta(description="A leader that has not renewed for this long sends no further bind and exits."),
    ] = "10s"
    retry_period: Annotated[str, Meta(description="How often the Lease is renewed, or asked about.")] = "2s"
    resource_lock: Annotated[str, Meta(description="`leases` is the only kind there is.")] = "leases"
    resource_name: Annotated[
        str,
        Meta(description="The Lease's name; kube-scheduler's is `kube-scheduler`."),
    ] = "gangsched"
    resource_namespace: Annotated[str, Meta(description="The Lease's namespace.")] = "kube-system"


class ClientConnection(_Document, frozen=True):
    """contentType is JSON here (kube-scheduler: protobuf)."""

    kubeconfig: Annotated[str, Meta(description="Used where the flag `--kubeconfig` is not given.")] = ""
    accept_content_types: Annotated[str, Meta(description="Accepted; JSON is spoken.")] = ""
    content_type: Annotated[str, Meta(description="Accepted; JSON is spoken.")] = "application/json"
    qps: Annotated[
        float,
        Meta(
            description="Accepted and without effect: `parallelism` and the server's fairness bound requests."
        ),
    ] = 50.0
    burst: Annotated[int, Meta(description="As `qps`.")] = 100


class KubeDocument(_Document, frozen=True):
    """KubeSchedulerConfiguration. Profiling is off here (kube-scheduler: on)."""

    api_version: str = KUBE_API_VERSION
    kind: str = KUBE_KIND
    parallelism: Annotated[
        int,
        Meta(description="How many Bindings the API server is given to work on at once."),
    ] = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: Annotated[bool, Meta(description="Accepted; there are no profiling pages.")] = False
    enable_contention_profiling: Annotated[
        bool,
        Meta(description="Accepted; there are no profiling pages."),
    ] = False
    percentage_of_nodes_to_score: Annotated[
        int | None,
        Meta(description="Counts only with `earlyStop: true`; otherwise all nodes are scored."),
    ] = None
    pod_initial_backoff_seconds: Annotated[
        int,
        Meta(description="How long a group that failed waits before its next attempt; doubles each time."),
    ] = 1
    pod_max_backoff_seconds: Annotated[int, Meta(description="Where the doubling ends.")] = 10
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[ExtenderDocument, ...] = ()
    delay_cache_until_active: Annotated[
        bool,
        Meta(description="Accepted; a replica that does not lead follows everything."),
    ] = False


class KeepTraces(_Document, frozen=True):
    """Read as config.tracing.KeepTraces. "" and false: such gangs are sampled like any other."""

    slower_than: Annotated[
        str,
        Meta(
            description="Gangs that take longer than this (`90s`), from their first member seen, are traced"
            " whatever `samplingRatio` is."
        ),
    ] = ""
    failed: Annotated[
        bool,
        Meta(
            description="Likewise gangs that gave reservations back, had a failed bind, were evicted, or were"
            " deleted after failed attempts."
        ),
    ] = False
    preempting: Annotated[bool, Meta(description="Likewise gangs that other pods were evicted for.")] = False
    max_held_spans: Annotated[
        int,
        Meta(
            description="How many spans, and events on them, are held in memory (about 2 kB each) for gangs"
            " outside the ratio that have not ended."
        ),
    ] = 20_000


class Tracing(_Document, frozen=True):
    """Off if neither an endpoint nor a file is set. Read as config.tracing.TracingSettings."""

    endpoint: Annotated[
        str,
        Meta(description="A collector's URL, OTLP over HTTP; `/v1/traces` is added to a URL without a path."),
    ] = ""
    file: Annotated[str, Meta(description="A file that traces are appended to, for `gangsched trace`.")] = ""
    sampling_ratio: Annotated[float, Meta(description="What share of the gangs is traced, 0 to 1.")] = 1.0
    keep: KeepTraces = KeepTraces()


class Record(_Document, frozen=True):
    """Off if there is no directory. Read as config.recording.RecordSettings."""

    directory: Annotated[
        str,
        Meta(
            description="Where everything that decisions follow from is written down, for `gangsched replay`;"
            " the flag `--record` goes before it. Empty: nowhere. [Record and replay](record-and-replay.md)"
        ),
    ] = ""
    max_size_mb: Annotated[
        int,
        Meta(description="All its files together, in 10^6 bytes: the oldest go first."),
    ] = msgspec.field(default=1000, name="maxSizeMB")
    max_age: Annotated[str, Meta(description="How long they are kept.")] = "168h"


class Devices(_Document, frozen=True):
    """Read as config.devices.DeviceSettings."""

    hand_off: Annotated[
        dict[str, Literal["env", "device-plugin", "count"]],
        Meta(
            description="How a resource's IDs reach containers, by resource name; a resource that is not"
            " named uses `env`. `device-plugin`: through kubelet; `count`: no IDs are given."
        ),
    ] = {}
    require: Annotated[
        tuple[str, ...],
        Meta(
            description="Resources whose device IDs must be known: pods that request them go only to nodes"
            " that list their devices, in every profile. One profile alone: the argument `require` of"
            " `Devices`. A pod or PodGroup: `gangsched.io/require-device-ids`."
        ),
    ] = ()
    allocation_in: Annotated[
        Literal["annotations", "labels"],
        Meta(
            description="Whether a pod's IDs are written as annotations or as labels. Labels need Kubernetes"
            " 1.35."
        ),
    ] = "annotations"
    repair_annotations: Annotated[
        bool,
        Meta(
            description="Rewrite device annotations that are not true. Needs the verb patch on pods:"
            " `deploy/device-plugin-hand-off/`."
        ),
    ] = False
    on_mismatch: Annotated[
        Literal["none", "evict"],
        Meta(description="`evict` removes a pod whose devices are of no use to it."),
    ] = "none"
    on_device_failure: Annotated[
        Literal["none", "evictMember", "evictGang"],
        Meta(
            description="What becomes of pods whose device stays unhealthy: `none`, `evictMember` or"
            " `evictGang`."
        ),
    ] = "none"
    failure_grace_seconds: Annotated[
        float,
        Meta(description="How long a device must be unhealthy before that."),
    ] = 30.0
    failure_again_seconds: Annotated[
        float,
        Meta(
            description="How long after such an eviction a group is not evicted for a device that fails"
            " later."
        ),
    ] = 600.0


Inferred = Literal["Job", "JobSet", "LeaderWorkerSet", "RayCluster", "Kueue"]
ForeignMarkers = Literal["refuse", "warn", "ignore"]


class Bound(_Document, frozen=True):
    """Read as config.queueing.QueueingSettings."""

    groups: Annotated[
        int | Literal["auto"],
        Meta(
            description="After how many groups that start in front of it a gang that does not fit [gets room"
            " kept for it](queueing.md#who-is-passed-over). `auto`: 8 for each group that runs when it is"
            " first refused, and at least 64; and the first in line has a claim as soon as its start can be"
            " promised. A number that a reload brings holds for waiting groups, too."
        ),
    ] = "auto"
    mode: Annotated[
        Literal["off", "shadow", "hard", "budget"] | None,
        Meta(
            description="`off`: neither walltimes are read nor passes counted. `shadow`: they are counted and"
            " reported, and nothing else happens. `hard`: at its bound a group gets a"
            " [claim](queueing.md#claims), and no group passes it any more. `budget`: once the claim keeps no"
            " more idle [than is earned](queueing.md#without-walltimes); until then groups continue to pass"
            " it. Not set: `budget`."
        ),
    ] = None
    protects: Annotated[
        Literal["gangs", "all"] | None,
        Meta(
            description="`gangs`: lone pods are not counted, and start among themselves as in kube-scheduler;"
            " `all`: they have a bound, too. Not set: `all` where `mode` is, else `gangs`."
        ),
    ] = None
    idle_percent: Annotated[
        int | None,
        Meta(
            description="With `mode: budget`: how much of each resource of the cluster claims may keep idle,"
            " on average: 1 to 100. Not set: 10."
        ),
    ] = None


class Queueing(_Document, frozen=True):
    """Read as config.queueing.QueueingSettings."""

    bound: Bound = Bound()
    default_walltime: Annotated[
        str,
        Meta(
            description="[How long a group runs](queueing.md#how-long-groups-run) that does not say so and is"
            " like none that ran before: `24h`. Not set: for ever."
        ),
    ] = ""
    on_overrun: Annotated[
        Literal["none", "yield", "evict"] | None,
        Meta(
            description="What becomes of a group that runs past the walltime it states. `none`: nothing."
            " `yield`: while a [claim](queueing.md#claims) waits for its place, it is evicted [half a minute"
            " later](queueing.md#past-the-walltime), if the claim's gang can start then. `evict`: it is"
            " evicted half a minute later in any case; needs no claims. Not set: `none`."
        ),
    ] = None
    estimates: Annotated[
        Literal["asked", "written"] | None,
        Meta(
            description="[Estimated starts](queueing.md#estimated-starts): `written` to PodGroups as they"
            " change, or made only when `asked` for. Not set: `written` where `queueing` is, else `asked`."
        ),
    ] = None


class Fairness(_Document, frozen=True):
    """Read as config.queues.QueuesSettings."""

    half_life: Annotated[
        str,
        Meta(
            description="After how long what a queue has held counts half, beside what it holds now. 0s: only"
            " what it holds now counts. Needs `queues`."
        ),
    ] = "24h"
    compare: Annotated[
        tuple[str, ...],
        Meta(
            description="The resources by which shares are compared: a queue's share is the largest part of"
            " the cluster that it holds of any of them."
        ),
    ] = ("nvidia.com/gpu", "cpu", "memory")
    other_queues: Annotated[
        Literal["ignore", "read"],
        Meta(
            description="`read`: a pod without `gangsched.io/queue` may name its queue by"
            " `kai.scheduler/queue`, `scheduling.volcano.sh/queue-name` or `yunikorn.apache.org/queue`."
        ),
    ] = "ignore"
    reclaim: Annotated[
        Literal["guaranteed", "fair", "never"],
        Meta(
            description="Which pods are evicted for a queue: those that hold what is guaranteed to it; with"
            " `fair` also those that hold what is its share; with `never` none ([queues](queues.md))."
        ),
    ] = "guaranteed"
    kueue_admission: Annotated[
        Literal["ignore", "passesLimits"],
        Meta(
            description="`passesLimits`: what Kueue has admitted of a queue's pods does not count in its"
            " limits ([queues](queues.md#what-kueue-has-admitted))."
        ),
    ] = "ignore"


class QueueDocument(_Document, frozen=True):
    """Read as config.queues.QueueConfig. queues: each again such a document."""

    name: Annotated[
        str,
        Meta(
            description="Lower case letters, digits and dashes, at most 63; once in the whole tree. Without"
            " `queues` there are none, and all groups stand in one line. See [Queues](queues.md)."
        ),
    ]
    share: Annotated[
        float,
        Meta(description="What it is due among the queues beside it, as a proportion."),
    ] = 1.0
    guaranteed: Annotated[
        dict[str, str | int],
        Meta(
            description="By resource: until it holds as much, it goes before those that hold more than"
            " theirs. Those of the queues below it fit into it."
        ),
    ] = {}
    limit: Annotated[
        dict[str, str | int],
        Meta(description="By resource: it and all below it never hold more."),
    ] = {}
    namespaces: Annotated[
        tuple[str, ...],
        Meta(
            description="The namespaces whose pods it is for: names, and prefixes that end in `*`. Each"
            " stands in one queue, and only queues without others below them have any. The closest one counts"
            " for a pod that names no queue."
        ),
    ] = ()
    default_walltime: Annotated[
        str,
        Meta(
            description="The walltime of its groups that state none and whose kind has not run yet. Takes"
            " precedence over `queueing.defaultWalltime`; not with `mode: off`."
        ),
    ] = ""
    bound: Annotated[
        int | Literal["auto"] | None,
        Meta(
            description="The [bound](queueing.md#who-is-passed-over) of its groups: a number, or `auto`. Not"
            " set: that of the closest queue above it that has one, else `queueing.bound.groups`; not with"
            " `mode: off`."
        ),
    ] = None
    order: Annotated[
        Literal["fifo", "shortest"],
        Meta(
            description="In the queue, after priority: `fifo`, or `shortest` walltime first; not with `mode:"
            " off`."
        ),
    ] = "fifo"
    queues: Annotated[
        tuple[dict[str, Any], ...],
        Meta(
            description="The queues below it, each with the same fields; 8 levels and 1,000 queues at most."
        ),
    ] = ()


class Packing(_Document, frozen=True):
    """Packing as one score among others; without a weight it goes first (config.by_profile)."""

    weight: Annotated[
        int | None,
        Meta(
            description="How much [packing weighs beside the"
            " scores](gangs.md#packing-as-one-score-among-others), 0 to 100000. Not set: gangs are packed"
            " first, and scores decide among equally tight placements."
        ),
    ] = None


class ProfileOptions(_Document, frozen=True):
    """Our part of a profile; the rest of it is in KubeSchedulerConfiguration."""

    scheduler_name: Annotated[str, Meta(description="A profile of KubeSchedulerConfiguration.")]
    infer_gangs: Annotated[
        tuple[Inferred, ...] | None,
        Meta(description="The same for this profile alone."),
    ] = None
    foreign_markers: Annotated[
        ForeignMarkers | None,
        Meta(description="The same for this profile alone."),
    ] = None
    default_walltime: Annotated[
        str | None,
        Meta(description="As `queueing.defaultWalltime`, for this profile alone; `''`: none."),
    ] = None
    packing: Annotated[Packing | None, Meta(description="The same for this profile alone.")] = None


class OurDocument(_Document, frozen=True):
    """GangschedConfiguration: what kube-scheduler has no field for. Read as config.Settings."""

    api_version: str = OUR_API_VERSION
    kind: str = OUR_KIND
    on_partial_bind: Annotated[
        Literal["complete", "unwind"],
        Meta(
            description="What becomes of a gang when a bind fails for good and others succeeded: `complete`"
            " binds the rest, `unwind` evicts what is bound. A gang can override it:"
            " `gangsched.io/on-partial-bind`."
        ),
    ] = "complete"
    settle_seconds: Annotated[
        float,
        Meta(
            description="How long a gang may stay half bound: completing it is tried for half of this, then"
            " its bound pods are evicted. No limit under `allowEviction: false`."
        ),
    ] = 30.0
    recover_within_seconds: Annotated[
        float,
        Meta(
            description="How long a gang that has started may run with fewer members than it needs before the"
            " rest is evicted and starts again as one; 0: for ever. See"
            " [gangs](gangs.md#members-that-are-lost)."
        ),
    ] = 0.0
    permit_wait_seconds: Annotated[
        float,
        Meta(
            description="How long a gang holds reservations while it waits, where neither the gang nor a"
            " plugin says. At most 900."
        ),
    ] = 60.0
    hook_timeout_seconds: Annotated[
        float,
        Meta(description="How long a plugin may take in Permit, PreBind, Bind or PostBind. At most 900."),
    ] = 30.0
    plugin_budget_seconds: Annotated[
        float,
        Meta(description="How long a plugin of your own may hold up the scheduler in one turn. At most 10."),
    ] = 1.0
    unschedulable_flush_seconds: Annotated[
        float,
        Meta(description="A group that does not fit is tried again after this long even if nothing changed."),
    ] = 300.0
    topology_key: Annotated[
        str,
        Meta(description="The node label that names a rack: gangs use few nodes, then few racks."),
    ] = "topology.kubernetes.io/rack"
    search_placements: Annotated[
        int,
        Meta(
            description="How many placements, beyond one for each member, are tried in other orders when the"
            " usual orders fail; fewer where members have more than a few terms about other pods, each of"
            " which makes a look longer. 0: none."
        ),
    ] = 2000
    search_victims: Annotated[
        int,
        Meta(
            description="How often one search for victims may ask a node how many pods it takes; fewer"
            " likewise."
        ),
    ] = 20_000
    early_stop: Annotated[
        bool,
        Meta(description="`percentageOfNodesToScore` counts for lone pods, as in kube-scheduler."),
    ] = False
    ties: Annotated[
        Literal["random", "roundRobin"],
        Meta(
            description="Which of equally good nodes a lone pod gets: `random` (seeded), as in"
            " kube-scheduler, or each in turn (`roundRobin`), as in Kubernetes 1.11 and as published."
        ),
    ] = "random"
    invalid_inventory: Annotated[
        Literal["nothing", "counts"],
        Meta(
            description="What a node with an unreadable device list offers: `nothing`, or `counts` (its"
            " allocatable, without IDs)."
        ),
    ] = "nothing"
    allow_eviction: Annotated[
        bool,
        Meta(
            description="Whether pods may be evicted: to give back a half-bound gang, and by preemption."
            " `false`: the bound pods of such a gang stay, and the rest is tried first in line until it has"
            " room. From `true` to `false` while it runs: no pod is asked to go again, be it for others, for"
            " its walltime or with its gang."
        ),
    ] = True
    fence: Annotated[
        bool | None,
        Meta(
            description="Whether every pod is listed in one object before it is bound, so that a leader that"
            " was paused or cut off binds no pod once another leads. Not set: as `leaderElect`. From the next"
            " start."
        ),
    ] = None
    reporting_controller: Annotated[
        str,
        Meta(description="The name that events carry as their reporter."),
    ] = "gangsched"
    infer_gangs: Annotated[
        tuple[Inferred, ...],
        Meta(
            description="Controllers whose pods are a gang without saying so: [with other"
            " controllers](controllers.md). A label `gangsched.io/infer-gangs` of a namespace goes before it."
        ),
    ] = ("JobSet", "LeaderWorkerSet", "RayCluster", "Kueue")
    foreign_markers: Annotated[
        ForeignMarkers,
        Meta(
            description="What becomes of pods and groups that ask for what only another system does: `refuse`"
            " with the reason, `warn` by an event and schedule them without it, or `ignore`."
        ),
    ] = "refuse"
    pod_group_priority_classes: Annotated[
        tuple[str, ...],
        Meta(
            description="PriorityClasses that count [where a PodGroup names them](gangs.md#priority) as they"
            " do on a pod. No quota of pods sees that, so list only those that every tenant may use."
        ),
    ] = ()
    packing: Packing = Packing()
    profiles: tuple[ProfileOptions, ...] = ()
    queueing: Queueing | None = None
    fairness: Fairness | None = None
    queues: tuple[QueueDocument, ...] = ()
    devices: Devices = Devices()
    tracing: Tracing = Tracing()
    record: Record = Record()


def file_with(ours: str) -> str:
    """The text of a file with the default profile, and with these lines in our document."""
    return (
        f"apiVersion: {KUBE_API_VERSION}\nkind: {KUBE_KIND}\n"
        f"profiles: [{{schedulerName: {DEFAULT_SCHEDULER_NAME}}}]\n"
        f"---\napiVersion: {OUR_API_VERSION}\nkind: {OUR_KIND}\n{ours}"
    )

"""GangschedConfiguration: what kube-scheduler has no field for."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gangsched.config.documents import OUR_API_VERSION, OUR_KIND, Document
from gangsched.config.documents.devices import Devices
from gangsched.config.documents.queueing import Queueing
from gangsched.config.documents.queues import Fairness, QueueDocument
from gangsched.config.documents.tracing import Tracing

Inferred = Literal["Job", "JobSet", "LeaderWorkerSet", "RayCluster", "Kueue"]
ForeignMarkers = Literal["refuse", "warn", "ignore"]


class Packing(Document, frozen=True):
    """Packing as one score among others; without a weight it goes first (config.by_profile)."""

    weight: Annotated[
        int | None,
        Meta(
            description="How much [packing weighs beside the"
            " scores](gangs.md#packing-as-one-score-among-others), 0 to 100000. Not set: gangs are packed"
            " first, and scores decide among equally tight placements."
        ),
    ] = None


class ProfileOptions(Document, frozen=True):
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


class Record(Document, frozen=True):
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


class OurDocument(Document, frozen=True):
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
    successor_timeout_seconds: Annotated[
        float,
        Meta(
            description="How long the place of a member that a running gang has lost, and cannot do without,"
            " is kept for its successor; 0: not at all. At most 900. See"
            " [gangs](gangs.md#the-place-of-a-lost-member)."
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

"""The two documents of the configuration file as written, with their defaults.

The first is kube-scheduler's own, so that its files work unchanged; the second is ours. Defaults are
kube-scheduler's unless the comment differs. Rules between fields are in config itself. Sources:
k8s.io/kube-scheduler `config/v1/types.go`, kubernetes `pkg/scheduler/apis/config/v1/defaults.go`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

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
    name: str
    args: dict[str, Any] | None = None


class Profile(_Document, frozen=True):
    scheduler_name: str | None = None
    percentage_of_nodes_to_score: int | None = None
    plugins: PluginSets = PluginSets()
    plugin_config: tuple[PluginArgs, ...] = ()


class LeaderElection(_Document, frozen=True):
    """An unset leaderElect is false here (kube-scheduler: true), resourceName gangsched (kube-scheduler)."""

    leader_elect: bool | None = None
    lease_duration: str = "15s"
    renew_deadline: str = "10s"
    retry_period: str = "2s"
    resource_lock: str = "leases"
    resource_name: str = "gangsched"
    resource_namespace: str = "kube-system"


class ClientConnection(_Document, frozen=True):
    """contentType is JSON here (kube-scheduler: protobuf)."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/json"
    qps: float = 50.0
    burst: int = 100


class KubeDocument(_Document, frozen=True):
    """KubeSchedulerConfiguration. Profiling is off here (kube-scheduler: on)."""

    api_version: str = KUBE_API_VERSION
    kind: str = KUBE_KIND
    parallelism: int = 16
    leader_election: LeaderElection = LeaderElection()
    client_connection: ClientConnection = ClientConnection()
    enable_profiling: bool = False
    enable_contention_profiling: bool = False
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    profiles: tuple[Profile, ...] = ()
    extenders: tuple[ExtenderDocument, ...] = ()
    delay_cache_until_active: bool = False


class KeepTraces(_Document, frozen=True):
    """Meanings: config.tracing.KeepTraces. "" and false: such gangs are sampled like any other."""

    slower_than: str = ""
    failed: bool = False
    preempting: bool = False
    max_held_spans: int = 20_000


class Tracing(_Document, frozen=True):
    """Off if neither an endpoint nor a file is set. Meanings: config.tracing.TracingSettings."""

    endpoint: str = ""
    file: str = ""
    sampling_ratio: float = 1.0
    keep: KeepTraces = KeepTraces()


class Record(_Document, frozen=True):
    """Off if there is no directory. Meanings: config.recording.RecordSettings."""

    directory: str = ""
    max_size_mb: int = msgspec.field(default=1000, name="maxSizeMB")
    max_age: str = "168h"


class Devices(_Document, frozen=True):
    """Meanings: config.devices.DeviceSettings."""

    hand_off: dict[str, Literal["env", "device-plugin", "count"]] = {}
    require: tuple[str, ...] = ()
    allocation_in: Literal["annotations", "labels"] = "annotations"
    repair_annotations: bool = False
    on_mismatch: Literal["none", "evict"] = "none"
    on_device_failure: Literal["none", "evictMember", "evictGang"] = "none"
    failure_grace_seconds: float = 30.0
    failure_again_seconds: float = 600.0


Inferred = Literal["Job", "JobSet", "LeaderWorkerSet", "RayCluster", "Kueue"]
ForeignMarkers = Literal["refuse", "warn", "ignore"]


class Bound(_Document, frozen=True):
    """Meanings: config.queueing.QueueingSettings."""

    groups: int | Literal["auto"] = "auto"
    mode: Literal["off", "shadow", "hard", "budget"] | None = None
    protects: Literal["gangs", "all"] | None = None
    idle_percent: int | None = None


class Queueing(_Document, frozen=True):
    """Meanings: config.queueing.QueueingSettings."""

    bound: Bound = Bound()
    default_walltime: str = ""
    on_overrun: Literal["none", "yield", "evict"] | None = None
    estimates: Literal["asked", "written"] | None = None


class Fairness(_Document, frozen=True):
    """Meanings: config.queues.QueuesSettings."""

    half_life: str = "24h"
    compare: tuple[str, ...] = ("nvidia.com/gpu", "cpu", "memory")
    other_queues: Literal["ignore", "read"] = "ignore"
    reclaim: Literal["guaranteed", "fair", "never"] = "guaranteed"
    kueue_admission: Literal["ignore", "passesLimits"] = "ignore"


class QueueDocument(_Document, frozen=True):
    """Meanings: config.queues.QueueConfig. queues: each again such a document."""

    name: str
    share: float = 1.0
    guaranteed: dict[str, str | int] = {}
    limit: dict[str, str | int] = {}
    namespaces: tuple[str, ...] = ()
    default_walltime: str = ""
    bound: int | Literal["auto"] | None = None
    order: Literal["fifo", "shortest"] = "fifo"
    queues: tuple[dict[str, Any], ...] = ()


class Packing(_Document, frozen=True):
    """weight: of packing as one score among others; None: packing goes first (config.by_profile)."""

    weight: int | None = None


class ProfileOptions(_Document, frozen=True):
    """Our part of a profile; the rest of it is in KubeSchedulerConfiguration."""

    scheduler_name: str
    infer_gangs: tuple[Inferred, ...] | None = None
    foreign_markers: ForeignMarkers | None = None
    default_walltime: str | None = None
    packing: Packing | None = None


class OurDocument(_Document, frozen=True):
    """GangschedConfiguration: what kube-scheduler has no field for. Meanings: config.Settings."""

    api_version: str = OUR_API_VERSION
    kind: str = OUR_KIND
    on_partial_bind: Literal["complete", "unwind"] = "complete"
    settle_seconds: float = 30.0
    recover_within_seconds: float = 0.0
    permit_wait_seconds: float = 60.0
    hook_timeout_seconds: float = 30.0
    plugin_budget_seconds: float = 1.0
    unschedulable_flush_seconds: float = 300.0
    topology_key: str = "topology.kubernetes.io/rack"
    search_placements: int = 2000
    search_victims: int = 20_000
    early_stop: bool = False
    ties: Literal["random", "roundRobin"] = "random"
    invalid_inventory: Literal["nothing", "counts"] = "nothing"
    allow_eviction: bool = True
    fence: bool | None = None
    reporting_controller: str = "gangsched"
    infer_gangs: tuple[Inferred, ...] = ("JobSet", "LeaderWorkerSet", "RayCluster", "Kueue")
    foreign_markers: ForeignMarkers = "refuse"
    pod_group_priority_classes: tuple[str, ...] = ()
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

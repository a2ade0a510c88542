"""The configuration file: KubeSchedulerConfiguration and, beside it, our own settings. Floor 0.

Lives here: text in, one frozen SchedulerConfig out, or a ConfigError that names the path in the file and the
nearest valid name. Not here: reading the file (cli, app), and turning names into plugins (plugins).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gangsched.config.by_profile import (
    resolve_classes,
    resolve_foreign,
    resolve_inferred,
    resolve_packing,
    without_managed,
)
from gangsched.config.devices import DeviceSettings, resolve_devices, with_required
from gangsched.config.documents import (
    DEFAULT_SCHEDULER_NAME,
    KUBE_API_VERSION,
    KUBE_KIND,
    OUR_API_VERSION,
    OUR_KIND,
)
from gangsched.config.documents.kube import ClientConnection, KubeDocument, Profile
from gangsched.config.documents.ours import OurDocument
from gangsched.config.election import LeaderElectionSettings, resolve_election
from gangsched.config.extenders import ExtenderConfig, resolve_extenders
from gangsched.config.profiles import PluginInfo, ProfileConfig, resolve
from gangsched.config.queueing import EVICT, YIELD, YIELDS, QueueingSettings, resolve_queueing
from gangsched.config.queues import QueuesSettings, note_lost_guarantees, resolve_queues, with_fairness
from gangsched.config.recording import RecordSettings, resolve_record
from gangsched.config.tracing import TracingSettings, resolve_tracing
from gangsched.errors import ConfigError
from gangsched.model.text.names import is_qualified_name
from gangsched.reading.strict import decode, nearest, read_documents

KUBE_DEFAULT_NAME = "default-scheduler"
# kube-scheduler limits a Permit plugin's wait to this too (framework/runtime, maxTimeout).
_MAX_PERMIT_WAIT_S = 900.0
# One placement takes about 0.1 ms on 5,000 nodes, and no other decision is made meanwhile.
_MAX_SEARCH = 1_000_000
# A scheduler blocked for longer loses its lease.
_MAX_BUDGET_S = 10.0
_MAX_SECONDS = 86_400.0
# When a running scheduler adopts this many, it takes a second of the event loop.
MAX_PROFILES = 1_000
# Each is a task with its own connection, all made at the start.
_MAX_PARALLELISM = 1_000
_NO_FLAGS: Mapping[str, str | bool] = {}


class Settings(msgspec.Struct, frozen=True):
    """Settings of gang scheduling, for all profiles.

    on_partial_bind: what happens to a partly bound gang when a bind fails for good; settle_s: how long it
    may stay partly bound. recover_within_s: how long one that has lost members may lack them; 0: for ever.
    successor_timeout_s: how long the place of such a member is kept for the next one; 0: not at all.
    permit_wait_s: WaitOnPermit's timeout by default. hook_timeout_s: the limit of a plugin's hook at the
    edge. plugin_budget_s: how long an out-of-tree plugin may block a turn. topology_key: the node label that
    names a rack. ties: which of equally good nodes a lone pod gets. invalid_inventory: what a node with an
    unreadable inventory offers. allow_eviction: half-bound gangs may be unwound by evicting bound pods.
    fence: binds are listed before they are sent, so that those of a former leader are harmless
    (kube.election.fence). tells_victims: report the victims that preemption would choose if it may not evict
    (shadow mode). parallelism: binds in flight at once. search_placements: how many placements beyond one
    for each member may be tried before a gang is reported as not fitting. search_victims: how often one
    search for victims may compute a node's capacity. devices: config.devices. nodes_to_score: percentage of
    the nodes considered for a lone pod, by profile (0: by the cluster's size); without any, all of them.
    infer_gangs: which controllers' pods are gangs without stating it, by profile (model.owners), in the
    order of checking. foreign_markers: by profile, what happens to pods and groups that request what only
    another system does: WARN or IGNORE, else REFUSE (config.by_profile). pod_group_classes: the
    PriorityClasses that count on a PodGroup as they do on a pod. packing_weights: the weight of packing among
    the scores, by profile (config.by_profile); gangs of other profiles are packed first. queueing: read
    walltimes and count passes (config.queueing); None: neither. queues: the tree (config.queues); None: no
    queues.
    """

    on_partial_bind: Literal["complete", "unwind"] = "complete"
    settle_s: float = 30.0
    permit_wait_s: float = 60.0
    unschedulable_flush_s: float = 300.0
    topology_key: str = "topology.kubernetes.io/rack"
    invalid_inventory: Literal["nothing", "counts"] = "nothing"
    allow_eviction: bool = True
    reporting_controller: str = "gangsched"
    pod_initial_backoff_s: float = 1.0
    pod_max_backoff_s: float = 10.0
    parallelism: int = 16
    search_placements: int = 2000
    search_victims: int = 20_000
    nodes_to_score: Mapping[str, int] = {}
    hook_timeout_s: float = 30.0
    plugin_budget_s: float = 1.0
    devices: DeviceSettings = DeviceSettings()
    tells_victims: bool = False
    fence: bool = False
    infer_gangs: Mapping[str, tuple[str, ...]] = {}
    foreign_markers: Mapping[str, str] = {}
    pod_group_classes: frozenset[str] = frozenset()
    packing_weights: Mapping[str, int] = {}
    ties: Literal["random", "roundRobin"] = "random"
    queueing: QueueingSettings | None = None
    queues: QueuesSettings | None = None
    recover_within_s: float = 0.0
    successor_timeout_s: float = 0.0

    @property
    def evicts_for_claims(self) -> bool:
        """Whether pods past their stated walltime are evicted for a claim, if that lets its gang start."""
        return self.allow_eviction and self.queueing is not None and self.queueing.on_overrun in YIELDS

    @property
    def ends_overrun(self) -> bool:
        """Whether pods past their stated walltime are evicted even if nothing waits; if evictions are not
        allowed, this is only reported.
        """
        return self.queueing is not None and self.queueing.on_overrun == EVICT


class SchedulerConfig(msgspec.Struct, frozen=True):
    """The whole file, checked and with defaults. notes: accepted fields that do nothing here."""

    profiles: tuple[ProfileConfig, ...]
    settings: Settings
    leader_election: LeaderElectionSettings
    client_connection: ClientConnection
    tracing: TracingSettings = TracingSettings()
    notes: tuple[str, ...] = ()
    source: str = ""
    extenders: tuple[ExtenderConfig, ...] = ()
    record: RecordSettings = RecordSettings()

    @property
    def plugin_names(self) -> set[str]:
        """The plugins that its profiles enable."""
        return {name for one in self.profiles for listed in one.plugins.values() for name in listed}


def default_config(
    plugins: Mapping[str, PluginInfo],
    *,
    election_flags: Mapping[str, str | bool] = _NO_FLAGS,
    scheduler_name: str = DEFAULT_SCHEDULER_NAME,
) -> SchedulerConfig:
    """The configuration without a file: one profile with all default plugins. Raises: ConfigError."""
    kube = KubeDocument(profiles=(Profile(scheduler_name=scheduler_name),))
    return _assemble(kube, OurDocument(), plugins, [], election_flags, source="")


def parse_config(
    text: str,
    *,
    source: str,
    plugins: Mapping[str, PluginInfo],
    election_flags: Mapping[str, str | bool] = _NO_FLAGS,
    extenders: Sequence[ExtenderConfig] | None = None,
) -> SchedulerConfig:
    """Reads a configuration file's text. `plugins` are all known ones, in their default order.

    `election_flags` override leaderElection's fields (by LeaderElection's names) before anything is checked.
    `extenders` replace the file's: a running process keeps the ones it started with. Raises: ConfigError,
    with `source` (the file's name, for the message).
    """
    try:
        kube, ours = _by_kind(read_documents(text))
        notes: list[str] = []
        kube_document = decode(KubeDocument, kube, "")
        our_document = decode(OurDocument, ours, "")
        if kube_document.leader_election.leader_elect is None and "leader_elect" not in election_flags:
            notes.append("leaderElection.leaderElect is not set: it is false, in kube-scheduler true")
        return _assemble(
            kube_document, our_document, plugins, notes, election_flags, source=source, in_effect=extenders
        )
    except ConfigError as error:
        if error.path.startswith("--"):
            raise  # not the file's mistake
        raise ConfigError(error.message, path=error.path, source=source) from None


def without_writes(config: SchedulerConfig) -> SchedulerConfig:
    """Returns the same for shadow mode: without lease, fence, and eviction of half-bound gangs."""
    election = msgspec.structs.replace(config.leader_election, leader_elect=False)
    settings = msgspec.structs.replace(config.settings, allow_eviction=False, tells_victims=True, fence=False)
    return msgspec.structs.replace(config, leader_election=election, settings=settings)


def on_trial(settings: Settings, *, allow_eviction: bool) -> Settings:
    """Returns the same for a what-if question: evicts only for a gang that starts as a result."""
    queueing = settings.queueing
    if queueing is not None and queueing.on_overrun == EVICT:
        queueing = msgspec.structs.replace(queueing, on_overrun=YIELD)
    allowed = allow_eviction and settings.allow_eviction
    return msgspec.structs.replace(settings, allow_eviction=allowed, queueing=queueing)


def _by_kind(documents: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(kube-scheduler's document, ours); ours may be absent."""
    versions = {KUBE_KIND: KUBE_API_VERSION, OUR_KIND: OUR_API_VERSION}
    found: dict[str, dict[str, Any]] = {}
    for document in documents:
        kind = document.get("kind")
        if not isinstance(kind, str) or kind not in versions:
            hint = nearest(kind, versions) if isinstance(kind, str) else ""
            if kind == "AgentConfiguration":
                hint = "; it is the agent's: gangsched agent --config FILE --dry-run"
            raise ConfigError(f"{kind!r} is neither {KUBE_KIND} nor {OUR_KIND}{hint}", path="kind")
        if document.get("apiVersion") != versions[kind]:
            version = document.get("apiVersion")
            raise ConfigError(f"{version!r} should be {versions[kind]!r} for {kind}", path="apiVersion")
        if kind in found:
            raise ConfigError(f"two documents of kind {kind}; keep one", path="kind")
        found[kind] = document
    if KUBE_KIND not in found:
        raise ConfigError(f"no document of kind {KUBE_KIND}", path="kind")
    return found[KUBE_KIND], found.get(OUR_KIND, {})


def _assemble(
    kube: KubeDocument,
    ours: OurDocument,
    plugins: Mapping[str, PluginInfo],
    notes: list[str],
    election_flags: Mapping[str, str | bool],
    *,
    source: str,
    in_effect: Sequence[ExtenderConfig] | None = None,
) -> SchedulerConfig:
    election = resolve_election(kube.leader_election, election_flags)
    _check_kube(kube, election, notes, early_stop=ours.early_stop)
    _check_ours(ours)
    settings = Settings(
        on_partial_bind=ours.on_partial_bind,
        settle_s=ours.settle_seconds,
        recover_within_s=ours.recover_within_seconds,
        successor_timeout_s=ours.successor_timeout_seconds,
        permit_wait_s=ours.permit_wait_seconds,
        hook_timeout_s=ours.hook_timeout_seconds,
        plugin_budget_s=ours.plugin_budget_seconds,
        unschedulable_flush_s=ours.unschedulable_flush_seconds,
        topology_key=ours.topology_key,
        search_placements=ours.search_placements,
        search_victims=ours.search_victims,
        ties=ours.ties,
        invalid_inventory=ours.invalid_inventory,
        allow_eviction=ours.allow_eviction,
        fence=election.leader_elect if ours.fence is None else ours.fence,
        reporting_controller=ours.reporting_controller,
        pod_initial_backoff_s=float(kube.pod_initial_backoff_seconds),
        pod_max_backoff_s=float(kube.pod_max_backoff_seconds),
        parallelism=kube.parallelism,
        devices=resolve_devices(ours.devices),
    )
    extenders = resolve_extenders(kube.extenders)
    if settings.devices.in_labels:
        notes.append(
            "devices.allocationIn: labels: needs Kubernetes 1.35 or later; the server is asked at the start"
        )
    if not settings.allow_eviction:
        notes.append(
            "allowEviction: false: a gang that is bound in part keeps its bound pods and their devices until "
            "the rest of it has room or they are deleted, whatever settleSeconds and onPartialBind say; "
            "nobody is preempted"
        )
    counting = extenders if in_effect is None else in_effect
    profiles = without_managed(_profiles(kube, plugins, notes, early_stop=ours.early_stop), counting)
    profiles = with_required(profiles, settings.devices)
    queues = resolve_queues(ours)
    profiles = with_fairness(profiles, queues, plugins, notes)
    note_lost_guarantees(profiles, queues, notes, may_evict=settings.allow_eviction)
    to_score = _nodes_to_score(kube, ours, (profile.scheduler_name for profile in profiles))
    names = [profile.scheduler_name for profile in profiles]
    settings = msgspec.structs.replace(
        settings,
        nodes_to_score=to_score,
        infer_gangs=resolve_inferred(ours, names),
        foreign_markers=resolve_foreign(ours, names),
        pod_group_classes=resolve_classes(ours),
        packing_weights=resolve_packing(ours, names),
        queueing=resolve_queueing(ours, names),
        queues=queues,
    )
    tracing, record = resolve_tracing(ours.tracing), resolve_record(ours.record)
    return SchedulerConfig(
        profiles, settings, election, kube.client_connection, tracing, tuple(notes), source, extenders, record
    )


def _profiles(
    kube: KubeDocument, plugins: Mapping[str, PluginInfo], notes: list[str], *, early_stop: bool
) -> tuple[ProfileConfig, ...]:
    given = kube.profiles or (Profile(),)
    if len(given) > MAX_PROFILES:
        raise ConfigError(f"{len(given)} profiles, at most {MAX_PROFILES}", path="profiles")
    resolved: list[ProfileConfig] = []
    for i, profile in enumerate(given):
        path = f"profiles[{i}]"
        name = profile.scheduler_name
        if name is None and len(given) == 1:
            name = KUBE_DEFAULT_NAME
            notes.append(f"{path}.schedulerName is not set: it is {name}, as in kube-scheduler")
        if not name:
            raise ConfigError("is required where there are several profiles", path=f"{path}.schedulerName")
        for j, other in enumerate(resolved):
            if other.scheduler_name == name:
                raise ConfigError(
                    f"{name!r} is the name of profiles[{j}] already", path=f"{path}.schedulerName"
                )
        _check_percentage(profile.percentage_of_nodes_to_score, path, notes, counts=early_stop)
        resolved.append(resolve(profile, name, plugins, path=path, notes=notes))
        if resolved[i].plugins["queueSort"] != resolved[0].plugins["queueSort"]:
            raise ConfigError("must be the same for all profiles", path=f"{path}.plugins.queueSort")
    return tuple(resolved)


def _check_kube(
    kube: KubeDocument, election: LeaderElectionSettings, notes: list[str], *, early_stop: bool
) -> None:
    """kube-scheduler's validation rules, and notes on unsupported fields."""
    if kube.parallelism <= 0:
        raise ConfigError(f"{kube.parallelism} is not greater than 0", path="parallelism")
    if kube.parallelism > _MAX_PARALLELISM:
        raise ConfigError(f"{kube.parallelism} is more than {_MAX_PARALLELISM}", path="parallelism")
    if kube.pod_initial_backoff_seconds <= 0:
        raise ConfigError(
            f"{kube.pod_initial_backoff_seconds} is not greater than 0", path="podInitialBackoffSeconds"
        )
    if kube.pod_max_backoff_seconds < kube.pod_initial_backoff_seconds:
        raise ConfigError(
            f"{kube.pod_max_backoff_seconds} is less than podInitialBackoffSeconds, "
            f"{kube.pod_initial_backoff_seconds}",
            path="podMaxBackoffSeconds",
        )
    _check_percentage(kube.percentage_of_nodes_to_score, "", notes, counts=early_stop)
    connection = kube.client_connection
    if not math.isfinite(connection.qps):
        raise ConfigError(f"{connection.qps} is not a number of requests", path="clientConnection.qps")
    if connection.burst < 0:
        raise ConfigError(f"{connection.burst} is less than 0", path="clientConnection.burst")
    if "json" not in connection.content_type or "json" not in (connection.accept_content_types or "json"):
        notes.append(f"clientConnection.contentType {connection.content_type}: JSON is spoken")
    if kube.enable_profiling or kube.enable_contention_profiling:
        notes.append("enableProfiling, enableContentionProfiling: there are no profiling endpoints")
    if kube.delay_cache_until_active:
        why = (
            "a replica that does not lead follows everything"
            if election.leader_elect
            else ("without leader election the only replica is always active")
        )
        notes.append(f"delayCacheUntilActive: {why}")


def _check_percentage(percentage: int | None, path: str, notes: list[str], *, counts: bool) -> None:
    if percentage is None:
        return
    full = f"{path}.percentageOfNodesToScore" if path else "percentageOfNodesToScore"
    if not 0 <= percentage <= 100:
        raise ConfigError(f"{percentage} is not within 0..100", path=full)
    if not counts:
        notes.append(f"{full} {percentage}: all nodes are always scored; earlyStop has it count")


def _nodes_to_score(kube: KubeDocument, ours: OurDocument, names: Iterable[str]) -> dict[str, int]:
    """percentageOfNodesToScore by profile, if it applies: its own, else the whole file's, else 0."""
    if not ours.early_stop:
        return {}
    everywhere = kube.percentage_of_nodes_to_score or 0
    given = kube.profiles or (Profile(),)
    own = (one.percentage_of_nodes_to_score for one in given)
    return {name: everywhere if one is None else one for name, one in zip(names, own, strict=True)}


def _check_ours(ours: OurDocument) -> None:
    for name, value, most in (
        ("settleSeconds", ours.settle_seconds, _MAX_SECONDS),
        ("recoverWithinSeconds", ours.recover_within_seconds or 1.0, _MAX_SECONDS),
        ("successorTimeoutSeconds", ours.successor_timeout_seconds or 1.0, _MAX_PERMIT_WAIT_S),
        ("permitWaitSeconds", ours.permit_wait_seconds, _MAX_PERMIT_WAIT_S),
        ("hookTimeoutSeconds", ours.hook_timeout_seconds, _MAX_PERMIT_WAIT_S),
        ("pluginBudgetSeconds", ours.plugin_budget_seconds, _MAX_BUDGET_S),
        ("unschedulableFlushSeconds", ours.unschedulable_flush_seconds, _MAX_SECONDS),
    ):
        if not (math.isfinite(value) and 0 < value <= most):
            raise ConfigError(f"{value:g} is not greater than 0 and at most {most:g}", path=name)
    if not is_qualified_name(ours.topology_key):
        raise ConfigError(f"{ours.topology_key!r} is not a label key", path="topologyKey")
    if not 0 <= ours.search_placements <= _MAX_SEARCH:
        raise ConfigError(f"{ours.search_placements} is not within 0..{_MAX_SEARCH}", path="searchPlacements")
    if not 1 <= ours.search_victims <= _MAX_SEARCH:
        raise ConfigError(f"{ours.search_victims} is not within 1..{_MAX_SEARCH}", path="searchVictims")
    if not is_qualified_name(ours.reporting_controller) or len(ours.reporting_controller) > 128:
        what = "is not a name of 1 to 128 characters, as gangsched or example.com/a is"
        raise ConfigError(f"{ours.reporting_controller!r} {what}", path="reportingController")


__all__ = [
    "KUBE_DEFAULT_NAME",
    "ExtenderConfig",
    "LeaderElectionSettings",
    "PluginInfo",
    "ProfileConfig",
    "SchedulerConfig",
    "Settings",
    "TracingSettings",
    "default_config",
    "parse_config",
    "without_writes",
]

"""The configuration in effect, as documents that give the same result when reread.

For /configz and --write-config-to. Lives here: SchedulerConfig to plain data, defaults spelled out. Not here:
reading (the rest of config).
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.config import SchedulerConfig, Settings
from gangsched.config.by_profile import REFUSE
from gangsched.config.documents import KUBE_API_VERSION, KUBE_KIND, OUR_API_VERSION, OUR_KIND
from gangsched.config.extenders import effective_extender
from gangsched.config.profiles import ProfileConfig
from gangsched.config.queueing import AUTO, BUDGET, EVICT, OFF, SHADOW, effective_walltime
from gangsched.config.queues import effective_queues
from gangsched.config.recording import effective_record
from gangsched.config.tracing import effective_tracing
from gangsched.reading.durations import duration_text

Document = dict[str, Any]


def effective_documents(config: SchedulerConfig) -> tuple[Document, Document]:
    """(KubeSchedulerConfiguration, GangschedConfiguration)."""
    return _kube(config), _ours(config)


def effective_yaml(config: SchedulerConfig) -> str:
    """Both documents as one file."""
    import yaml

    # Takes a quarter of the Python dumper's time, by which a journal's start would delay the first bind.
    return str(yaml.dump_all(effective_documents(config), Dumper=yaml.CSafeDumper, sort_keys=False))


def _kube(config: SchedulerConfig) -> Document:
    settings, election = config.settings, config.leader_election
    return {
        "apiVersion": KUBE_API_VERSION,
        "kind": KUBE_KIND,
        "parallelism": settings.parallelism,
        "leaderElection": {
            "leaderElect": election.leader_elect,
            "leaseDuration": duration_text(election.lease_duration_s),
            "renewDeadline": duration_text(election.renew_deadline_s),
            "retryPeriod": duration_text(election.retry_period_s),
            "resourceLock": "leases",
            "resourceName": election.resource_name,
            "resourceNamespace": election.resource_namespace,
        },
        "clientConnection": msgspec.to_builtins(config.client_connection),
        "enableProfiling": False,
        "enableContentionProfiling": False,
        "podInitialBackoffSeconds": round(settings.pod_initial_backoff_s),
        "podMaxBackoffSeconds": round(settings.pod_max_backoff_s),
        "profiles": [
            _profile(profile, config.settings.nodes_to_score.get(profile.scheduler_name))
            for profile in config.profiles
        ],
        "extenders": [effective_extender(one) for one in config.extenders],
    }


def _by_profile(config: SchedulerConfig) -> Document:
    """Returns the first profile's options for all, and those of other profiles where they differ."""
    settings = config.settings
    options: dict[str, Document] = {
        one.scheduler_name: {
            "inferGangs": [*settings.infer_gangs.get(one.scheduler_name, ())],
            "foreignMarkers": settings.foreign_markers.get(one.scheduler_name, REFUSE),
            "packing": {"weight": settings.packing_weights.get(one.scheduler_name)},
            **_walltime(settings, one.scheduler_name),
        }
        for one in config.profiles
    }
    first = next(iter(options.values()))
    own = [
        {"schedulerName": name, **{key: value for key, value in mine.items() if value != first[key]}}
        for name, mine in options.items()
        if mine != first
    ]
    return {
        **{key: value for key, value in first.items() if key != _WALLTIME},
        "podGroupPriorityClasses": sorted(settings.pod_group_classes),
        "profiles": own,
    }


_WALLTIME = "defaultWalltime"


def _walltime(settings: Settings, name: str) -> Document:
    """Returns a profile's walltime; the one for all profiles is in `queueing`."""
    known = settings.queueing
    return {} if known is None else {_WALLTIME: effective_walltime(known, name)}


def _queueing(config: SchedulerConfig) -> Document:
    known = config.settings.queueing
    if known is None:
        return {"queueing": {"bound": {"mode": OFF}}}
    protects = "gangs" if known.gangs_alone else "all"
    bound: Document = {"groups": AUTO if known.bound is None else known.bound, "mode": known.mode}
    bound["protects"] = protects
    if known.mode == BUDGET:
        bound["idlePercent"] = round(known.idle_share * 100)
    walltime = effective_walltime(known, config.profiles[0].scheduler_name)
    is_said = known.mode != SHADOW or known.on_overrun == EVICT
    yields = {"onOverrun": known.on_overrun} if is_said else {}
    estimates = "written" if known.writes_estimates else "asked"
    return {"queueing": {"bound": bound, _WALLTIME: walltime, **yields, "estimates": estimates}}


def _profile(profile: ProfileConfig, percentage: int | None) -> Document:
    """Returns a profile with a list for every point, in calling order: no defaults are left to merge."""
    plugins: Document = {"multiPoint": {"disabled": [{"name": "*"}]}}
    for point, names in profile.plugins.items():
        enabled = [{"name": name} for name in names]
        if point == "score":
            enabled = [{"name": name, "weight": profile.weights[name]} for name in names]  # type: ignore[dict-item]
        plugins[point] = {"enabled": enabled}
    args = [
        {"name": name, "args": msgspec.to_builtins(one, str_keys=True)}
        for name, one in sorted(profile.args.items())
    ]
    made: Document = {"schedulerName": profile.scheduler_name, "plugins": plugins, "pluginConfig": args}
    if percentage is not None:
        made["percentageOfNodesToScore"] = percentage
    return made


def _ours(config: SchedulerConfig) -> Document:
    settings = config.settings
    return {
        "apiVersion": OUR_API_VERSION,
        "kind": OUR_KIND,
        "onPartialBind": settings.on_partial_bind,
        "settleSeconds": settings.settle_s,
        "recoverWithinSeconds": settings.recover_within_s,
        "successorTimeoutSeconds": settings.successor_timeout_s,
        "permitWaitSeconds": settings.permit_wait_s,
        "hookTimeoutSeconds": settings.hook_timeout_s,
        "pluginBudgetSeconds": settings.plugin_budget_s,
        "unschedulableFlushSeconds": settings.unschedulable_flush_s,
        "topologyKey": settings.topology_key,
        "searchPlacements": settings.search_placements,
        "searchVictims": settings.search_victims,
        "earlyStop": bool(settings.nodes_to_score),
        "ties": settings.ties,
        "invalidInventory": settings.invalid_inventory,
        "allowEviction": settings.allow_eviction,
        "fence": settings.fence,
        "reportingController": settings.reporting_controller,
        **_by_profile(config),
        **_queueing(config),
        **effective_queues(settings.queues),
        "devices": {
            "handOff": dict(settings.devices.hand_off),
            "require": list(settings.devices.require),
            "allocationIn": settings.devices.allocation_in,
            "repairAnnotations": settings.devices.repair,
            "onMismatch": settings.devices.on_mismatch,
            "onDeviceFailure": settings.devices.on_failure,
            "failureGraceSeconds": settings.devices.failure_grace_s,
            "failureAgainSeconds": settings.devices.failure_again_s,
            "deviceOrder": settings.devices.order,
        },
        "tracing": effective_tracing(config.tracing),
        "record": effective_record(config.record),
    }

"""Floor 2: the in-tree plugins, one file each with its Args beside it.

The table below lists them in kube-scheduler's default order; `build_profiles` makes profiles from a resolved
configuration. A new plugin needs its file, and one line in the table.
Source of order, weights and points: kubernetes `pkg/scheduler/apis/config/v1/default_plugins.go`, v1.37.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gangsched.config import PluginInfo, ProfileConfig, SchedulerConfig
from gangsched.core.framework.extension_points import ExtensionPoints
from gangsched.core.framework.profile import Profile
from gangsched.core.framework.supports import PollsMetricsServer, serves
from gangsched.core.groups.attempts.extenders import ExtenderVerdicts
from gangsched.plugins import default_preemption
from gangsched.plugins.default_binder import DefaultBinder
from gangsched.plugins.default_preemption import DefaultPreemption
from gangsched.plugins.fairness import Fairness
from gangsched.plugins.gang_scheduling import GangScheduling
from gangsched.plugins.neighbours import inter_pod_affinity, spread_constraints
from gangsched.plugins.neighbours.inter_pod_affinity import InterPodAffinity
from gangsched.plugins.neighbours.pod_topology_spread import PodTopologySpread
from gangsched.plugins.neighbours.selector_spread import SelectorSpread
from gangsched.plugins.nodes import node_affinity, node_prefer_avoid_pods
from gangsched.plugins.nodes.node_affinity import NodeAffinity
from gangsched.plugins.nodes.node_conditions import NodeConditions
from gangsched.plugins.nodes.node_declared_features import NodeDeclaredFeatures
from gangsched.plugins.nodes.node_name import NodeName
from gangsched.plugins.nodes.node_ports import NodePorts
from gangsched.plugins.nodes.node_prefer_avoid_pods import NodePreferAvoidPods
from gangsched.plugins.nodes.node_unschedulable import NodeUnschedulable
from gangsched.plugins.nodes.taint_toleration import TaintToleration
from gangsched.plugins.priority_sort import PrioritySort
from gangsched.plugins.resources import (
    devices,
    dynamic_resources,
    load_aware,
    node_resources_balanced_allocation,
    node_resources_fit,
    remaining_bandwidth,
)
from gangsched.plugins.resources.devices import Devices
from gangsched.plugins.resources.dynamic_resources import DynamicResources
from gangsched.plugins.resources.image_locality import ImageLocality
from gangsched.plugins.resources.load_aware import LoadAware
from gangsched.plugins.resources.node_resources_balanced_allocation import NodeResourcesBalancedAllocation
from gangsched.plugins.resources.node_resources_fit import NodeResourcesFit
from gangsched.plugins.resources.remaining_bandwidth import RemainingBandwidth
from gangsched.plugins.scheduling_gates import SchedulingGates
from gangsched.plugins.volumes import node_volume_limits, volume_binding
from gangsched.plugins.volumes.node_volume_limits import NodeVolumeLimits
from gangsched.plugins.volumes.volume_binding import VolumeBinding
from gangsched.plugins.volumes.volume_restrictions import VolumeRestrictions
from gangsched.plugins.volumes.volume_zone import VolumeZone

Factory = Callable[..., Any]


def _info(
    name: str,
    *points: str,
    args_type: type[msgspec.Struct] | None = None,
    weight: int = 0,
    is_default: bool = True,
) -> PluginInfo:
    return PluginInfo(name, frozenset(points), args_type, weight, is_default)


_TABLE: tuple[tuple[PluginInfo, Factory], ...] = (
    (_info("SchedulingGates", "preEnqueue"), SchedulingGates),
    (_info("PrioritySort", "queueSort"), PrioritySort),
    (_info("Fairness", "preEnqueue", "queueSort", is_default=False), Fairness),
    (_info("NodeName", "preFilter", "filter"), NodeName),
    (_info("NodeUnschedulable", "preFilter", "filter"), NodeUnschedulable),
    (_info("TaintToleration", "preFilter", "filter", "preScore", "score", weight=3), TaintToleration),
    (
        _info(
            "NodeAffinity",
            *("preFilter", "filter", "preScore", "score"),
            args_type=node_affinity.Args,
            weight=2,
        ),
        NodeAffinity,
    ),
    (_info("NodePorts", "preFilter", "filter"), NodePorts),
    (
        _info(
            "NodeResourcesFit",
            *("preFilter", "filter", "preScore", "score", "placementScore"),
            args_type=node_resources_fit.Args,
            weight=1,
        ),
        NodeResourcesFit,
    ),
    (_info("VolumeRestrictions", "preFilter", "filter"), VolumeRestrictions),
    (
        _info("NodeVolumeLimits", "preFilter", "filter", args_type=node_volume_limits.Args),
        NodeVolumeLimits,
    ),
    (
        _info(
            "VolumeBinding",
            *("preFilter", "filter", "preScore", "score", "reserve", "preBind"),
            args_type=volume_binding.Args,
        ),
        VolumeBinding,
    ),
    (_info("VolumeZone", "preFilter", "filter"), VolumeZone),
    (
        _info(
            "PodTopologySpread",
            *("preFilter", "filter", "preScore", "score"),
            args_type=spread_constraints.Args,
            weight=2,
        ),
        PodTopologySpread,
    ),
    (
        _info(
            "InterPodAffinity",
            *("preFilter", "filter", "preScore", "score"),
            args_type=inter_pod_affinity.Args,
            weight=2,
        ),
        InterPodAffinity,
    ),
    (
        _info(
            "DynamicResources",
            *("preEnqueue", "preFilter", "filter", "postFilter", "score", "reserve", "preBind"),
            "podGroupPostFilter",
            args_type=dynamic_resources.Args,
            weight=2,
        ),
        DynamicResources,
    ),
    (
        _info(
            "DefaultPreemption",
            *("preEnqueue", "postFilter", "podGroupPostFilter"),
            args_type=default_preemption.Args,
        ),
        DefaultPreemption,
    ),
    (
        _info(
            "NodeResourcesBalancedAllocation",
            *("preScore", "score"),
            args_type=node_resources_balanced_allocation.Args,
            weight=1,
        ),
        NodeResourcesBalancedAllocation,
    ),
    (_info("ImageLocality", "score", weight=1), ImageLocality),
    (_info("Devices", "preFilter", "filter", args_type=devices.Args), Devices),
    (
        _info(
            "RemainingBandwidth",
            *("preFilter", "filter", "score"),
            args_type=remaining_bandwidth.Args,
            weight=1,
        ),
        RemainingBandwidth,
    ),
    (_info("LoadAware", "score", args_type=load_aware.Args, weight=1, is_default=False), LoadAware),
    (_info("SelectorSpread", "preScore", "score", weight=1, is_default=False), SelectorSpread),
    (
        _info(
            "NodePreferAvoidPods",
            "score",
            weight=node_prefer_avoid_pods.WEIGHT,
            is_default=False,
        ),
        NodePreferAvoidPods,
    ),
    (_info("NodeConditions", "preFilter", "filter", is_default=False), NodeConditions),
    (_info("NodeDeclaredFeatures", "preFilter", "filter"), NodeDeclaredFeatures),
    (_info("DefaultBinder", "bind"), DefaultBinder),
    (_info("GangScheduling", "preEnqueue", "permit"), GangScheduling),
)

IN_TREE = {info.name: info for info, _ in _TABLE}
"""The `plugins` argument of gangsched.config."""

_NONE: Mapping[str, Factory] = {}
_FACTORIES = {info.name: factory for info, factory in _TABLE}


def metrics_server_s(profiles: Mapping[str, Profile]) -> float:
    """Returns the shortest interval at which a plugin wants metrics-server polled, in seconds; 0: none
    does."""
    plugins = (one for profile in profiles.values() for one in profile.points.plugins().values())
    wanted = [plugin.metrics_server_s for plugin in plugins if serves(plugin, PollsMetricsServer)]
    return min((period_s for period_s in wanted if period_s > 0), default=0.0)


def build_profiles(
    config: SchedulerConfig,
    outside: Mapping[str, Factory] = _NONE,
    *,
    extenders: ExtenderVerdicts | None = None,
    with_hooks: bool = True,
) -> dict[str, Profile]:
    """Builds profiles by schedulerName; a plugin is made once per profile, with that profile's args.

    `outside` makes out-of-tree plugins. `extenders` are asked after all other plugins, in every profile.
    `with_hooks` False leaves out hooks that run outside the core and may write. Raises: ConfigError (an
    out-of-tree plugin that cannot be made).
    """
    profiles = {profile.scheduler_name: _build(profile, outside, extenders) for profile in config.profiles}
    if not with_hooks:
        profiles = {name: Profile(name, _without_hooks(profile.points)) for name, profile in profiles.items()}
    return profiles


def _without_hooks(points: ExtensionPoints) -> ExtensionPoints:
    permits = tuple(one for one in points.permits if not inspect.iscoroutinefunction(one.permit))
    asked = tuple(one for one in points.pre_enqueue if not inspect.iscoroutinefunction(one.pre_enqueue))
    return msgspec.structs.replace(
        points,
        pre_enqueue=asked,
        permits=permits,
        pre_binds=(),
        binds=(),
        has_default_binder=True,
        post_binds=(),
    )


def _build(
    config: ProfileConfig, outside: Mapping[str, Factory], extenders: ExtenderVerdicts | None
) -> Profile:
    names = {name for listed in config.plugins.values() for name in listed}
    factories = {**_FACTORIES, **outside}
    made = {name: _make(make, config.args.get(name)) for name, make in factories.items() if name in names}

    def at(point: str, *methods: str) -> tuple[Any, ...]:
        """Returns the point's plugins that define one of the methods; others have nothing to do there."""
        listed = [made[name] for name in config.plugins[point]]
        if len(methods) == 1:
            return tuple([plugin for plugin in listed if hasattr(plugin, methods[0])])
        return tuple([plugin for plugin in listed if any(hasattr(plugin, method) for method in methods)])

    (queue_sort,) = config.plugins["queueSort"]
    points = ExtensionPoints(
        queue_sort=made[queue_sort],
        pre_enqueue=at("preEnqueue", "pre_enqueue"),
        admits=at("preEnqueue", "admit"),
        pre_filter=at("preFilter", "pre_filter"),
        filters=at("filter", "filter", "filter_node"),
        capacities=at("filter", "capacity"),
        post_filters=at("postFilter", "post_filter"),
        pre_scores=at("preScore", "pre_score"),
        scores=tuple(
            (plugin, float(config.weights[plugin.name])) for plugin in at("score", "score", "score_node")
        ),
        reserves=at("reserve", "reserve"),
        permits=at("permit", "permit"),
        pre_binds=at("preBind", "pre_bind"),
        binds=tuple(made[name] for name in _before_default(config.plugins["bind"])),
        has_default_binder=DefaultBinder.name in config.plugins["bind"],
        post_binds=at("postBind", "post_bind"),
    )
    if extenders is not None:
        points.pre_filter += (extenders,)
        points.filters += (extenders,)
        points.scores += ((extenders, extenders.weight),)
        if extenders.binder is not None:
            points.binds = (extenders.binder, *points.binds)
    return Profile(config.scheduler_name, points)


def _before_default(names: tuple[str, ...]) -> tuple[str, ...]:
    """Drops plugins listed after DefaultBinder, which never skips: they would never be called."""
    return names[: names.index(DefaultBinder.name)] if DefaultBinder.name in names else names


def _make(make: Factory, args: Any) -> Any:
    return make() if args is None else make(args)


__all__ = ["IN_TREE", "Factory", "build_profiles", "metrics_server_s"]

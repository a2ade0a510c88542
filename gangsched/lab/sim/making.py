"""The schedulers of simulations, as they are assembled live.

Lives here: configurations, a scheduler with one, and one with additional plugins. Not here: which queues
there are (lab.sim.workloads.queues.guaranteed, lab.sim.workloads.queues.limited), followers
(lab.sim.runs.duel). Called by these, lab.sim.runs.driver, lab.sim.runs.storms and tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from msgspec.structs import replace

from gangsched.config import SchedulerConfig, Settings, default_config, parse_config
from gangsched.config.documents import file_with
from gangsched.core.framework.profile import Profile
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import at
from gangsched.plugins import IN_TREE, build_profiles

# By field of Points: the methods that serve it, of which one is enough.
_METHODS = {
    "pre_enqueue": ("pre_enqueue",),
    "admits": ("admit",),
    "pre_filter": ("pre_filter",),
    "filters": ("filter", "filter_node"),
    "capacities": ("capacity",),
    "post_filters": ("post_filter",),
    "pre_scores": ("pre_score",),
    "scores": ("score", "score_node"),
    "reserves": ("reserve",),
    "permits": ("permit",),
    "pre_binds": ("pre_bind",),
    "binds": ("bind",),
    "post_binds": ("post_bind",),
}


@cache
def usual_config() -> SchedulerConfig:
    """The configuration without a file, read once: a run of seeds starts thousands of processes."""
    return default_config(IN_TREE)


def config_with(ours: str) -> SchedulerConfig:
    """Reads a configuration file with these fields of ours."""
    return parse_config(file_with(ours), source="a storm", plugins=IN_TREE)


def make_scheduler(settings: Settings, *plugins: Any) -> Scheduler:
    """Makes the scheduler as it is live, with the default profile and `plugins` after the profile's own."""
    return scheduler_of(usual_config(), settings, *plugins)


def scheduler_of(config: SchedulerConfig, settings: Settings, *plugins: Any) -> Scheduler:
    """Makes a scheduler with the profiles of a configuration."""
    profiles = build_profiles(config)
    if plugins:
        profiles = {name: with_plugins(profile, plugins) for name, profile in profiles.items()}
    return scheduler_by(profiles, settings)


def scheduler_by(profiles: Mapping[str, Profile], settings: Settings) -> Scheduler:
    """Makes a scheduler with these profiles; each phase of its turns is checked (core.turns.dirty)."""
    scheduler = Scheduler(profiles, settings, node_capacity=4, wall_ahead_s=at(0).timestamp())
    scheduler.check_marks()
    return scheduler


def with_plugins(profile: Profile, plugins: Sequence[Any]) -> Profile:
    """Returns the profile with `plugins` serving, after its own, every point that they have a method for."""
    added: dict[str, tuple[Any, ...]] = {}
    for field, methods in _METHODS.items():
        served = tuple(one for one in plugins if any(hasattr(one, method) for method in methods))
        if field == "scores":
            served = tuple((one, getattr(one, "weight", 1.0)) for one in served)
        added[field] = (*getattr(profile.points, field), *served)
    return Profile(profile.scheduler_name, replace(profile.points, **added))

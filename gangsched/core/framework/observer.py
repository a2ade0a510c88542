"""Observer: gets the core's steps that its effects do not show.

For traces and metrics outside the core: an Observer reads its own clock, which the core does not have, and
returns nothing, so decisions are the same with and without one. Without one (the default) none of this is
called. Passed to core.scheduler; called by core.state.line.queue, core.state.state, core.state.reporter,
core.groups.attempts.attempts, core.kept.nominations and, for the extension points, by ObservedProfile here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, Protocol, TypeVar, TypeVarTuple, runtime_checkable

from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.framework.interface import (
    BoolArray,
    Code,
    CycleState,
    DryRun,
    FloatArray,
    IntArray,
    PostFilterResult,
    Status,
)
from gangsched.core.framework.plan import FitError
from gangsched.core.framework.plugin_calls import CallPlugin, guarded
from gangsched.core.framework.profile import Demand, Profile
from gangsched.core.types.group import Group, GroupState, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import Why

T = TypeVar("T")
P = ParamSpec("P")
Ts = TypeVarTuple("Ts")


class Observer(Protocol):
    """Called during a turn: the group's fields have their values of that moment. Must not raise."""

    def moved(self, group: Group, before: GroupState) -> None:
        """The group was put into a state, which may be the same as `before`."""
        ...

    def attempt_began(self, unit: Sequence[Group]) -> None:
        """These groups are tried as one unit; each is moved before anything else is tried."""
        ...

    def point_began(self, point: str) -> None:
        """An extension point of the current attempt begins; several times per attempt if templates differ."""
        ...

    def point_ended(self, point: str, code: Code) -> None:
        """`code`: the merged answer of the plugins, ERROR if one of them raised."""
        ...

    def gave_back(self, group: Group, n_members: int, why: str) -> None:
        """Reservations were released before any bind was sent for them."""
        ...

    def preempted(self, unit: Sequence[Group], victims: Sequence[PodInfo]) -> None:
        """These groups now wait for these pods to go."""
        ...

    def reported(self, group: Group, message: str) -> None:
        """A message to people about the group, or about what it waits for; may repeat earlier ones."""
        ...


@runtime_checkable
class PluginObserver(Protocol):
    """An Observer that also gets each call of a plugin, about twenty per gang."""

    def plugin_began(self) -> None: ...

    def plugin_ended(self, plugin: str, point: str, code: Code) -> None:
        """`code`: of the Status it returned; SUCCESS for arrays, ERROR if it raised."""
        ...


def _observed_calls(observer: Observer) -> CallPlugin:
    if not isinstance(observer, PluginObserver):
        return guarded
    began, ended = observer.plugin_began, observer.plugin_ended

    def ask(plugin: str, point: str, call: Callable[[*Ts], T], /, *args: *Ts) -> T:
        began()
        code = Code.ERROR
        try:
            answer = guarded(plugin, point, call, *args)
            code = answer.code if isinstance(answer, Status) else Code.SUCCESS
            return answer
        finally:
            ended(plugin, point, code)

    return ask


class ObservedProfile(Profile):
    """A profile that reports when its extension points, and its plugins, begin and end."""

    def __init__(self, profile: Profile, observer: Observer) -> None:
        super().__init__(profile.scheduler_name, profile.points, ask=_observed_calls(observer))
        self._quiet = profile
        self._observer = observer

    @property
    def quiet(self) -> Profile:
        return self._quiet

    def run_post_filter(
        self, unit: Sequence[Demand], trial: Trial, error: FitError, dry_run: DryRun
    ) -> PostFilterResult | Status:
        return self._observed("PostFilter", super().run_post_filter, unit, trial, error, dry_run)

    def run_pre_filter(self, state: CycleState, template: PodTemplate, view: ClusterView) -> Status:
        return self._observed("PreFilter", super().run_pre_filter, state, template, view)

    def capacity(
        self, state: CycleState, template: PodTemplate, view: ClusterView, *, looks: bool = True
    ) -> IntArray:
        return self._observed("Filter", super().capacity, state, template, view, looks=looks)

    def reasons(
        self, state: CycleState, template: PodTemplate, view: ClusterView
    ) -> list[tuple[str, Why, BoolArray]]:
        """The second half of Filter: why nodes are excluded."""
        return self._observed("Filter", super().reasons, state, template, view)

    def score(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        at: IntArray | None = None,
    ) -> FloatArray | None:
        return self._observed("Score", super().score, state, template, view, rows, at)

    def stated(
        self, state: CycleState, template: PodTemplate, view: ClusterView, rows: IntArray
    ) -> FloatArray | None:
        return self._observed("Score", super().stated, state, template, view, rows)

    def best(
        self,
        state: CycleState,
        template: PodTemplate,
        view: ClusterView,
        rows: IntArray,
        lets: Callable[[IntArray], BoolArray] | None,
    ) -> int | None:
        return self._observed("Score", super().best, state, template, view, rows, lets)

    def _observed(self, point: str, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self._observer.point_began(point)
        code = Code.ERROR
        try:
            answer = call(*args, **kwargs)
            code = answer.code if isinstance(answer, Status) else Code.SUCCESS
            return answer
        finally:
            self._observer.point_ended(point, code)


class Observers:
    """Several observers as one."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)
        self._of_plugins = tuple(one for one in observers if isinstance(one, PluginObserver))

    def plugin_began(self) -> None:
        for observer in self._of_plugins:
            observer.plugin_began()

    def plugin_ended(self, plugin: str, point: str, code: Code) -> None:
        for observer in self._of_plugins:
            observer.plugin_ended(plugin, point, code)

    def moved(self, group: Group, before: GroupState) -> None:
        for observer in self._observers:
            observer.moved(group, before)

    def attempt_began(self, unit: Sequence[Group]) -> None:
        for observer in self._observers:
            observer.attempt_began(unit)

    def point_began(self, point: str) -> None:
        for observer in self._observers:
            observer.point_began(point)

    def point_ended(self, point: str, code: Code) -> None:
        for observer in self._observers:
            observer.point_ended(point, code)

    def gave_back(self, group: Group, n_members: int, why: str) -> None:
        for observer in self._observers:
            observer.gave_back(group, n_members, why)

    def preempted(self, unit: Sequence[Group], victims: Sequence[PodInfo]) -> None:
        for observer in self._observers:
            observer.preempted(unit, victims)

    def reported(self, group: Group, message: str) -> None:
        for observer in self._observers:
            observer.reported(group, message)

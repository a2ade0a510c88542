"""Plugins of outside for scenarios: each notes what it is asked, in one shared diary, and answers as told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gangsched.config import Settings
from gangsched.core.framework.interface import SKIP, SUCCESS, CycleState, Status
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group, PodInfo
from gangsched.core.types.placement import Placement
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.making import make_scheduler
from gangsched.lab.sim.objects import make_node
from tests.support.scenario import Cluster


class Reserver:
    """Reserve and Unreserve, into a shared diary."""

    def __init__(
        self, name: str, diary: list[str], *, says: Callable[[Group], Status] = lambda group: SUCCESS
    ) -> None:
        self.name = name
        self.diary = diary
        self.says = says
        self.raises_in_unreserve: Exception | None = None

    def reserve(self, state: CycleState, group: Group, placements: Sequence[Placement]) -> Status:
        pods = ",".join(placement.info.pod.metadata.name for placement in placements)
        self.diary.append(f"{self.name} reserves {pods}")
        return self.says(group)

    def unreserve(self, group: Group, infos: Sequence[PodInfo]) -> None:
        self.diary.append(f"{self.name} unreserves {','.join(info.pod.metadata.name for info in infos)}")
        if self.raises_in_unreserve is not None:
            raise self.raises_in_unreserve


class Permitter:
    """A Permit that answers at once."""

    def __init__(self, name: str, says: Callable[[Group], Status]) -> None:
        self.name = name
        self.says = says

    def permit(self, group: Group, siblings: Mapping[str, Group]) -> Status:
        return self.says(group)


class AsyncPermitter:
    """A Permit that is asked at the edge; a scenario answers for it."""

    def __init__(self, name: str = "Approval") -> None:
        self.name = name

    async def permit(self, group: Group, siblings: Mapping[str, Group], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class PreBinder:
    """A PreBind at the edge; `skips`: pods of one container's name have nothing to prepare."""

    def __init__(self, name: str, *, skips: Callable[[PodTemplate], bool] | None = None) -> None:
        self.name = name
        if skips is not None:
            self.pre_bind_pre_flight = lambda template: Status() if not skips(template) else SKIP

    async def pre_bind(self, pod: Any, node_name: str, handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class BindHook:
    """A Bind at the edge."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def bind(self, pod: Any, node_name: str, annotations: Mapping[str, str], handle: Any) -> Status:
        raise AssertionError("the core runs no hooks")


class PostBinder:
    """A PostBind at the edge."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def post_bind(self, pod: Any, node_name: str, handle: Any) -> None:
        raise AssertionError("the core runs no hooks")


def with_plugins(*plugins: Any, nodes: int = 4, gpus: int = 8, settings: Settings | None = None) -> Cluster:
    """cluster(), whose profile has these plugins too."""

    def make(settings: Settings) -> Scheduler:
        return make_scheduler(settings, *plugins)

    made = Cluster(settings, make=make)
    for i in range(nodes):
        made.node(make_node(f"n{i}", gpus=gpus))
    return made

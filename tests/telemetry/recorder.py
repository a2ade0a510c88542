"""An Observer that writes down what it is told, in words."""

from __future__ import annotations

from collections.abc import Sequence

from gangsched.core.framework.interface import Code
from gangsched.core.types.group import Group, GroupState, PodInfo


class Recorder:
    """Lines such as `d/a: gathering -> active`."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.open_points: list[str] = []

    def moved(self, group: Group, before: GroupState) -> None:
        self.lines.append(f"{group.key}: {before.value} -> {group.state.value}")

    def attempt_began(self, unit: Sequence[Group]) -> None:
        self.lines.append("attempt " + ", ".join(str(group.key) for group in unit))

    def point_began(self, point: str) -> None:
        self.open_points.append(point)

    def point_ended(self, point: str, code: Code) -> None:
        assert self.open_points.pop() == point
        self.lines.append(point)

    def gave_back(self, group: Group, n_members: int, why: str) -> None:
        self.lines.append(f"{group.key} gave back {n_members}: {why}")

    def preempted(self, unit: Sequence[Group], victims: Sequence[PodInfo]) -> None:
        self.lines.append(f"{unit[0].key} preempted " + ", ".join(info.pod.key for info in victims))

    def reported(self, group: Group, message: str) -> None:
        self.lines.append(f"{group.key} told: {message}")

"""Where pods go: a member's reservation, and a nomination, which keeps room for a pod."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gangsched.core.types.group import PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate


class Placement(msgspec.Struct, frozen=True, gc=False):
    """One member's reservation. allocation: container -> resource -> IDs, empty without inventories."""

    info: PodInfo
    row: int
    allocation: dict[str, dict[str, tuple[str, ...]]]


class Nominated(msgspec.Struct, frozen=True, gc=False):
    """Room reserved on a node for a pod that does not hold it yet. ids: resource -> devices kept for it if
    they are free, unless the ledger claims them already. keeps: what is kept now instead of the pod's
    requests; None: these."""

    info: PodInfo
    node_name: str
    priority: int
    ids: Mapping[str, tuple[str, ...]] = {}
    keeps: PodTemplate | None = None

    @property
    def template(self) -> PodTemplate:
        return self.info.template

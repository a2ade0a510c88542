"""MissingDrivers: nodes without a CSI driver that asks for pods to be kept off such nodes.

A driver does so by preventPodSchedulingIfMissing in its CSIDriver; a node has it if its CSINode lists it.
Inline CSI volumes count too, which kube-scheduler passes over: their pods would wait on such a node for ever.
Read only by NodeVolumeLimits. Source: kube-scheduler 1.37 `plugins/nodevolumelimits/csi.go`,
checkCSIDriverOnNode.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.interface import BoolArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.storage import DRIVERS, NODES, CsiDriver
from gangsched.plugins.volumes.attached_volumes import counted, volumes_of


class MissingDrivers:
    """Where each such driver is, made again when a CSINode or a node comes or goes."""

    def __init__(self) -> None:
        self._made_of: tuple[int, int, int] = (-1, -1, -1)
        self._rows: dict[str, BoolArray] = {}

    def missing(self, template: PodTemplate, view: ClusterView) -> list[str]:
        """Returns the template's drivers that ask for it, by name."""
        drivers = {driver for driver, _ in counted(volumes_of(template, view), True)}
        drivers |= {driver for one in template.spec.volumes or () if (driver := one.inline_driver)}
        return [driver for driver in sorted(drivers) if self._asks(view.objects(DRIVERS).get(("", driver)))]

    @staticmethod
    def _asks(driver: CsiDriver | None) -> bool:
        return driver is not None and driver.spec.prevent_pod_scheduling_if_missing

    def rows_with(self, driver: str, view: ClusterView) -> BoolArray:
        """bool[n_rows]: the nodes that have the driver."""
        made_of = (view.objects_revision(NODES), view.static_revision, view.n_rows)
        if made_of != self._made_of:
            self._made_of, self._rows = made_of, {}
        found = self._rows.get(driver)
        if found is None:
            found = self._rows[driver] = np.zeros(view.n_rows, dtype=np.bool_)
            for (_, name), csi_node in view.objects(NODES).items():
                row = view.row_of(name)
                if row is not None and any(one.name == driver for one in csi_node.spec.drivers or ()):
                    found[row] = True
        return found

    def admits(self, drivers: Iterable[str], view: ClusterView) -> BoolArray:
        """bool[n_rows]: the nodes that have all of these drivers."""
        mask: BoolArray = np.ones(view.n_rows, dtype=np.bool_)
        for driver in drivers:
            mask &= self.rows_with(driver, view)
        return mask

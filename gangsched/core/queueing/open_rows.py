"""OpenRows: where the pods of each waiting template may go, as bits. Called by core.queueing.bypasses."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.profile import Demand
from gangsched.core.queueing.needs import bits, open_to
from gangsched.core.queueing.waiting_classes import Needs
from gangsched.core.types.arrays import BoolArray
from gangsched.core.types.pod_template import PodTemplate

_MAX_TEMPLATES = 10_000


class OpenRows:
    """Open rows by template serial; recomputed when nodes change."""

    def __init__(self, used: Callable[[], Collection[int]]) -> None:
        """used: the serials that are still needed."""
        self._used = used
        self._rows: dict[int, int] = {}
        self._asked: dict[int, tuple[Demand, PodTemplate]] = {}
        """What to recompute the rows from. The demand has no members, so it keeps no pods in memory."""
        self._revision: tuple[int, int] = (-1, -1)
        """The revision of nodes that `_rows` are based on."""

    def rows(self, serial: int) -> int:
        """The rows open to that template, as bits."""
        return self._rows.get(serial, 0)

    def meet(self, needs: Needs, took: Mapping[int, int]) -> bool:
        """Whether some needed resource is taken on a node that is open to the template needing it."""
        for serial, columns in needs.items():
            rows = self._rows.get(serial, 0)
            if any(rows & there for column, there in took.items() if column in columns):
                return True
        return False

    def follow(self, view: ClusterView) -> None:
        """Recomputes where the templates may go, if nodes have changed."""
        revision = (view.static_revision, view.n_rows)
        if revision == self._revision:
            return
        self._revision = revision
        self._forget()
        for serial, (demand, template) in self._asked.items():
            self._rows[serial] = bits(open_to(demand, template, view))

    def ask(self, demand: Demand, template: PodTemplate, view: ClusterView) -> BoolArray:
        """Computes and keeps the rows open to the template."""
        mask = open_to(demand, template, view)
        if len(self._rows) >= _MAX_TEMPLATES and template.serial not in self._rows:
            self._forget()
        self._rows[template.serial] = bits(mask)
        self._asked[template.serial] = (Demand(demand.group, demand.profile, [], 0), template)
        return mask

    def _forget(self) -> None:
        used = self._used()
        self._rows = {serial: rows for serial, rows in self._rows.items() if serial in used}
        self._asked = {serial: one for serial, one in self._asked.items() if serial in used}

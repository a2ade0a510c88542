"""A scenario's cluster that is measured, in virtual time, and its metrics as Prometheus would read them."""

from __future__ import annotations

from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from gangsched.config import Settings, default_config
from gangsched.core.scheduler import Scheduler
from gangsched.journal.counted import Counted
from gangsched.lab.sim.objects import at
from gangsched.model.events import Event
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.web.metrics import page as metrics
from gangsched.web.metrics import reading
from gangsched.web.metrics.measures import Measures
from tests.support.scenario import Cluster


class MeasuredCluster(Cluster):
    """As Cluster; the measures read its clock."""

    def __init__(self, settings: Settings | None = None, *, is_traced: bool = False) -> None:
        """`is_traced`: each group is in the trace that is called as it is."""
        self.measures = Measures(
            clock_s=lambda: self.now_s, trace_id_of=(lambda key: key.name) if is_traced else None
        )
        super().__init__(settings, make=self._make)

    def _make(self, settings: Settings) -> Scheduler:
        profiles = build_profiles(default_config(IN_TREE))
        return Scheduler(profiles, settings, node_capacity=4, observer=self.measures)

    def tell(self, *events: Event) -> Self:
        super().tell(*events)
        self.measures.count_answers(events, self.pod_infos())
        return self

    async def page(self, *, accept: str = "", **more: Any) -> str:
        """What /metrics would say, with `more` in the place of a reading's fields."""
        totals = await reading.read_groups(self.scheduler, self.now_s, at(self.now_s).timestamp())
        fields: dict[str, Any] = {
            "pending": totals.pending,
            "oldest_s": totals.oldest_s,
            "unschedulable": totals.unschedulable,
            "n_nodes": self.node_table().n_live,
            "n_pods": len(self.pod_infos()),
            "n_assumed": totals.n_assumed,
            "n_partial_gangs": totals.n_partial_gangs,
            "device_free": await reading.read_devices(self.scheduler),
            "device_drift": self.scheduler.audit.statistics(),
            "counters": self.scheduler.shared.counters,
            "watch_age_s": {},
            "leader": {},
            "n_bind_unknown": 0,
            "doubtful_answers": {},
            "requests": {},
            "host": "server",
            "reloads": (2, 1, False),
            "queueing": reading.read_queueing(self.scheduler, totals),
            "journal": Counted(302, 41_000, 7, 1, 2, True),
        }
        read = reading.Reading(**{**fields, **more})
        wanted = metrics.format_for(accept)
        return metrics.text(metrics.measured(self.measures), read, content_type=wanted).decode()

    async def values(self, **more: Any) -> dict[str, float]:
        """Every sample, as `name{label=value,…}` without the profile's label."""
        return samples(await self.page(**more))


def samples(text: str) -> dict[str, float]:
    """Samples by name and labels; buckets left out."""
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = {key: value for key, value in sample.labels.items() if key != "profile"}
            if "le" not in labels:
                shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
                found[f"{sample.name}{{{shown}}}" if shown else sample.name] = sample.value
    return found

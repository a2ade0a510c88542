"""Scenarios that are traced: a Cluster whose scheduler has a GangTracer, and the trees that come of it.

`Traced().node(...).submit(...).run()`, then `tree(c.spans)`: one line a span, indented under its parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan

from gangsched.config import Settings, default_config
from gangsched.config.tracing import KeepTraces
from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.objects import at, make_node
from gangsched.model import effects as ef
from gangsched.model import events as ev
from gangsched.plugins import IN_TREE, build_profiles
from gangsched.telemetry import names
from gangsched.telemetry.tracer import GangTracer
from tests.support.scenario import Cluster

RESOURCE = Resource({"service.name": names.SERVICE})


class Traced(Cluster):
    """A cluster of `nodes` nodes with 8 GPUs each; virtual time, and a microsecond for each look at it."""

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        nodes: int = 0,
        ratio: float = 1.0,
        keep: KeepTraces | None = None,
    ) -> None:
        self.spans: list[ReadableSpan] = []
        self.ratio = ratio
        self.keep = keep
        self._looks = 0
        super().__init__(settings, make=self._traced)
        for i in range(nodes):
            self.node(make_node(f"n{i}", gpus=8))

    def _traced(self, settings: Settings) -> Scheduler:
        self.tracer = GangTracer(
            self.spans.append,
            resource=RESOURCE,
            ratio=self.ratio,
            keep=self.keep,
            clock_ns=self._clock_ns,
            wall_ns=lambda: int(at(0).timestamp() * 1e9) + self._clock_ns(),
        )
        profiles = build_profiles(default_config(IN_TREE))
        return Scheduler(profiles, settings, node_capacity=4, observer=self.tracer)

    def _clock_ns(self) -> int:
        self._looks += 1
        return int(self.now_s * 1e9) + self._looks * 1000

    def tell(self, *events: ev.Event) -> Self:
        self.tracer.note_events(events)
        return super().tell(*events)

    def _done(self, effects: list[ef.Effect]) -> None:
        super()._done(list(self.tracer.turn_ended(effects)))

    def named(self, name: str) -> list[ReadableSpan]:
        """Ended spans of that name, oldest first."""
        found = [span for span in self.spans if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)


def said(span: ReadableSpan, key: str) -> Any:
    """An attribute, None where the span has none of that name."""
    return (span.attributes or {}).get(key)


def tree(spans: Sequence[ReadableSpan]) -> list[str]:
    """One line a span: name, attempt and verdict, children by their begin. Orphans are under `?`."""
    known = {span.context.span_id for span in spans if span.context}
    children: dict[int, list[ReadableSpan]] = {}
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        parent = span.parent.span_id if span.parent else 0
        children.setdefault(parent if parent in known or not parent else -1, []).append(span)

    def lines(of: int, depth: int) -> list[str]:
        found = []
        for span in children.get(of, []):
            number = said(span, names.ATTEMPT_NUMBER) if span.name == names.ATTEMPT else None
            words = [span.name, *([] if number is None else [str(number)]), said(span, names.VERDICT) or ""]
            found.append("  " * depth + " ".join(word for word in words if word))
            assert span.context
            found += lines(span.context.span_id, depth + 1)
        return found

    orphans = lines(-1, 1)
    return lines(0, 0) + (["?", *orphans] if orphans else [])

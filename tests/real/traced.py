"""Traces as Jaeger's query API tells them, for the end-to-end tests."""

from __future__ import annotations

import json
from typing import Any

from gangsched.lab.controlplane.jaeger import Jaeger
from gangsched.telemetry import names
from tests.real.cluster import Cluster
from tests.real.picture import Json, annotation


class Tree:
    """One trace; making it checks that no span came twice."""

    def __init__(self, trace: Json) -> None:
        self.trace_id: str = trace["traceID"]
        self.spans: dict[str, Json] = {span["spanID"]: span for span in trace["spans"]}
        assert len(self.spans) == len(trace["spans"]), "a span came twice"
        self.processes: dict[str, Json] = trace["processes"]

    def orphans(self) -> list[str]:
        """Parents that are named and not there."""
        parents = {_parent(span) for span in self.spans.values()}
        return [parent for parent in parents if parent and parent not in self.spans]

    def named(self, name: str) -> list[Json]:
        """Spans of that name, oldest first."""
        found = [span for span in self.spans.values() if span["operationName"] == name]
        return sorted(found, key=lambda span: int(span["startTime"]))

    def lines(self, of: str = "", depth: int = 0) -> list[str]:
        """Name and verdict, children below their parents in the order of their begin."""
        mine = [span for span in self.spans.values() if _parent(span) == of]
        found = []
        for span in sorted(mine, key=lambda span: (int(span["startTime"]), -int(span["duration"]))):
            found.append("  " * depth + f"{span['operationName']} {tag(span, names.VERDICT) or ''}".rstrip())
            found += self.lines(span["spanID"], depth + 1)
        return found


def _parent(span: Json) -> str:
    """Empty for a root."""
    return next((str(r["spanID"]) for r in span["references"] if r["refType"] == "CHILD_OF"), "")


def links(span: Json) -> set[str]:
    """Trace ids of what the span links to."""
    return {r["traceID"] for r in span["references"] if r["refType"] == "FOLLOWS_FROM"}


def tag(span: Json, key: str) -> Any:
    """A tag's value, lists decoded; None where there is none."""
    for one in span["tags"]:
        if one["key"] == key:
            return json.loads(one["value"]) if str(one["value"]).startswith("[") else one["value"]
    return None


def events(span: Json) -> list[Json]:
    """Each event's fields; its name is the field `event`."""
    return [{field["key"]: field["value"] for field in log["fields"]} for log in span["logs"]]


def trace_of(cluster: Cluster, jaeger: Jaeger, pod: Json, *, in_ratio: bool = True) -> Tree:
    """The trace that a bound pod's annotation names, once its root is there."""
    _, trace_id, root_id, flags = annotation(pod, names.TRACEPARENT_KEY).split("-")
    assert flags == ("01" if in_ratio else "00")
    found: list[Tree] = []

    def has_ended() -> bool:
        trace = jaeger.trace(trace_id)
        found[:] = [] if trace is None else [Tree(trace)]
        return bool(found) and root_id in found[0].spans

    cluster.eventually(has_ended, f"trace {trace_id} is in Jaeger with its root {root_id}")
    return found[0]

"""Load: a node's utilisation and capacity, from annotation gangsched.io/load and metrics-server's report.

Lives here: the values, their parsing and writing. Not here: measuring (agent.probes), scores
(plugins.resources.load_aware), evenness over a cluster (model.stated.evenness). Utilisations are shares,
0..1.
"""

from __future__ import annotations

import math
from datetime import datetime
from typing import Literal

import msgspec

from gangsched.errors import ParseError
from gangsched.model.stated.bandwidth import utc_text
from gangsched.model.text import bounded
from gangsched.model.text.quantity import to_int, to_milli

LOAD_KEY = "gangsched.io/load"
Term = Literal["cpu", "memory", "network", "disk"]
TERMS: tuple[Term, Term, Term, Term] = ("cpu", "memory", "network", "disk")
"""The four terms of the published formula, in the order of every array of them."""

_MAX_CORES = 100_000
_MAX_VALUE = 1e18


class Performance(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A node's capacity; 0: not known. network and disk in MB/s, MB being 10^6 bytes."""

    cores: float = 0.0
    mhz: float = msgspec.field(default=0.0, name="MHz")
    memory_bytes: float = 0.0
    network_mbps: float = msgspec.field(default=0.0, name="networkMBps")
    disk_mbps: float = msgspec.field(default=0.0, name="diskMBps")


class Utilisation(msgspec.Struct, frozen=True, gc=False):
    """Shares of the capacity, 0..1."""

    cpu: float = 0.0
    memory: float = 0.0
    network: float = 0.0
    disk: float = 0.0

    @property
    def terms(self) -> tuple[float, float, float, float]:
        """In the order of TERMS."""
        return (self.cpu, self.memory, self.network, self.disk)


class NodeLoad(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """One measurement."""

    utilisation: Utilisation
    performance: Performance
    observed_at: datetime


_decode = bounded.decoder(NodeLoad)


def parse_load(text: str) -> NodeLoad:
    """A node's annotation. Raises: ParseError, naming it."""
    try:
        found = _decode(text)
    except msgspec.MsgspecError as error:
        raise ParseError(" ".join(str(error).split())[:200], field=LOAD_KEY) from None
    for name, share in zip(TERMS, found.utilisation.terms, strict=True):
        if not 0.0 <= share <= 1.0:
            raise ParseError(f"utilisation.{name}: {share:g} is not within 0..1", field=LOAD_KEY)
    for field in msgspec.structs.fields(Performance):
        value = getattr(found.performance, field.name)
        most = _MAX_CORES if field.name == "cores" else _MAX_VALUE
        if not (math.isfinite(value) and 0.0 <= value <= most):
            raise ParseError(
                f"performance.{field.encode_name}: {value:g} is not within 0..{most:g}", field=LOAD_KEY
            )
    if found.observed_at.tzinfo is None:
        raise ParseError("observedAt: has no time zone; Z is UTC", field=LOAD_KEY)
    return found


def load_annotation(load: NodeLoad) -> str:
    """The annotation that the agent writes: parse_load reads it back."""
    performance = load.performance
    return msgspec.json.encode(
        {
            "utilisation": {
                name: round(share, 4) for name, share in zip(TERMS, load.utilisation.terms, strict=True)
            },
            "performance": {
                "cores": performance.cores,
                "MHz": round(performance.mhz),
                "memoryBytes": int(performance.memory_bytes),
                "networkMBps": round(performance.network_mbps, 1),
                "diskMBps": round(performance.disk_mbps, 1),
            },
            "observedAt": utc_text(load.observed_at),
        }
    ).decode()


class ReportedUsage(msgspec.Struct, frozen=True, gc=False):
    """metrics-server's report of a node's usage: only cpu (in milli) and memory (in bytes)."""

    node: str
    cpu_milli: int
    memory_bytes: int
    observed_at: datetime


class _Meta(msgspec.Struct, gc=False):
    name: str


class _NodeMetrics(msgspec.Struct, gc=False):
    metadata: _Meta
    timestamp: datetime
    usage: dict[str, str | int]


class _NodeMetricsList(msgspec.Struct, gc=False):
    items: list[msgspec.Raw]
    kind: str = ""


class _Named(msgspec.Struct, gc=False):
    metadata: _Meta


_decode_list = bounded.decoder(_NodeMetricsList, max_bytes=bounded.MAX_ANSWER)
_decode_node = msgspec.json.Decoder(_NodeMetrics).decode
_decode_name = msgspec.json.Decoder(_Named).decode


def parse_node_metrics(body: bytes) -> tuple[list[ReportedUsage], list[ParseError]]:
    """Parses the answer of /apis/metrics.k8s.io/v1beta1/nodes; also returns an error per unreadable node.

    Raises: ParseError, if the answer as a whole is malformed.
    """
    try:
        found_list = _decode_list(body)
    except msgspec.MsgspecError as error:
        raise ParseError(_line(error), field="metrics.k8s.io") from None
    if found_list.kind != "NodeMetricsList":
        raise ParseError(
            f"is not a NodeMetricsList: {found_list.kind[:50] or 'no kind'}", field="metrics.k8s.io"
        )
    found, unread = [], []
    for i, item in enumerate(found_list.items):
        try:
            found.append(_usage(item))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            unread.append(ParseError(_line(error), field=f"metrics.k8s.io: {_name(item) or f'items[{i}]'}"))
        except ParseError as error:
            unread.append(ParseError(str(error), field=f"metrics.k8s.io: {_name(item)}"))
    return found, unread


def _usage(item: msgspec.Raw) -> ReportedUsage:
    """Raises: msgspec.MsgspecError, ParseError."""
    node = _decode_node(item)
    if node.timestamp.tzinfo is None:
        raise ParseError("has no time zone; Z is UTC", field="timestamp")
    amounts = []
    for resource, parse in (("cpu", to_milli), ("memory", to_int)):
        if resource not in node.usage:
            raise ParseError("has no such usage", field=resource)
        amounts.append(parse(str(node.usage[resource])))
    cpu_milli, memory_bytes = amounts
    return ReportedUsage(node.metadata.name, cpu_milli, memory_bytes, node.timestamp)


def _name(item: msgspec.Raw) -> str:
    try:
        return _decode_name(item).metadata.name[:253]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]

"""PromisedLinks: checks that no node's link is promised twice, nor what was measured in use.

Reports and requests are read here, in the one form that lab.sim.workloads.links writes. Called by
lab.sim.judges.step_judges after every step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from gangsched.core.scheduler import Scheduler
from gangsched.lab.sim.reading.received import REPORT_KEY, Received, reserved_on
from gangsched.lab.sim.reading.texts import json_of
from gangsched.model.objects import Node, Pod

_PREFIX = "gangsched.io/"
_AMOUNT = re.compile(r"([0-9]{1,6})MB/s")
_STALE_S, _SLACK_S = 60.0, 0.1
_SIDES = ("egress", "ingress")
_AMOUNTS = ("egressMBps", "ingressMBps", "totalMBps")
_Asks = Mapping[str, tuple[float, float] | None]


class _Report(NamedTuple):
    """A node's last readable report: when it came, what was left in each direction, and the whole link.

    there: what the pods require that were there by then, by UID; None if that was not known yet. since:
    UIDs of the pods that this process has placed there since then.
    """

    uid: str
    text: str
    at_s: float
    left: tuple[float, float]
    total: float
    there: dict[str, tuple[float, float]] | None
    since: set[str]


class PromisedLinks:
    """links-kept: what the pods on a node require is at most its link, in each direction; what those require
    that have come since its last report is at most what that left, with what those required that have gone
    since; and none comes where it is too old."""

    def __init__(self) -> None:
        self._reports: dict[str, _Report] = {}
        self._unread: set[str] = set()
        """Nodes whose last report is in a form that is not known here."""
        self._reserved: dict[str, str] = {}

    def check(self, scheduler: Scheduler, received: Received, now_s: float) -> Iterator[str]:
        """Checks the nodes that this step has reserved room on."""
        if not received.reports:
            return
        now = reserved_on(scheduler)
        there = received.places(now)
        asked: dict[str, dict[str, tuple[float, float] | None]] = {}
        for uid, node in there.items():
            asked.setdefault(node, {})[uid] = _asks(received.pods[uid])
        for name in received.reports:
            on_node = asked.get(name, {}) if scheduler.is_synced else None
            self._read_report(received.nodes.get(name), name, on_node, now_s)
        new = {uid: node for uid, node in now.items() if self._reserved.get(uid) != node}
        self._reserved = now
        for name in sorted(set(new.values())):
            asks = asked.get(name, {})
            came = [uid for uid, node in new.items() if node == name and any(asks.get(uid) or ())]
            if not came or name in self._unread or None in asks.values():
                continue
            yield from self._overdone(name, {uid: one for uid, one in asks.items() if one}, came, now_s)

    def _read_report(self, node: Node | None, name: str, asks: _Asks | None, now_s: float) -> None:
        known = self._reports.get(name)
        text = (node.metadata.annotations or {}).get(REPORT_KEY) if node is not None else None
        if node is None or text is None or (known is not None and known.uid != node.metadata.uid):
            self._reports.pop(name, None)
            known = None
        if node is None or text is None or (known is not None and known.text == text):
            return
        stated = json_of(text)
        if stated is None:
            return  # the last one counts for as long as it may
        is_known = isinstance(stated, dict) and stated.keys() == {*_AMOUNTS, "observedAt"}
        out, into, whole = [stated[key] for key in _AMOUNTS] if is_known else [None] * len(_AMOUNTS)
        if type(out) is not int or type(into) is not int or type(whole) is not int:
            self._unread.add(name)
            return
        self._unread.discard(name)
        there = None
        if asks is not None and None not in asks.values():
            there = {uid: one for uid, one in asks.items() if one is not None}
        self._reports[name] = _Report(node.metadata.uid, text, now_s, (out, into), whole, there, set())

    def _overdone(
        self, name: str, asks: dict[str, tuple[float, float]], came: list[str], now_s: float
    ) -> Iterator[str]:
        report = self._reports.get(name)
        if report is None or now_s > report.at_s + _STALE_S + _SLACK_S:
            since = "never" if report is None else f"{now_s - report.at_s:.1f} s ago"
            yield f"links-kept: {came} are placed on {name}, which has reported {since}"
            return
        report.since.update(came)
        for side, direction in enumerate(_SIDES):
            whole = sum(one[side] for one in asks.values())
            fresh = sum(one[side] for uid, one in asks.items() if uid in report.since)
            left = math.inf
            if report.there is not None:
                gone = sum(one[side] for uid, one in report.there.items() if uid not in asks)
                left = report.left[side] + gone
            if any(asks[uid][side] for uid in came) and (whole > report.total or fresh > left):
                yield (
                    f"links-kept: with {came}, {name} promises {whole:g} of {report.total:g} MB/s"
                    f" {direction}, and"
                    f" {fresh:g} of {left:g} since its last report"
                )


def _asks(pod: Pod) -> tuple[float, float] | None:
    """What it requires in each direction; None: in a form that is not known here."""
    own = pod.metadata.annotations or {}
    text, direction = own.get(f"{_PREFIX}required-rbw"), own.get(f"{_PREFIX}rbw-direction", "both")
    if text is None:
        return None if any("rbw" in key.lower() for key in own) else (0.0, 0.0)
    found, share = _AMOUNT.fullmatch(text), own.get(f"{_PREFIX}rbw-scope", "member")
    if found is None or share not in ("member", "group") or direction not in ("both", *_SIDES):
        return None
    required = float(found[1])
    if share == "group":
        n = own.get(f"{_PREFIX}min-members", "")
        if not n.isdecimal() or f"{_PREFIX}total-members" in own:
            return None
        required = math.ceil(required * 1e6 / int(n)) / 1e6
    return tuple(required if direction in ("both", one) else 0.0 for one in _SIDES)  # type: ignore[return-value]

"""Agents as processes with real traffic on veth pairs, a real API server, and a scheduler that reads them."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gangsched.model.stated.bandwidth import REMAINING_KEY, RemainingBandwidth, parse_remaining
from gangsched.model.stated.load import LOAD_KEY, parse_load
from tests.agent.process import DEPLOY, Site
from tests.agent.veth import Link, links
from tests.real.process import Scheduler, service_account, write_config

pytestmark = pytest.mark.real

MB = 10**6
WINDOW_S = 5.0
TOTAL, TRAFFIC = 50, 12
# Whoever waits so long for traffic to be seen waits in vain; the traffic itself ends then, too.
MOST_S = 45.0
PODS = "/api/v1/namespaces/default/pods"


def config(directory: Path, link: Link) -> str:
    """The agent's file for a node whose link is `link`."""
    path = directory / f"{link.nic}.yaml"
    document = {
        "apiVersion": "gangsched.io/v1",
        "kind": "AgentConfiguration",
        "bandwidth": {
            "enabled": True,
            "nics": [link.nic],
            "totalMBps": TOTAL,
            "windowsSeconds": [WINDOW_S],
            "periodSeconds": 10,
        },
        "load": {"enabled": True, "diskMBps": 100},
    }
    path.write_text(json.dumps(document))
    return f"--config={path}"


def annotation(site: Site, node: str, key: str) -> str | None:
    found = site.plane.request("GET", f"/api/v1/nodes/{node}")
    text = found["metadata"].get("annotations", {}).get(key)
    return None if text is None else str(text)


def remaining(site: Site, node: str) -> RemainingBandwidth | None:
    text = annotation(site, node, REMAINING_KEY)
    return None if text is None else parse_remaining(text)


def is_idle(there: RemainingBandwidth | None) -> bool:
    return there is not None and min(there.egress, there.ingress) > (TOTAL - 1) * MB


def lag_s(there: RemainingBandwidth | None, since: float) -> float:
    assert there is not None
    return there.observed_at.timestamp() - since


def test_the_annotation_follows_the_traffic_and_the_scheduler_the_annotation(
    site: Site, tmp_path: Path, record_property: Any
) -> None:
    with links(2) as (out, into):
        for node, link in (("n1", out), ("n2", into)):
            site.node(node)
            site.agent(node, config(tmp_path, link))
        site.until(lambda: is_idle(remaining(site, "n1")) and is_idle(remaining(site, "n2")), "both are idle")

        began = time.time()
        out.send(TRAFFIC, most_s=MOST_S)
        into.receive(TRAFFIC, most_s=MOST_S)

        def shown(node: str, side: str) -> bool:
            there = remaining(site, node)
            return there is not None and getattr(there, side) < (TOTAL - 0.6 * TRAFFIC) * MB

        seen: dict[str, float] = {}

        def both_shown() -> bool:
            for node, side in (("n1", "egress"), ("n2", "ingress")):
                if node not in seen and shown(node, side):
                    seen[node] = lag_s(remaining(site, node), began)
            return len(seen) == 2

        site.until(both_shown, "most of the traffic is seen on both")
        first, second = remaining(site, "n1"), remaining(site, "n2")
        assert first is not None
        assert second is not None
        assert first.ingress > (TOTAL - 5) * MB, "the other direction is free"
        assert second.egress > (TOTAL - 5) * MB
        assert max(seen.values()) <= 2 * WINDOW_S or is_overloaded()
        text = annotation(site, "n1", LOAD_KEY)
        assert text is not None
        load = parse_load(text)
        assert load.performance.network_mbps == TOTAL
        assert load.performance.disk_mbps == 100
        assert load.performance.memory_bytes > 0

        place_by_what_is_left(site, tmp_path)

        ended = time.time()
        out.quiet()
        into.quiet()
        site.until(lambda: is_idle(remaining(site, "n1")) and is_idle(remaining(site, "n2")), "idle again")
        idle_s = max(lag_s(remaining(site, node), ended) for node in ("n1", "n2"))
        # When it was seen idle, or at its next heartbeat.
        assert idle_s <= 2 * WINDOW_S + 10 or is_overloaded()
        record_property(
            "figure",
            f"agents: {TRAFFIC} MB/s on a link of {TOTAL} MB/s shown after {max(seen.values()):.1f} s,"
            f" idle again after {idle_s:.1f} s (window {WINDOW_S:g} s)",
        )


def is_overloaded() -> bool:
    """Then senders and agents wait for their turn: the figure is told, and says nothing of the agent."""
    return os.getloadavg()[0] > 3 * (os.cpu_count() or 1)


def place_by_what_is_left(site: Site, directory: Path) -> None:
    """A pod that must send 45 MB/s goes to n2, which receives; one that must receive so much to n1."""
    site.plane.kubectl("apply", "-f", str(DEPLOY.with_name("rbac.yaml")))
    account = service_account(site.plane, directory / "scheduler.kubeconfig")
    scheduler = Scheduler(write_config(directory / "config.yaml"), account, directory / "scheduler.log")
    try:
        for name, direction in (("sends", "egress"), ("hears", "ingress")):
            notes = {"requiredRBW": "45MB/s", "gangsched.io/rbw-direction": direction}
            spec = {"schedulerName": "gangsched", "containers": [{"name": "main", "image": "busybox"}]}
            metadata = {"name": name, "annotations": notes}
            site.plane.request("POST", PODS, {"metadata": metadata, "spec": spec})

        def node_of(name: str) -> str:
            found = site.plane.request("GET", f"{PODS}/{name}")
            return str(found["spec"].get("nodeName", ""))

        site.until(lambda: (node_of("sends"), node_of("hears")) == ("n2", "n1"), "each where its way is free")
    finally:
        scheduler.stop()


def test_observed_times_are_the_nodes_own() -> None:
    there = parse_remaining(
        '{"egressMBps":1,"ingressMBps":1,"totalMBps":1,"observedAt":"2026-05-04T12:00:00+02:00"}'
    )
    assert there.observed_at == datetime.fromisoformat("2026-05-04T10:00:00+00:00")

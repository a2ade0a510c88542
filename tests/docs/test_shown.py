"""Every example that is applied shows what its page says of it.

A gang is first given too little room: none of its members may start. Then it gets room for all.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from gangsched.command.cli import main
from gangsched.config import SchedulerConfig, parse_config
from gangsched.config.documents import file_with
from gangsched.lab.apiserver.strategy import Object
from gangsched.plugins import IN_TREE
from tests.apiserver.simulated.test_samples import GPU, Live, live
from tests.docs import claims_shown
from tests.docs.pages import ROOT, Block, blocks, name_of
from tests.docs.test_yaml import APPLIED, apply, objects_of

N_NODES, GPUS, N_RACKS = 16, 8, 2
RACK, ZONE = "topology.kubernetes.io/rack", "topology.kubernetes.io/zone"
FEW_IN_EACH_RACK = frozenset((0, 1, 2, 8, 9, 10))
Labels = dict[str, str]


class Example(NamedTuple):
    """shows: what is tried with a scheduler of this configuration (the document of ours, in YAML)."""

    shows: Callable[[Live, list[Object]], Awaitable[None]]
    ours: str = ""


def _gangs(n_members: int, gpus: int = 8, gang: str = "default/train") -> Example:
    async def shows(here: Live, applied: list[Object]) -> None:
        await _leave(here, set(range((n_members * gpus - 1) // GPUS)))
        await apply(here, applied)
        await here.until(lambda: len(here.all("pods")) == n_members and any(map(message, here.all("pods"))))
        assert not any(map(_node, here.all("pods"))), "some of them have started without the others"
        await _leave(here, set(range(N_NODES)))
        await _all_are_bound(here, n_members)
        _check_gang(here, gang, n_members, gpus)

    return Example(shows)


async def _in_one_rack(here: Live, applied: list[Object]) -> None:
    """Room for six, three in each rack: that is not enough for four in one."""
    await _leave(here, set(FEW_IN_EACH_RACK))
    await apply(here, applied)
    await here.until(lambda: any(map(message, here.all("pods"))))
    assert not any(map(_node, here.all("pods"))), "it has started in several racks"
    await _leave(here, set(FEW_IN_EACH_RACK | {11}))
    await _all_are_bound(here, 4)
    assert _values(here, RACK) == {"rack-1"}


async def _along_the_racks(here: Live, applied: list[Object]) -> None:
    """Twelve nodes in two racks of eight: four of one of them are taken."""
    await _leave(here, {1, 3, 4, 6, *range(8, 16)})
    await apply(here, applied)
    await _all_are_bound(here, 12)
    _check_gang(here, "default/train-in-a-ring", 12, 8)
    notes = {_node(one): one["metadata"]["annotations"] for one in here.all("pods")}
    for key in ("gangsched.io/rank", "batch.kubernetes.io/job-completion-index"):
        assert [int(notes[name][key]) for name in sorted(notes)] == list(range(12))


async def _is_taken(here: Live, applied: list[Object]) -> None:
    """Its constraint needs a feature gate of the real server: tests/real/test_topology.py has it on."""
    await apply(here, applied)
    assert [one["metadata"]["name"] for one in here.all("podgroups.scheduling.k8s.io")] == ["train"]


async def _are_placed(here: Live, applied: list[Object]) -> None:
    """Kueue's own part, which makes a gang of them, is in test_controllers.py."""
    await apply(here, applied)
    await _all_are_bound(here, applied[0]["spec"]["completions"])
    assert all(len(_devices(one)) == 4 for one in here.all("pods"))


async def _in_one_zone(here: Live, applied: list[Object]) -> None:
    """As a gang's pods: one rack is preferred, one zone required, which has a rack and half of another."""
    [shown] = applied
    shown["spec"]["containers"][0]["resources"]["limits"][GPU] = 8
    labels = {"gangsched.io/pod-group": "wide"}
    notes = {**shown["metadata"]["annotations"], "gangsched.io/min-members": "4"}
    metadata = [{"name": f"m{i}", "labels": labels, "annotations": notes} for i in range(4)]
    for i, node in enumerate(_names(here)):
        await _patch(here, node, {"metadata": {"labels": {ZONE: "east" if i < 12 else "west"}}})
    await _leave(here, {0, 1, 8, 12, 13, 14})
    await apply(here, [{**shown, "metadata": each} for each in metadata])
    await here.until(lambda: any(map(message, here.all("pods"))))
    assert not any(map(_node, here.all("pods"))), "it has started in several zones"
    await _leave(here, {0, 1, 8, 9, 12, 13, 14})
    await _all_are_bound(here, 4)
    assert (_values(here, ZONE), _values(here, RACK)) == ({"east"}, {"rack-0", "rack-1"})


async def _bandwidth_is_left(here: Live, applied: list[Object]) -> None:
    """One node has what is required left, as its agent measures."""
    for i, node in enumerate(_names(here)):
        left = 401 if i == 5 else 399
        report = {
            "egressMBps": left,
            "ingressMBps": 900,
            "totalMBps": 1500,
            "observedAt": datetime.now(UTC).isoformat(),
        }
        note = {"gangsched.io/remaining-bandwidth": json.dumps(report)}
        await _patch(here, node, {"metadata": {"annotations": note}})
    await apply(here, applied)
    await _all_are_bound(here, 1)
    assert _node(here.all("pods")[0]) == _names(here)[5]


async def _devices_suit_each_other(here: Live, applied: list[Object]) -> None:
    await apply(here, applied)
    await _all_are_bound(here, 1)
    [pod] = here.all("pods")
    [node] = [one for one in here.all("nodes") if one["metadata"]["name"] == _node(pod)]
    inventory = json.loads(node["metadata"]["annotations"]["gangsched.io/devices"])
    listed = {one["id"]: one for one in inventory[GPU]}
    first, second = (listed[one] for one in _devices(pod))
    assert first["numa"] == second["numa"]
    assert second["id"] in str(first["links"])
    assert "H100" in first["model"]


async def _leaves_a_dead_node_soon(here: Live, applied: list[Object]) -> None:
    """Kubernetes adds its own 300 s only where a pod says nothing."""
    await apply(here, applied)
    await _all_are_bound(here, 1)
    [pod] = here.all("pods")
    assert {one.get("tolerationSeconds") for one in pod["spec"]["tolerations"]} == {30}
    await _patch(here, _node(pod), {"metadata": {"annotations": {"simulated.gangsched.io/killed": "true"}}})
    await here.until(lambda: all("deletionTimestamp" in one["metadata"] for one in here.all("pods")))


async def _does_not_fit(here: Live, applied: list[Object]) -> None:
    await apply(here, applied)
    await here.until(lambda: any("16 of 20 fit" in message(one) for one in here.all("pods")))
    assert not any(map(_node, here.all("pods")))
    page = ROOT / "docs" / "getting-started.md"
    [said] = [one.text.strip() for one in blocks(page, "text") if "too-big" in one.text]
    told = next(message(one) for one in here.all("pods") if "16 of 20 fit" in message(one))
    before, _, after = said.partition("member ")
    assert told.startswith(before)
    assert told.endswith(after[after.index(":") :])


async def _gives_the_right(here: Live, applied: list[Object]) -> None:
    await apply(here, applied)
    [role] = here.all("clusterroles.rbac.authorization.k8s.io")
    assert role["rules"] == applied[0]["rules"]


SHOWN = {
    ("README.md", "train"): _gangs(4),
    ("docs/bandwidth-and-load.md", "shown"): Example(_bandwidth_is_left),
    ("docs/controllers.md", "admitted"): Example(_are_placed),
    ("docs/controllers.md", "indexed"): _gangs(4, 8, "default/indexed")._replace(ours="inferGangs: [Job]\n"),
    ("docs/devices.md", "shown"): Example(_devices_suit_each_other),
    ("docs/failures.md", "shown"): Example(_leaves_a_dead_node_soon),
    ("docs/gangs.md", "train"): _gangs(4),
    ("docs/gangs.md", "train-in-one-rack"): Example(_in_one_rack),
    ("docs/gangs.md", "train-in-a-ring"): Example(_along_the_racks),
    ("docs/gangs.md", "shown"): Example(_in_one_zone),
    ("docs/gangs.md", "train (PodGroup)"): Example(_is_taken),
    ("docs/getting-started.md", "too-big"): Example(_does_not_fit),
    ("docs/getting-started.md", "steady"): _gangs(4, gang="default/steady"),
    ("docs/migrating.md", "train 3"): _gangs(3),
    ("docs/migrating.md", "train 2"): _gangs(2),
    ("docs/migrating.md", "train 4"): _gangs(4, 4),
    ("docs/migrating.md", "train 2 yunikorn"): _gangs(2),
    ("docs/resource-claims.md", "one-gpu"): Example(claims_shown.own_devices),
    ("docs/resource-claims.md", "gpu.nvidia.com"): Example(claims_shown.by_number),
    ("docs/resource-claims.md", "two-near"): Example(claims_shown.near_devices),
    ("docs/resource-claims.md", "one-for-all"): Example(claims_shown.one_for_all),
    ("docs/resource-claims.md", "two-slices"): Example(claims_shown.partitions),
    ("docs/resource-claims.md", "wide"): Example(claims_shown.channels),
    ("docs/resource-claims.md", "burn-in"): Example(claims_shown.taints),
    ("docs/writing-plugins.md", "gangsched-freeze"): Example(_gives_the_right),
}


def _key(block: Block) -> tuple[str, str]:
    """The page, and what tells this example from the page's others."""
    objects = objects_of(block)
    name = objects[0]["metadata"]["name"]
    [jobs] = [[one for one in objects if one["kind"] == "Job"]]
    if name_of(block.page) == "docs/migrating.md":
        name += f" {jobs[0]['spec']['completions']}" + " yunikorn" * ("yunikorn" in block.text)
    elif not jobs and objects[0]["kind"] == "PodGroup":
        name += " (PodGroup)"
    return name_of(block.page), name


def test_of_every_example_it_is_known_what_it_shows() -> None:
    assert sorted(map(_key, APPLIED)) == sorted(SHOWN)


@pytest.mark.parametrize("block", APPLIED, ids=str)
async def test_it_shows_what_the_page_says(block: Block, tmp_path: Path) -> None:
    example = SHOWN[_key(block)]
    config: SchedulerConfig | None = None
    if text := example.ours and file_with(example.ours):
        config = parse_config(text, source=str(block), plugins=IN_TREE)
    async with live(tmp_path, nodes=N_NODES, config=config) as here:
        await example.shows(here, objects_of(block))


def test_team_a_gets_its_gpus_by_the_lines_that_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the end of what is deployed, as it says."""
    first = next(one.text for one in blocks(ROOT / "docs" / "queues.md", "yaml"))
    path = tmp_path / "scheduler.yaml"
    deployed = (ROOT / "deploy" / "config" / "scheduler.yaml").read_text()
    path.write_text(deployed.rstrip() + "\n" + first[first.index("queues:") :])
    assert main(["check-config", str(path)]) == 0
    assert "  team-a: share 1; guaranteed nvidia.com/gpu 64; namespaces team-a\n" in capsys.readouterr().out


# -- what is looked at -----------------------------------------------------------------------------------


def message(pod: Object) -> str:
    """Why it is not scheduled, as its condition says."""
    conditions = pod.get("status", {}).get("conditions", ())
    refused = (one for one in conditions if (one["type"], one["status"]) == ("PodScheduled", "False"))
    return next((one.get("message", "") for one in refused), "")


def _node(pod: Object) -> str:
    return str(pod["spec"].get("nodeName", ""))


def _devices(pod: Object) -> list[str]:
    allocated = json.loads(pod["metadata"]["annotations"]["gangsched.io/allocated-devices"])
    return [one for by_resource in allocated.values() for one in by_resource[GPU]]


def _names(here: Live) -> list[str]:
    return sorted(one["metadata"]["name"] for one in here.all("nodes"))


def _values(here: Live, label: str) -> set[str]:
    """Of the nodes that its pods are on."""
    used = {_node(pod) for pod in here.all("pods")}
    return {one["metadata"]["labels"][label] for one in here.all("nodes") if one["metadata"]["name"] in used}


def _check_gang(here: Live, gang: str, n_members: int, gpus: int) -> None:
    pods = here.all("pods")
    notes = [one["metadata"]["annotations"] for one in pods]
    assert {one["gangsched.io/gang"] for one in notes} == {gang}
    assert {one["gangsched.io/rank"] for one in notes} == {str(i) for i in range(n_members)}
    given = [(_node(one), device) for one in pods for device in _devices(one)]
    assert len(given) == len(set(given)) == n_members * gpus


async def _all_are_bound(here: Live, n_pods: int) -> None:
    await here.until(lambda: len(here.all("pods")) == n_pods and all(map(_node, here.all("pods"))))


async def _leave(here: Live, indices: set[int]) -> None:
    """Leaves these nodes open to pods, and cordons the others."""
    for i, name in enumerate(_names(here)):
        await _patch(here, name, {"spec": {"unschedulable": None if i in indices else True}})
    left = {name for i, name in enumerate(_names(here)) if i in indices}

    def is_known() -> bool:
        known = here.nodes()
        return len(known) == N_NODES and left == {
            name for name, node in known.items() if not node.spec.unschedulable
        }

    await here.until(is_known)


async def _patch(here: Live, node: str, change: dict[str, Any]) -> None:
    await here.client.patch(f"/api/v1/nodes/{node}", msgspec.json.encode(change))

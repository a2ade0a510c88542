"""VolumeBinding follows which volumes are free, and answers as one that looks at all of them anew."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.framework import row_cache
from gangsched.core.framework.interface import SUCCESS, CycleState
from gangsched.model import storage as kinds
from gangsched.model.storage import PersistentVolumeClaim
from gangsched.plugins.free_volumes import FreeVolumes
from gangsched.plugins.node_resources_fit import ShapePoint
from gangsched.plugins.provisioning import Provisioning
from gangsched.plugins.volume_binding import Args, VolumeBinding
from tests.plugins.build import Cluster, Stored, node, pod

HOST, ZONE = "kubernetes.io/hostname", "zone"
NODES = [f"n{k}" for k in range(5)]
WAITS = "WaitForFirstConsumer"


class Story(Stored):
    """Volumes, claims and capacities that come, change and go."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.c = Cluster(*(node(n, labels={HOST: n, ZONE: self.rng.choice("xy")}) for n in NODES))
        super().__init__(self.c)
        self.put(kinds.CLASSES, "local", provisioner="kubernetes.io/no-provisioner", volumeBindingMode=WAITS)
        self.put(kinds.CLASSES, "made", provisioner="d", volumeBindingMode=WAITS)
        self.put(kinds.DRIVERS, "d", spec={"storageCapacity": True})
        for k in range(4):
            self.claim(f"c{k}")

    def claim(self, name: str) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": self.rng.choice(("local", "made"))}
        amount = f"{self.rng.randint(1, 5)}Gi"
        self.put(kinds.CLAIMS, name, spec={**spec, "resources": {"requests": {"storage": amount}}})

    def room(self, name: str, where: dict[str, str], gi: int) -> None:
        of = {"storageClassName": "made", "nodeTopology": {"matchLabels": where}}
        self.put(kinds.CAPACITIES, name, **of, capacity=f"{gi}Gi")

    def step(self) -> None:
        rng = self.rng
        name = f"v{rng.randrange(10)}"
        match rng.randrange(6):
            case 0:
                self.drop(kinds.VOLUMES, name)
            case 1:
                self.claim(f"c{rng.randrange(4)}")
            case 2:
                where = {HOST: rng.choice(NODES)} if rng.random() < 0.6 else {ZONE: rng.choice("xy")}
                self.room(f"s{rng.randrange(4)}", where, rng.randint(1, 9))
            case 3:
                zone = {HOST: (on := rng.choice(NODES)), ZONE: rng.choice("xy")}
                self.c.put(node(on, labels=zone))
            case _:
                self.put(kinds.VOLUMES, name, spec=self.volume(), status={"phase": self.phase()})

    def phase(self) -> str:
        return self.rng.choice(("Available", "Available", "Bound", "Released"))

    def volume(self) -> dict[str, Any]:
        rng = self.rng
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": rng.choice(("local", "made")),
        }
        spec["capacity"] = {"storage": f"{rng.randint(1, 9)}Gi"}
        key, values = rng.choice(((HOST, NODES), (ZONE, ["x", "y"])))
        if rng.random() < 0.8:
            term = {"matchExpressions": [{"key": key, "operator": "In", "values": [rng.choice(values)]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        if rng.random() < 0.3:
            k = rng.randrange(4)
            uid = rng.choice(("", "another", f"uid-{kinds.CLAIMS}-c{k}"))
            spec["claimRef"] = {"namespace": "default", "name": f"c{k}", "uid": uid}
        return spec


def answer(plugin: VolumeBinding, story: Story, names: list[str], siblings: list[tuple[int, str]]) -> Any:
    """(where it fits, scores there) with siblings that were placed before."""
    c, state = story.c, CycleState()
    trial = Trial(c.view)
    for row, name in siblings:
        trial.place(row, c.template(using([name])))
    template = c.template(using(names))
    if plugin.pre_filter(state, template, trial) is not SUCCESS:
        return None
    mask = plugin.filter(state, template, trial)
    assert mask is not None
    rows = np.flatnonzero(mask)
    scores = plugin.score(state, template, trial, rows)
    return c.names(mask), [0.0] * len(rows) if scores is None else scores.tolist()


def using(names: list[str]) -> Any:
    sources = [{"name": f"v{k}", "persistentVolumeClaim": {"claimName": one}} for k, one in enumerate(names)]
    return pod("p", volumes=sources)


@pytest.mark.parametrize("seed", range(30))
def test_it_follows_every_change(seed: int) -> None:
    story, kept, n_scored = Story(seed), VolumeBinding(), 0
    for step in range(100):
        story.step()
        names = story.rng.sample([f"c{k}" for k in range(4)], story.rng.randint(1, 2))
        others = [f"c{k}" for k in range(4) if f"c{k}" not in names]
        siblings = [(story.rng.randrange(5), name) for name in others if story.rng.random() < 0.4]
        found = answer(kept, story, names, siblings)
        assert found == answer(VolumeBinding(), story, names, siblings), f"seed {seed}, step {step}"
        n_scored += bool(found and any(found[1]))
    assert n_scored, "nothing was ever given"


def test_what_a_sibling_takes_is_not_there_for_the_next() -> None:
    """Two volumes on one node, one on another."""
    story = Story(0)
    for k, on in enumerate((NODES[0], NODES[0], NODES[1])):
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "9Gi"}}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        story.put(
            kinds.VOLUMES, f"v{k}", spec={**spec, "nodeAffinity": affinity}, status={"phase": "Available"}
        )
    amount = {"requests": {"storage": "1Gi"}}
    for k in range(3):
        own = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "resources": amount}
        story.put(kinds.CLAIMS, f"c{k}", spec=own)
    rows = story.c.rows(NODES).tolist()
    plugin = VolumeBinding()
    assert answer(plugin, story, ["c0"], [])[0] == [NODES[0], NODES[1]]
    assert answer(plugin, story, ["c1"], [(rows[1], "c0")])[0] == [NODES[0]]
    assert answer(plugin, story, ["c1"], [(rows[0], "c0")])[0] == [NODES[0], NODES[1]]
    assert answer(plugin, story, ["c2"], [(rows[0], "c0"), (rows[0], "c1")])[0] == [NODES[1]]


def test_of_two_reports_about_a_node_the_first_by_name_counts() -> None:
    story = Story(0)
    amount = {"resources": {"requests": {"storage": "2Gi"}}}
    story.put(kinds.CLAIMS, "c0", spec={"storageClassName": "made", **amount})
    story.room("a", {HOST: NODES[0]}, 8)
    story.room("b", {HOST: NODES[0]}, 4)
    story.room("c", {HOST: NODES[1]}, 4)
    story.room("d", {HOST: NODES[2]}, 1)
    plugin = VolumeBinding(Args(shape=(ShapePoint(0, 0), ShapePoint(100, 10))))
    assert answer(plugin, story, ["c0"], []) == ([NODES[0], NODES[1]], [25.0, 50.0])


def test_claims_of_ever_other_sizes_leave_nothing_that_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer has a number for each node, and whoever makes claims chooses their sizes."""
    monkeypatch.setattr(row_cache, "_MAX_BYTES", 0)
    story, volumes, provisioning = Story(0), FreeVolumes(), Provisioning()
    view, most = story.c.view, row_cache.n_kept(len(NODES))

    def sized(size: int) -> PersistentVolumeClaim:
        amount = {"requests": {"storage": f"{size}Mi"}}
        story.put(kinds.CLAIMS, "c0", spec={"storageClassName": "made", "resources": amount})
        found: PersistentVolumeClaim = view.objects(kinds.CLAIMS)["default", "c0"]
        return found

    first = volumes.fitting(sized(1), view), provisioning.of(sized(1), view)
    assert volumes.fitting(sized(1), view) is first[0]
    assert provisioning.of(sized(1), view) is first[1]
    for size in range(2, 2 + most):
        volumes.fitting(sized(size), view)
        provisioning.of(sized(size), view)
    assert volumes.fitting(sized(1), view) is not first[0]
    assert provisioning.of(sized(1), view) is not first[1]

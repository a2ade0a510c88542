"""VolumeBinding follows which volumes are free, and answers as one that looks at all of them again."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.framework.filters import row_cache
from gangsched.core.framework.interface import SUCCESS, CycleState
from gangsched.model import storage as kinds
from gangsched.model.storage import PersistentVolumeClaim
from gangsched.plugins.resources.node_resources_fit import ShapePoint
from gangsched.plugins.volumes.free_volumes import FreeVolumes
from gangsched.plugins.volumes.provisioning import Provisioning
from gangsched.plugins.volumes.volume_binding import MAX_UNBOUND, Args, VolumeBinding
from tests.core.test_turn_cost import lines_of
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
    return answer_on(story.c, plugin, names, siblings)


def answer_on(c: Cluster, plugin: VolumeBinding, names: list[str], siblings: list[tuple[int, str]]) -> Any:
    """The same, of a cluster without a story."""
    state = CycleState()
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

    first = volumes.fitting(sized(1), view), provisioning.provision(sized(1), view)
    assert volumes.fitting(sized(1), view) is first[0]
    assert provisioning.provision(sized(1), view) is first[1]
    for size in range(2, 2 + most):
        volumes.fitting(sized(size), view)
        provisioning.provision(sized(size), view)
    assert volumes.fitting(sized(1), view) is not first[0]
    assert provisioning.provision(sized(1), view) is not first[1]


def local_volumes(story: Story, rng: Random, n: int) -> list[tuple[int, str, str]]:
    """(size, name, node or "") of volumes of the class `local`."""
    made = []
    for k in range(n):
        size, on = rng.randint(1, 4), rng.choice(("", *NODES, *NODES))
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}
        affinity = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if on else {}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", **affinity}
        spec["capacity"] = {"storage": f"{size}Gi"}
        story.put(kinds.VOLUMES, f"v{k:02}", spec=spec, status={"phase": "Available"})
        made.append((size, f"v{k:02}", on))
    return made


@pytest.mark.parametrize("seed", range(40))
def test_several_claims_get_the_smallest_volumes_one_after_the_other_on_each_node(seed: int) -> None:
    story, rng = Story(seed), Random(seed)
    volumes = local_volumes(story, rng, rng.randint(1, 14))
    sizes = [rng.randint(1, 4) for _ in range(rng.randint(2, 5))]
    for k, size in enumerate(sizes):
        asked = {"resources": {"requests": {"storage": f"{size}Gi"}}}
        own = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", **asked}
        story.put(kinds.CLAIMS, f"c{k}", spec=own)
    fits = []
    for node_name in NODES:
        free = sorted(one for one in volumes if one[2] in ("", node_name))
        for size in sorted(sizes):
            found = next((one for one in free if one[0] >= size), None)
            if found is None:
                break
            free.remove(found)
        else:
            fits.append(node_name)
    found = answer(VolumeBinding(), story, [f"c{k}" for k in range(len(sizes))], [])
    assert found[0] == fits


def lines_of_a_pod(n_nodes: int, n_claims: int, selectors: int = 0) -> int:
    """Lines of Python to find that a pod with so many claims fits nowhere; one volume on each node."""
    c = Cluster(*(node(f"m{i}", labels={HOST: f"m{i}"}) for i in range(n_nodes)))
    story = Stored(c)
    waits = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "kubernetes.io/no-provisioner"}
    story.put(kinds.CLASSES, "local", **waits)
    for i in range(n_nodes):
        term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [f"m{i}"]}]}
        spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local", "capacity": {"storage": "9Gi"}}
        affinity = {"required": {"nodeSelectorTerms": [term]}}
        story.put(
            kinds.VOLUMES, f"v{i}", spec={**spec, "nodeAffinity": affinity}, status={"phase": "Available"}
        )
    for k in range(n_claims):
        own: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
        own["resources"] = {"requests": {"storage": f"{k + 1}Mi"}}
        if selectors:
            wishes = [{"key": f"k{i}", "operator": "NotIn", "values": [f"v{k}"]} for i in range(selectors)]
            own["selector"] = {"matchExpressions": wishes}
        story.put(kinds.CLAIMS, f"c{k}", spec=own)
    plugin, names = VolumeBinding(), [f"c{k}" for k in range(n_claims)]
    answer_on(c, plugin, [], [])
    return lines_of(lambda: answer_on(c, plugin, names, []))


def test_a_pod_of_many_claims_costs_steps_by_their_number_and_not_by_that_of_nodes() -> None:
    few, many = lines_of_a_pod(20, MAX_UNBOUND), lines_of_a_pod(220, MAX_UNBOUND)
    assert many - few < 200 * 2 * MAX_UNBOUND, "some lines for each volume, none for each volume and claim"


@pytest.mark.parametrize(("n_claims", "selectors"), [(400, 0), (1, 20_000), (30, 100)])
def test_claims_that_cost_more_than_a_turn_may_are_refused(n_claims: int, selectors: int) -> None:
    assert lines_of_a_pod(50, n_claims, selectors) < 100 * n_claims + 2_000

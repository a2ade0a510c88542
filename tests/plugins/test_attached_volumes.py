"""NodeVolumeLimits follows what changes, and always says what a plain count says."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import msgspec
import pytest

from gangsched.core.cache.object_store import _MAX_JOURNAL, ObjectStore
from gangsched.core.cache.trial import ClusterView, Trial
from gangsched.core.types.group import PodInfo
from gangsched.kube.watch.decode import objects
from gangsched.model import storage as kinds
from gangsched.model.objects import Pod
from gangsched.plugins.volumes.attached_volumes import AttachedVolumes
from gangsched.plugins.volumes.node_volume_limits import NodeVolumeLimits
from tests.plugins.build import Cluster, Stored, node, pod

CSI, CLASSIC = "ebs.csi.aws.com", "kubernetes.io/aws-ebs"
NODES = [f"n{k}" for k in range(5)]
NAMES = [f"v{k}" for k in range(6)]


class Story(Stored):
    """A cluster in which anything about volumes changes at random."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.c = Cluster(*(node(name) for name in NODES))
        super().__init__(self.c)
        self.running: dict[str, tuple[PodInfo, str]] = {}
        self.n = 0
        for name in NAMES:
            self.put(kinds.VOLUMES, name, spec={"csi": {"driver": CSI, "volumeHandle": name}})
            self.put(kinds.CLAIMS, name, spec={"volumeName": name})
        for name in NODES[:3]:
            self.limit(name, 1)

    def limit(self, name: str, count: int) -> None:
        driver = {"name": CSI, "nodeID": name, "allocatable": {"count": count}}
        self.put(kinds.NODES, name, spec={"drivers": [driver]})

    def step(self) -> None:
        rng = self.rng
        on, name = rng.choice(NODES), rng.choice(NAMES)
        match rng.randrange(10):
            case 0:
                self.limit(on, rng.randint(0, 3))
            case 1:
                self.drop(rng.choice((kinds.NODES, kinds.CLAIMS, kinds.VOLUMES)), rng.choice((on, name)))
            case 2:
                csi = {"csi": {"driver": CSI, "volumeHandle": rng.choice(NAMES)}}
                source = (
                    csi if rng.random() < 0.6 else {"awsElasticBlockStore": {"volumeID": rng.choice(NAMES)}}
                )
                self.put(kinds.VOLUMES, name, spec=source)
            case 3:
                of = {"volumeName": rng.choice(NAMES)} if rng.random() < 0.7 else {"storageClassName": "late"}
                self.put(kinds.CLAIMS, name, spec=of)
            case 4:
                self.put(kinds.CLASSES, "late", provisioner=rng.choice((CSI, CLASSIC, "other")))
            case 5:
                of = {"persistentVolumeName": rng.choice(NAMES)}
                self.put(kinds.ATTACHMENTS, f"a-{name}", spec={"attacher": CSI, "nodeName": on, "source": of})
            case 6:
                self.drop(kinds.ATTACHMENTS, f"a-{name}")
            case 7 if self.running:
                info, _ = self.running.pop(rng.choice(list(self.running)))
                self.c.cache.forget(info)
                self.c.cache.remove_pod(info.uid)
            case 8:
                self.c.cache.remove_node(on)
                self.c.put(node(on))
            case _:
                self.n += 1
                one = self.pod(f"p{self.n}")
                self.running[one.metadata.uid] = (self.c.run(one, on=on), on)

    def pod(self, name: str) -> Pod:
        sources: list[dict[str, Any]] = []
        for k, volume in enumerate(self.rng.sample(NAMES, self.rng.randint(0, 2))):
            claim = {"persistentVolumeClaim": {"claimName": volume}}
            disk = {"awsElasticBlockStore": {"volumeID": volume}}
            sources.append({"name": f"v{k}", **(claim if self.rng.random() < 0.8 else disk)})
        return pod(name, volumes=sources)


def used(one: Pod, view: ClusterView) -> Iterator[tuple[str, str]]:
    for volume in one.spec.volumes or ():
        if volume.aws_elastic_block_store is not None:
            yield CLASSIC, volume.aws_elastic_block_store.volume_id
        if volume.persistent_volume_claim is None:
            continue
        claim = view.objects(kinds.CLAIMS).get(("default", volume.persistent_volume_claim.claim_name))
        if claim is None:
            continue
        found = view.objects(kinds.VOLUMES).get(("", claim.spec.volume_name))
        if found is not None:
            csi, disk = found.spec.csi, found.spec.aws_elastic_block_store
            yield (csi.driver, csi.volume_handle) if csi is not None else (CLASSIC, disk.volume_id)
        elif (of := view.objects(kinds.CLASSES).get(("", claim.spec.storage_class_name or ""))) is not None:
            yield of.provisioner, f"default/{claim.metadata.name}"


def has_room(one: Pod, there: list[Pod], name: str, view: ClusterView) -> bool:
    """What a node says to one more pod, counted plainly."""
    csi_node = view.objects(kinds.NODES).get(("", name))

    def meant(some: Iterator[tuple[str, str]]) -> set[tuple[str, str]]:
        return {(CSI if csi_node is not None and of == CLASSIC else of, volume) for of, volume in some}

    limits = {CLASSIC: 39} if csi_node is None else {}
    for driver in csi_node.spec.drivers or () if csi_node is not None else ():
        if driver.allocatable is not None:
            limits[driver.name] = driver.allocatable.count
    mine = {volume for other in there for volume in meant(used(other, view))}
    held = set(mine)
    for attachment in view.objects(kinds.ATTACHMENTS).values():
        found = view.objects(kinds.VOLUMES).get(("", attachment.spec.source.persistent_volume_name))
        if attachment.spec.node_name == name and found is not None and found.spec.csi is not None:
            held.add((attachment.spec.attacher, found.spec.csi.volume_handle))
    new = meant(used(one, view)) - mine
    return all(
        sum(of == driver for of, _ in held) + sum(of == driver for of, _ in new) <= limit
        for driver, limit in limits.items()
        if any(of == driver for of, _ in new)
    )


@pytest.mark.parametrize("seed", range(40))
def test_it_follows_every_change_and_counts_as_one_would_by_hand(seed: int) -> None:
    story, plugin = Story(seed), NodeVolumeLimits()
    c, n_full = story.c, 0
    for step in range(120):
        story.step()
        if story.rng.random() < 0.5:
            continue
        trial, one = Trial(c.view), story.pod("asks")
        there = {name: [info.pod for info, on in story.running.values() if on == name] for name in NODES}
        for k in range(story.rng.randint(0, 3)):
            name, more = story.rng.choice(NODES), story.pod(f"more{k}")
            if story.rng.random() < 0.3 and story.running:
                info, name = story.rng.choice(list(story.running.values()))
                there[name] = [other for other in there[name] if other is not info.pod]
                trial.remove(info)
            else:
                there[name].append(more)
                trial.place(int(c.rows([name])[0]), c.template(more))
            if story.rng.random() < 0.5:  # it then follows what is placed after that
                plugin.filter(c.state, c.template(one), trial)
        mask = plugin.filter(c.state, c.template(one), trial)
        assert mask is not None
        expected = [name for name in NODES if has_room(one, there[name], name, c.view)]
        assert sorted(c.names(mask)) == expected, f"seed {seed}, step {step}"
        n_full += len(expected) < len(NODES)
    assert n_full, "no node was ever full"


def test_nothing_is_kept_of_volumes_that_were_attached_and_are_gone() -> None:
    """A cluster makes and deletes volumes for ever."""
    story, attached = Story(0), AttachedVolumes({})
    attached.follow(story.c.view)

    def known() -> dict[str, object]:
        return {name: len(kept) for name, kept in vars(attached).items() if isinstance(kept, dict)}

    before = known()
    for k in range(3):
        volume, on = f"late{k}", {"attacher": CSI, "nodeName": f"elsewhere{k}"}
        story.put(kinds.VOLUMES, volume, spec={"csi": {"driver": CSI, "volumeHandle": volume}})
        story.put(kinds.ATTACHMENTS, volume, spec={**on, "source": {"persistentVolumeName": volume}})
        attached.follow(story.c.view)
        assert known() != before
        story.drop(kinds.ATTACHMENTS, volume)
        story.drop(kinds.VOLUMES, volume)
        attached.follow(story.c.view)
    assert known() == before


def test_changes_are_known_by_name_until_there_were_too_many() -> None:
    store = ObjectStore()

    def put(name: str, version: int) -> None:
        meta = {"name": name, "uid": name, "resourceVersion": str(version)}
        raw = msgspec.json.encode({"metadata": meta, "provisioner": str(version)})
        store.put(kinds.CLASSES, objects(kinds.CLASSES).decode_object(raw))

    put("a", 1)
    began = store.revision(kinds.CLASSES)
    assert store.changed_since(kinds.CLASSES, began) == []
    put("a", 2)
    put("b", 3)
    store.remove(kinds.CLASSES, "", "a", "a")
    assert store.changed_since(kinds.CLASSES, began) == [("", "a"), ("", "b"), ("", "a")]
    for version in range(_MAX_JOURNAL):
        put("b", 4 + version)
    assert store.changed_since(kinds.CLASSES, began) is None
    assert store.changed_since(kinds.CLASSES, store.revision(kinds.CLASSES) - 1) == [("", "b")]

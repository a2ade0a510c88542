"""ImageLocality: nodes that have the images already; figures worked out by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.model.objects import Node
from gangsched.plugins.resources.image_locality import ImageLocality
from tests.plugins.build import Cluster, node, pod

MIB = 2**20


def holding(name: str, *images: tuple[str, int]) -> Node:
    """A node with images, sizes in MiB."""
    reported = [{"names": [image], "sizeBytes": size * MIB} for image, size in images]
    plain = node(name)
    status = msgspec.to_builtins(plain.status) | {"images": reported}
    return msgspec.convert(msgspec.to_builtins(plain) | {"status": status}, Node)


def running(*images: str, **spec: Any) -> Any:
    return pod(containers=[{"name": f"c{i}", "image": image} for i, image in enumerate(images)], **spec)


def scores(cluster: Cluster, one: Any, plugin: ImageLocality | None = None) -> list[float] | None:
    rows = cluster.rows(cluster.cache.nodes.row_of)
    found = (plugin or ImageLocality()).score(cluster.state, cluster.template(one), cluster.view, rows)
    return None if found is None else found.tolist()


def test_an_image_counts_by_its_size_and_by_the_share_of_nodes_that_have_it() -> None:
    cluster = Cluster(holding("a", ("big:1", 1000)), holding("b", ("big:1", 1000)), node("c"), node("d"))
    # Half of the nodes have it: 500 MiB of the 23 to 1000 that count.
    assert scores(cluster, running("big:1")) == [48.0, 48.0, 0.0, 0.0]


def test_the_thresholds_are_23_mib_and_1000_mib_a_container() -> None:
    cluster = Cluster(holding("a", ("small:1", 23), ("huge:1", 9000)))
    assert scores(cluster, running("small:1")) is None
    assert scores(cluster, running("huge:1")) == [100.0]
    assert scores(cluster, running("huge:1", "elsewhere:1")) == [100.0]
    assert scores(cluster, running("small:1", "elsewhere:1")) is None


def test_a_name_without_a_tag_is_the_tag_latest_and_a_registrys_port_is_no_tag() -> None:
    cluster = Cluster(
        holding("a", ("r:5000/x:latest", 1000)), holding("b", ("r:5000/x@sha256:12", 1000)), node("c")
    )
    assert scores(cluster, running("r:5000/x")) == [31.0, 0.0, 0.0]
    assert scores(cluster, running("r:5000/x@sha256:12")) == [0.0, 31.0, 0.0]
    assert scores(cluster, running("r:5000/x:other")) is None


def test_init_containers_and_image_volumes_count_too_and_an_image_once_for_each() -> None:
    cluster = Cluster(holding("a", ("x:1", 400)), node("b"))
    volumes = [{"name": "model", "image": {"reference": "x:1"}}]
    one = running("x:1", initContainers=[{"name": "i", "image": "x:1"}], volumes=volumes)
    # Three times 200 MiB, of 23 to 3000.
    assert scores(cluster, one) == [19.0, 0.0]


def test_what_is_remembered_is_computed_again_when_nodes_or_images_change() -> None:
    plugin = ImageLocality()
    cluster = Cluster(holding("a", ("x:1", 1000)), node("b"))
    assert scores(cluster, running("x:1"), plugin) == [48.0, 0.0]
    cluster.put(holding("b", ("x:1", 1000)))
    assert scores(cluster, running("x:1"), plugin) == [100.0, 100.0]
    cluster.put(node("c"))
    assert scores(cluster, running("x:1"), plugin) == [65.0, 65.0, 0.0]
    cluster.put(node("a"))
    assert scores(cluster, running("x:1"), plugin) == [0.0, 31.0, 0.0]
    cluster.cache.remove_node("b")
    assert scores(cluster, running("x:1"), plugin) is None


def test_the_cache_does_not_keep_what_a_kubelet_reports_beside_what_it_is_told() -> None:
    cluster = Cluster(holding("a", ("x:1", 1000)))
    kept = cluster.view.node(0)
    assert kept is not None
    assert kept.status.images is None
    image = cluster.view.image("x:1")
    assert image is not None
    assert (image.n_nodes, image.size_bytes, image.rows().tolist()) == (1, 1000 * MIB, [0])

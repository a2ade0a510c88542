"""Templates: shared by pods that are alike, and forgotten before they fill the memory."""

from __future__ import annotations

import gc

import pytest
from msgspec.structs import replace

from gangsched.core.cache import template_table as module
from gangsched.core.cache.cache import Cache
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_pod
from gangsched.model.objects import Toleration
from tests.support.scenario import cluster


def test_large_pods_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100_000)
    cache = Cache()
    small = cache.template_of(make_pod("small"))
    for i in range(50):
        pod = make_pod(f"big{i}", annotations={"x": "y" * 9_000})
        cache.template_of(replace(pod, spec=replace(pod.spec, node_selector={"n": str(i)})))
        assert len(cache.template_table.all) <= 12
    assert cache.template_of(make_pod("small")) is not small, "it was forgotten with the others"


def test_no_plugin_and_no_deadline_keeps_what_the_table_has_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that are created and deleted, each unlike all others: a spec may be a megabyte."""
    monkeypatch.setattr(module, "_MAX_TEMPLATES", 4)
    others = [one for one in gc.get_objects() if isinstance(one, PodTemplate)]
    before = {*map(id, others)}  # they are held, so that none of the next can have the place of one
    c = cluster(nodes=2)
    for i in range(40):
        pod = make_pod(f"p{i}", gpus=1)
        # Every other one fits nowhere: its group keeps what refused it.
        selector = {"no": str(i)} if i % 2 else None
        spec = replace(pod.spec, tolerations=[Toleration(f"k{i}", "Exists")], node_selector=selector)
        c.submit(replace(pod, spec=spec)).run().delete(f"p{i}")
    gc.collect()
    alive = [one for one in gc.get_objects() if isinstance(one, PodTemplate) and id(one) not in before]
    assert 0 < len(alive) <= 6

"""Templates: shared by pods that are alike, and forgotten before they fill the memory."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from gangsched.core.cache import template_table as module
from gangsched.core.cache.cache import Cache
from gangsched.sim.objects import make_pod


def test_large_pods_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_BYTES", 100_000)
    cache = Cache()
    small = cache.template_of(make_pod("small"))
    for i in range(50):
        pod = make_pod(f"big{i}", annotations={"x": "y" * 9_000})
        cache.template_of(replace(pod, spec=replace(pod.spec, node_selector={"n": str(i)})))
        assert len(cache.template_table.all) <= 12
    assert cache.template_of(make_pod("small")) is not small, "it was forgotten with the others"

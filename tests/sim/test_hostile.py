"""The generator of hostile objects: the same for a seed, sendable as JSON, and nothing left out for long."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from gangsched.lab.sim.objects import OURS
from gangsched.lab.sim.workloads import hostile


def drawn(seed: int) -> list[dict[str, Any]]:
    rng = Random(seed)
    pods = [hostile.hostile_pod(rng, f"p{k}", scheduler=OURS) for k in range(40)]
    return [*pods, *(hostile.hostile_node(rng, f"n{k}") for k in range(20))]


def test_a_seed_makes_the_same_objects_which_go_over_a_wire() -> None:
    one, two = json.dumps(drawn(3)), json.dumps(drawn(3))
    assert one == two
    assert one != json.dumps(drawn(4))


def test_every_key_and_every_extreme_comes_up() -> None:
    objects = [each for seed in range(10) for each in drawn(seed)]
    keys = {key for each in objects for key in each["metadata"]["annotations"]}
    assert keys == {*hostile.MEMBER_KEYS, *hostile.BOUND_KEYS, *hostile.NODE_KEYS}
    labels = {key for each in objects for key in each["metadata"].get("labels", ())}
    assert labels == {*hostile.GROUP_LABELS, *hostile.COUNT_LABELS}
    asked = {
        amount
        for each in objects
        for container in each["spec"].get("containers", ())
        for amount in container["resources"]["requests"].values()
    }
    assert asked == set(hostile.QUANTITIES)
    assert any("managedFields" in each["metadata"] for each in objects)
    texts = [text for each in objects for text in each["metadata"]["annotations"].values()]
    assert any(text.startswith("[" * 1000) for text in texts)
    assert any(not text.isprintable() for text in texts)


def test_a_spoiled_spec_differs_in_one_field() -> None:
    spec = {"minMember": 2}
    for seed in range(50):
        spoiled = hostile.hostile_spec(Random(seed), spec)
        assert len({key for key in {*spec, *spoiled} if spec.get(key) != spoiled.get(key)}) <= 1

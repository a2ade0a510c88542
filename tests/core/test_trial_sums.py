"""What is free on a Trial: the same whether it is read after each change or after hundreds."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from gangsched.core.cache.trial import Trial
from gangsched.lab.sim.objects import GPU, make_pod
from gangsched.model.objects import Container, Pod, ResourceRequirements
from tests.support.scenario import cluster


def asking(name: str, amounts: dict[str, str]) -> Pod:
    pod = make_pod(name, gpus=0)
    asked = ResourceRequirements(requests={"cpu": "1", **amounts})
    return replace(pod, spec=replace(pod.spec, containers=[Container(name="main", resources=asked)]))


@pytest.mark.parametrize("memory", ["3Gi", "1Ei", "7Ei"])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_after_many_changes_as_after_each(seed: int, memory: str) -> None:
    rng = Random(seed)
    c = cluster(nodes=6, gpus=8)
    c.submit([make_pod(f"runs-{i}", gpus=1) for i in range(30)]).run()
    kinds = [{}, {GPU: "2"}, {"memory": memory}, {GPU: "1", "memory": "1Gi"}]
    c.submit([asking(f"kind-{i}", one) for i, one in enumerate(kinds)])
    waiting = [c.group(f"kind-{i}") for i in range(len(kinds))]
    templates = [next(iter(one.members.values())).template for one in waiting]
    there, view = c.infos_on_nodes(), c.view()
    rng.shuffle(there)
    at_once, one_by_one = Trial(view), Trial(view)
    columns = range(len(view.table))
    for step in range(400):
        for trial in (at_once, one_by_one):
            if there and step % 15 == 0:
                trial.remove(there[-1])
            else:
                trial.place(step % view.n_rows, templates[step * 7 % len(templates)], 1 + step % 3)
        if step % 15 == 0 and there:
            there.pop()
        each = [one_by_one.free(column).tolist() for column in columns]
        if step in (5, 100, 399):
            assert [at_once.free(column).tolist() for column in columns] == each, f"step {step}"

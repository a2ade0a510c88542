"""Which devices are free on a Trial: by a plain count of who holds, keeps and was given each."""

from __future__ import annotations

from random import Random

import pytest

from gangsched.core.cache.trial import Trial
from gangsched.core.types.group import PodInfo
from gangsched.lab.sim.objects import GPU, make_pod
from tests.support.scenario import cluster

Device = tuple[int, str]


class Plain:
    """Devices by what has become of them, in sets."""

    def __init__(self, held: dict[str, set[Device]], all_devices: set[Device]) -> None:
        self.held = held
        self.all = all_devices
        self.kept: set[Device] = set()
        self.given: list[set[Device]] = []

    def copy(self) -> Plain:
        other = Plain(dict(self.held), self.all)
        other.kept, other.given = set(self.kept), list(self.given)
        return other

    def free(self) -> set[Device]:
        return self.all - self.kept - set().union(*self.held.values(), *self.given)


@pytest.mark.parametrize("seed", range(20))
def test_devices_are_free_that_nobody_holds_keeps_or_was_given(seed: int) -> None:
    rng = Random(seed)
    c = cluster(nodes=3, gpus=8)
    c.submit([make_pod(f"runs-{i}", gpus=rng.choice((1, 2, 3))) for i in range(8)]).run()
    c.submit([make_pod("waits", gpus=1)])
    template = next(iter(c.group("waits").members.values())).template
    view = c.view()
    inventories = ((row, view.inventory(row, GPU)) for row in range(view.n_rows))
    listed = {row: inventory for row, inventory in inventories if inventory is not None}
    rows = list(listed)
    there = c.infos_on_nodes()
    plain = Plain(
        {info.uid: {(info.row, one) for one in info.ids[GPU]} for info in there},
        {(row, one) for row, inventory in listed.items() for one in inventory.ids},
    )
    trial = Trial(view)
    behind: list[tuple[Trial, Plain]] = []
    went: list[PodInfo] = []

    def mask(row: int, devices: set[Device]) -> int:
        return listed[row].mask_of(tuple(one for at, one in sorted(devices) if at == row))

    for step in range(80):
        deed, row = rng.choice(("remove", "keep", "give", "give", "again", "fork")), rng.choice(rows)
        here = sorted(one for one in plain.free() if one[0] == row)
        if deed == "remove" and there:
            gone = there.pop(rng.randrange(len(there)))
            trial.remove(gone)
            del plain.held[gone.uid]
            went.append(gone)
        elif deed == "remove" and went:
            trial.remove(rng.choice(went))  # a second time: nothing changes
        elif deed == "keep" and step < 20:
            kept = set(rng.sample(sorted(one for one in plain.all if one[0] == row), 2))
            kept -= set().union(*plain.given)
            trial.keep_back(row, {GPU: tuple(one for _, one in sorted(kept))})
            plain.kept |= kept
        elif deed == "give" and here:
            given = set(rng.sample(here, rng.randint(1, min(2, len(here)))))
            trial.take_devices(row, GPU, template, [mask(row, given)], trial.device_mask(row, GPU))
            plain.given.append(given)
        elif deed == "again" and (mine := [one for one in plain.given if {at for at, _ in one} == {row}]):
            left = [one for one in plain.given if one not in mine]
            plain.given = left
            other: list[set[Device]] = []
            for one in mine:
                choice = sorted(device for device in plain.free() if device[0] == row)
                other.append(set(rng.sample(choice, len(one))))
                plain.given = [*left, *other]
            wishes = tuple((template, (mask(row, one),)) for one in other)
            trial.retake_devices(row, GPU, wishes)
        elif deed == "fork":
            behind.append((trial, plain.copy()))
            trial = trial.fork()
        for tried, known in [*behind[-2:], (trial, plain)]:
            free = known.free()
            for at in rows:
                assert tried.device_mask(at, GPU) == mask(at, free), f"step {step}: {deed} on row {row}"
                assert tried.device_free_on(GPU, at) == sum(on == at for on, _ in free), f"step {step}"

"""`bench --core` on a small cluster: it places everything, again and again, and its report adds up."""

from __future__ import annotations

import io
from types import ModuleType

import msgspec
import pytest
from rich.console import Console

from gangsched.lab.bench.rounds.workload import Shape
from gangsched.lab.bench.speed import (
    claim_speed,
    core_speed,
    member_speed,
    packing_speed,
    victims_speed,
    volume_speed,
)
from gangsched.lab.bench.speed.claim_speed import ClaimSpeed
from gangsched.lab.bench.speed.early_stop_speed import EarlyStopSpeed
from gangsched.lab.bench.speed.load_speed import LoadSpeed
from gangsched.lab.bench.speed.victims_speed import VictimsSpeed
from gangsched.lab.bench.speed.volume_speed import VolumeSpeed


def test_rounds_place_every_pod_and_leave_the_core_as_it_was() -> None:
    size = core_speed.measure(Shape(n_nodes=6, n_gangs=5, gang_size=8, gpus=8), 2)
    assert len(size.rounds) == 2
    assert all(min(r.ingest_us, r.decide_us, r.confirm_us) > 0 for r in size.rounds)
    assert size.peak_memory_mib > 1


@pytest.mark.parametrize(
    ("module", "arguments"),
    [(core_speed, (6, 5, 8, 8, 1)), (member_speed, (40, 5, 1)), (packing_speed, (64, 2, 1))],
    ids=lambda value: value.__name__ if isinstance(value, ModuleType) else "",
)
def test_each_size_is_measured_in_a_process_of_its_own(
    module: ModuleType, arguments: tuple[int, ...]
) -> None:
    assert msgspec.json.decode(core_speed.in_own_process(module.__name__, arguments))


MEMBERS = (
    member_speed.PLAIN,
    member_speed.CONSTRAINED,
    member_speed.BY_NODE,
    member_speed.BY_EVERY_NODE,
)


def test_groups_with_all_plugins_on_are_placed_in_each_way() -> None:
    costs = member_speed.measure(40, 5, 2)
    assert tuple(costs) == MEMBERS
    assert all((len(cost.first_ms), len(cost.next_us)) == (4, 2) for cost in costs.values())
    assert len(member_speed.floor_ms(40, 2)) == 2


def test_searches_for_victims_are_of_each_sort() -> None:
    found = victims_speed.measure(400)
    assert min(found.lone_ms, found.gang_ms, found.one_a_rack_ms) > 0


def test_gangs_with_volumes_are_placed_in_each_way() -> None:
    found = volume_speed.measure(100)
    assert min(found.none_ms, found.shared_ms, found.own_ms, found.made_ms) > 0


def test_gangs_with_resource_claims_are_decided_and_others_wait() -> None:
    found = claim_speed.measure(20, 30, 4)
    assert min(msgspec.structs.astuple(found)) > 0


_PACKING = [
    packing_speed.PackingCost(packing_speed.PLAIN, packing_speed.Kind(1), [90.0, 100.0, 110.0]),
    packing_speed.PackingCost(packing_speed.PLAIN, packing_speed.Kind(1, 5), [170.0, 175.0, 180.0]),
]


def test_packing_by_weight_is_measured_in_each_way() -> None:
    costs = packing_speed.measure(64, 2, 1)
    assert len(costs) == 3 * 3 * 5
    assert all(len(cost.decide_us) == 1 and cost.decide_us[0] > 0 for cost in costs)
    assert packing_speed.ratio(costs[0], costs) == 1.0


def test_the_report_is_computed_from_the_sizes() -> None:
    def size(total_us: float, mib: float) -> core_speed.CoreSize:
        parts = core_speed.CoreRound(total_us / 4, total_us / 2, total_us / 4)
        return core_speed.CoreSize(core_speed.SIZES[0][1], [parts], 0.1, mib)

    sizes = dict(
        zip(core_speed.NAMES, (size(200, 1), size(400, 1), size(900, 5000), size(8000, 1)), strict=True)
    )
    costs = {name: member_speed.MemberCost([1.0, 3.0, 1.5], [20.0, 60.0, 70.0]) for name in MEMBERS}
    loads, lone = LoadSpeed(20.0, 50.0, 100.0), EarlyStopSpeed(210.0, 205.0)
    victims, volumes = VictimsSpeed(80.0, 300.0, 1200.0), VolumeSpeed(0.2, 2.0, 30.0, 8.0)
    members, claims = member_speed.MemberSpeed(costs, [0.8, 0.9]), ClaimSpeed(250.0, 2.0, 11.0, 9.0, 60.0)
    done = core_speed.assemble(sizes, members, loads, lone, victims, volumes, claims, _PACKING)
    assert done.ten_times_the_nodes == 2.0
    assert [target.met for target in done.targets[:5]] == [True, True, False, True, True]
    assert [target.measured for target in done.targets[:5]] == [5000.0, 2.0, 5000.0, 4.0, 170.0]
    assert (done.targets[5].measured, done.targets[5].met) == (1200.0, False)
    assert (done.targets[6].measured, done.targets[6].met) == (30.0, False)
    assert [target.met for target in done.targets[7:12]] == [True, True, False, True, False]
    assert [(target.measured, target.met) for target in done.targets[12:18]] == [
        (1.5, True),
        (60.0, False),
    ] * 3
    assert (done.targets[18].measured, done.targets[18].met) == (1.75, False)
    out = io.StringIO()
    core_speed.print_report(done, Console(file=out, width=150))
    assert "100,000 nodes" in out.getvalue()
    assert "210 us with all scored, 205 us with the early stop" in out.getvalue()
    assert "80 ms for a lone pod, 300 ms for a gang of 8" in " ".join(out.getvalue().split())
    assert "2.0 ms with a claim that all share, 30.0 ms with a claim each" in " ".join(out.getvalue().split())
    assert "250 ms the first time, then 2.0 ms" in " ".join(out.getvalue().split())
    assert "packing of weight 5" in out.getvalue()
    assert "1.75" in out.getvalue()
    assert "one a node, even over racks" in out.getvalue()
    assert "nothing else: 0.85" in " ".join(out.getvalue().split())
    assert "RemainingBandwidth filter 20 us, score 50 us; LoadAware score 100 us" in out.getvalue()

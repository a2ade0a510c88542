"""Another process, from a plain list, knows of pods, room and devices what the one before did.

Its groups may know less: whether members were ever together is kept in memory, and worked out from times.
"""

from __future__ import annotations

import pytest

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import GroupState
from gangsched.model import events as ev
from tests.core.test_plugins_that_change_their_minds import Weather
from tests.support.inside import Inside
from tests.support.long import all_but
from tests.support.scenario import Cluster

GPU = "nvidia.com/gpu"
_UNDER_WAY = (GroupState.WAITING, GroupState.BINDING)


# Of the process before, 13 had a member that has succeeded for gone once its gang had been evicted.
@pytest.mark.parametrize("seed", all_but(3, range(24)))
def test_another_process_knows_what_the_one_before_did(seed: int) -> None:
    weather, n_compared = Weather(seed), 0
    for _ in range(120):
        weather.step()
        c = weather.cluster
        if not c.held_binds and not _has_reserved(c.scheduler):
            n_compared += 1
            assert _known(c, _from_a_list(c)) == _known(c, c.scheduler)
    assert n_compared > 10


def _has_reserved(scheduler: Scheduler) -> bool:
    """What is reserved and not yet bound is in memory alone."""
    groups = Inside(scheduler).groups()
    return any(group.n_assumed or group.state in _UNDER_WAY for group in groups)


def _from_a_list(c: Cluster) -> Scheduler:
    made = c.make(c.settings)
    listed: list[ev.Event] = [ev.PodAdded(pod) for pod in c.pods.values()]
    listed += [ev.NodeAdded(node) for node in c.nodes.values()]
    made.handle([*listed, *(ev.KindSynced(kind) for kind in made.kinds)], c.now_s)
    return made


def _known(c: Cluster, scheduler: Scheduler) -> dict[str, object]:
    inside, view = Inside(scheduler), Inside(scheduler).view()
    known: dict[str, object] = {
        info.pod.metadata.name: (info.state, info.node_name, info.ids) for info in inside.pod_infos().values()
    }
    for name in c.nodes:
        row = view.row_of(name)
        assert row is not None
        columns = range(len(view.table))
        free = dict(zip(view.table.names, view.free_on(columns, row), strict=True))
        known[name] = (free, view.device_mask(row, GPU), dict(inside.ledger().holders(row, GPU)))
    return known

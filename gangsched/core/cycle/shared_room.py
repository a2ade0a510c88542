"""Shared room: at most how many of a group's members each node takes, of all templates together.

A bound that holds for every order of placing: where it is less than needed, no order has to be tried. Called
by core.cycle.cycle, core.cycle.domains.domains, core.cycle.orders.order_search and
core.preemption.victim_trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.framework.filters.filtering import Filtering
from gangsched.core.framework.interface import CycleState
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import IntArray
from gangsched.core.types.templates.pod_template import PodTemplate


class TemplateMembers(msgspec.Struct, frozen=True, gc=False):
    """Members of one template. state: None where PreFilter refuses it now; room: how many of them each node
    takes by its free room, int64[n_rows]."""

    template: PodTemplate
    n: int
    state: CycleState | None
    room: IntArray


def asked_together(kinds: Sequence[TemplateMembers]) -> list[tuple[CycleState, PodTemplate]]:
    """Returns what plugins are asked about at once: all templates, if there are several and PreFilter refuses
    none."""
    asked = [(kind.state, kind.template) for kind in kinds if kind.state is not None]
    return asked if 1 < len(asked) == len(kinds) else []


def shared_room(filtering: Filtering, kinds: Sequence[TemplateMembers], view: ClusterView) -> IntArray:
    """int64[n_rows]: at most how many of these members each node takes."""
    total: IntArray = np.zeros(view.n_rows, dtype=np.int64)
    for kind in kinds:
        total += kind.room
    asked = asked_together(kinds)
    most = filtering.joint_room.upper_bound(asked, view) if asked else None
    return total if most is None else np.minimum(total, most)


def n_at_most(filtering: Filtering, kinds: Sequence[TemplateMembers], view: ClusterView) -> int:
    """Upper bound of how many of these members all nodes take, whichever goes where."""
    room = shared_room(filtering, kinds, view)
    most = min(sum(min(int(kind.room.sum()), kind.n) for kind in kinds), int(room.sum()))
    asked = asked_together(kinds) if most else ()
    return min(most, filtering.joint_room.most(asked, view, room)) if asked else most


def by_room_left(
    filtering: Filtering, asked: Iterable[tuple[PodTemplate, int, CycleState]], view: ClusterView
) -> list[TemplateMembers]:
    """Returns the members of each template (template, number, state), with the room that nodes have left."""
    return [
        TemplateMembers(template, n, state, np.minimum(filtering.static_capacity(state, template, view), n))
        for template, n, state in asked
    ]


def takes_at_most(demand: Demand, states: Mapping[int, CycleState], view: ClusterView) -> int:
    """Upper bound of how many of a group's members have room, in whatever order they are placed. states: by
    the template's serial."""
    asked = [(one, len(members), states[one.serial]) for one, members in demand.by_template().values()]
    filtering = demand.profile.filtering
    return n_at_most(filtering, by_room_left(filtering, asked, view), view)

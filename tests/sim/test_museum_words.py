"""The bug museum's room of words: pages and conditions that count wrong, or name what is not so.

Nothing that is decided changes by them. Each mistake must be caught within a bound of seeds by the judge
pages-true, conditions-true or tenants-apart, and the unbroken scheduler must come through the seed that
caught it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from gangsched.core.cycle import shortage
from gangsched.core.explaining import reports
from gangsched.core.queueing import expected_ends
from gangsched.core.types.group import GroupState
from gangsched.core.why import nodes
from gangsched.core.why.not_tried import QueueFull
from gangsched.model.text import printable
from gangsched.model.text.printable import in_full
from gangsched.plugins import fairness
from gangsched.web.metrics import reading
from gangsched.web.pages import reservations
from tests.support.breaking import assert_caught

MAX_SEEDS = 30
Patch = pytest.MonkeyPatch


def a_group_that_waits_for_victims_is_not_pending(patch: Patch) -> None:
    patch.delitem(reading._QUEUES, GroupState.WAITING)


def devices_of_bound_pods_are_free(patch: Patch) -> None:
    right = reports._device

    def without_holders(shared: Any, device_id: str, healthy: bool, uids: Any) -> Any:
        found = right(shared, device_id, healthy, uids)
        return right(shared, device_id, healthy, ()) if found.group and not found.reserved else found

    patch.setattr(reports, "_device", without_holders)


def reservations_are_counted_by_pods(patch: Patch) -> None:
    patch.setattr(reservations, "_extended", lambda info: ((name, 1) for name in info.ids))


def a_page_fails_for_groups_that_wait(patch: Patch) -> None:
    right = reports._why

    def failing(group: Any) -> str:
        assert group.state is not GroupState.WAITING
        return right(group)

    patch.setattr(reports, "_why", failing)


def one_more_of_an_empty_cluster_would_not_fit(patch: Patch) -> None:
    right = shortage.n_too_many
    patch.setattr(shortage, "n_too_many", lambda short: right(short) or (short.n_wanted > short.n_held) * 1)


def every_device_is_reported_unhealthy(patch: Patch) -> None:
    def all_of_them(found: Any, view: Any) -> list[tuple[str, str]]:
        rows = range(view.n_rows)
        listed = ((row, view.inventory(row, "nvidia.com/gpu")) for row in rows)
        return [(one, view.name(row)) for row, has in listed if has is not None for one in has.ids]

    patch.setattr(shortage, "unhealthy", all_of_them)


def holders_hold_twice_as_much(patch: Patch) -> None:
    right = expected_ends._holders

    def doubled(*args: Any) -> list[Any]:
        return [replace(one, amount=2 * one.amount) for one in right(*args)]

    patch.setattr(expected_ends, "_holders", doubled)


def what_is_used_is_left_out(patch: Patch) -> None:
    def with_less(queue: str, resource: str, used: int, *more: int) -> QueueFull:
        return QueueFull(queue, resource, max(used - 4, 0), *more)

    patch.setattr(fairness, "QueueFull", with_less)


def names_of_other_namespaces_are_written(patch: Patch) -> None:
    patch.setattr(printable, "seen_from", lambda namespace, text: in_full(text))


def the_holder_of_a_shortage_is_named(patch: Patch) -> None:
    patch.setattr(nodes, "marked", lambda kind, names, lead="": ", ".join(names))


EXHIBITS: dict[str, tuple[str, str, Callable[[Patch], None]]] = {
    "a group that waits for victims is not pending": (
        "pages-true",
        "storm",
        a_group_that_waits_for_victims_is_not_pending,
    ),
    "devices of bound pods are free": ("pages-true", "storm", devices_of_bound_pods_are_free),
    "reservations are counted by pods": ("pages-true", "storm", reservations_are_counted_by_pods),
    "a page fails for groups that wait": ("pages-true", "storm", a_page_fails_for_groups_that_wait),
    "one more would not fit an empty cluster": (
        "conditions-true",
        "storm",
        one_more_of_an_empty_cluster_would_not_fit,
    ),
    "every device is reported unhealthy": (
        "conditions-true",
        "storm",
        every_device_is_reported_unhealthy,
    ),
    "holders hold twice as much": ("conditions-true", "claims", holders_hold_twice_as_much),
    "what is used is left out": ("conditions-true", "limits", what_is_used_is_left_out),
    "names of other namespaces are written": (
        "tenants-apart",
        "tenants",
        names_of_other_namespaces_are_written,
    ),
    "the holder of what is short is named": (
        "tenants-apart",
        "tenants",
        the_holder_of_a_shortage_is_named,
    ),
}


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_the_mistake_is_caught(exhibit: str) -> None:
    judge, storm, mistake = EXHIBITS[exhibit]
    assert_caught(exhibit, mistake, storm, f"{judge}: ", n_seeds=MAX_SEEDS)

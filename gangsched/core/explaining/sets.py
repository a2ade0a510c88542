"""Why a group's set keeps it from starting: it is refused, or one of its groups is being bound or is not all
there.

Called by core.explaining.room.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.model.pod_group import GROUPS_KEY
from gangsched.model.text.printable import marked, sentence
from gangsched.reading.strict import nearest

_MAX_NAMED = 3
_MAX_LOOKED_AT = 20_000


def kept_out_by_set(scheduler: Scheduler, group: Group) -> tuple[str, str] | None:
    """(the explanation, the cure); None if its set may be tried."""
    if not group.start_together or group.starts_alone:
        return None
    if problem := scheduler.shared.start_together.problem(group):
        return sentence(str(problem)), f"Correct what the answer names: a name, or the lists in {GROUPS_KEY}."
    if (busy := scheduler.shared.start_together.busy(group)) is not None:
        return (
            f"It starts together with {_name(busy)}, which is {busy.state.value}: it is tried after that.",
            f"See what it waits for: {marked('gang', [str(busy.key)], lead='gangsched explain ')}.",
        )
    return None


def not_ready(scheduler: Scheduler, group: Group) -> tuple[str, str] | None:
    """(which groups that it names are not all there, the cure); None if it need not wait for any."""
    if group.starts_alone:
        return None
    siblings = scheduler.shared.siblings(group)
    there = {str(group.key): group, **siblings}
    waiting = [one for one in there.values() if not one.starts_alone]
    parts, first, is_there, own = [], "", False, set(group.start_together)
    for name in dict.fromkeys(name for one in waiting for name in one.start_together):
        other = there.get(name)
        shown = name if name in own else marked("gang", [name])  # its own user has written the name
        if other is None:
            parts.append(f"{shown} (does not exist, or does not list it)")
        elif other.problem:
            parts.append(f"{shown} (cannot be scheduled as it is written)")
        elif not (other.starts_alone or other.is_complete):
            parts.append(f"{shown} ({_short_of(other)})")
        else:
            continue
        first = first or shown
        is_there = is_there or (first == shown and name in there)
    if not parts:
        return None
    more = f", {len(parts) - _MAX_NAMED} more" if len(parts) > _MAX_NAMED else ""
    see = f"See what {first} waits for: gangsched explain {first}" if is_there else f"Create {first}"
    return (
        f"It starts together with groups that are not all there: {', '.join(parts[:_MAX_NAMED])}{more}.",
        next(apart(scheduler, group), "") or f"{see}; or take it out of {GROUPS_KEY}.",
    )


def _name(group: Group) -> str:
    return marked("gang", [str(group.key)])


def _short_of(group: Group) -> str:
    if group.definition is None:
        return "how many members it needs is not known"
    if roles := group.missing_roles():
        role, n, least = roles[0]
        return f"{n} of {least} members of role {role} exist"
    return f"{group.n_existing} of {group.min_count} members exist"


def apart(scheduler: Scheduler, group: Group) -> Iterator[str]:
    """The cure if a group that should start with it does not exist, or does not list it; the first one."""
    there = {str(group.key), *scheduler.shared.siblings(group)}
    missing = next((name for name in group.start_together if name not in there), "")
    if not missing:
        return
    namespace = group.key.namespace
    if missing.partition("/")[0] != namespace:  # whether it exists is for the readers of its namespace
        yield (
            f"Have {missing} made so that it lists {group.key} in its {GROUPS_KEY}, or correct {GROUPS_KEY}:"
            f" it does not exist, or does not list {group.key}."
        )
        return
    looked_at = islice(scheduler.shared.groups.values(), _MAX_LOOKED_AT)
    groups = [one for one in looked_at if one.is_gang and one.key.namespace == namespace]
    named = [one.key.dialect for one in groups if str(one.key) == missing]
    if len(named) > 1:
        yield (
            f"{missing} is the name of several gangs ({', '.join(sorted(named))}), and this one is stated as"
            f" {group.key.dialect}: rename all but the one that is meant."
        )
        return
    if named:
        yield f"{missing} exists, and does not list {group.key}: add it to the {GROUPS_KEY} of {missing}."
        return
    meant = nearest(missing, (str(one.key) for one in groups if one is not group))
    yield f"Create {missing}, or correct {GROUPS_KEY} so that each lists the others{meant or '.'}"

"""Why a gang's missing members do not come: what makes them, and whether it ever makes enough.

Lives here: the sentences. Not here: reading controllers' objects, which the core follows only in part; a
command reads the others with its user's rights. Called by core.explaining.explain, and too_few by
gangsched.web.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

import msgspec

from gangsched.core.groups.owners import MAX_MAKERS
from gangsched.core.scheduler import Scheduler
from gangsched.core.types.group import Group
from gangsched.core.why import named
from gangsched.model.owners import COUNTED_BY, Owner
from gangsched.model.pod_group import MIN_MEMBERS_KEY, OURS, TOTAL_MEMBERS_KEY

_MAX_LOOKED_AT = 20_000
NO_MORE = "No more will come as it is written."


class Owed(msgspec.Struct, frozen=True, rename="camel"):
    """needed: how many pods must exist, as stated_by says. makers: objects that make its pods, as KIND/NAME;
    none where these are unknown or many, or have been read. cure: the one that holds while they are not read.
    """

    needed: int
    stated_by: str
    makers: tuple[str, ...]
    cure: str


def owed(scheduler: Scheduler, group: Group) -> tuple[Owed, str]:
    """(what is owed, the cure if what makes its pods never makes enough, else "")."""
    is_least = group.n_existing < group.min_count
    n = group.min_count if is_least else group.start_count
    key = MIN_MEMBERS_KEY if is_least else TOTAL_MEMBERS_KEY
    stated_by = key if group.key.dialect == OURS else "the number of members"
    makers = scheduler.owners.makers(group)
    owners = [one for one in makers.values() if one is not None]
    names = tuple(f"{one.kind}/{one.name}" for one in makers)
    cure = _cure(group, stated_by)
    if len(names) > MAX_MAKERS:
        return Owed(n, stated_by, (), cure), ""
    if len(owners) < len(makers):
        return Owed(n, stated_by, names, cure), ""
    return Owed(n, stated_by, (), cure), too_few(n, stated_by, owners)


def too_few(needed: int, stated_by: str, owners: Iterable[Owner]) -> str:
    """The cure if all that makes its pods makes fewer at once than are needed, "" if not, or not known."""
    made: dict[str, int] = {}
    fields: dict[str, None] = {}
    for owner in owners:
        if owner.at_once is None or owner.named.kind not in COUNTED_BY:
            return ""
        made[f"{owner.named.kind} {owner.named.name}"] = owner.at_once
        fields[COUNTED_BY[owner.named.kind]] = None
    n = sum(made.values())
    if not made or n >= needed:
        return ""
    make = "makes" if len(made) == 1 else "make"
    return (
        f"{stated_by} is {needed} and {', '.join(made)} {make} {n} at once ({'; '.join(fields)}): set them"
        f" equal, or create what is to make the other {needed - n}."
    )


def _cure(group: Group, stated_by: str) -> str:
    """Names the controllers that made its members, and should make the rest."""
    owners: Counter[str] = Counter()
    for info in islice(group.members.values(), _MAX_LOOKED_AT):
        for owner in info.pod.metadata.owner_references or ():
            if owner.controller:
                owners[f"{owner.kind} {owner.name}"] += 1
    if not owners:
        number = f" ({stated_by})" if group.key.dialect == OURS else ""
        return (
            "No controller owns its pods: create the missing ones, or lower the number that is required"
            f"{number}."
        )
    kind, _, name = next(iter(owners)).partition(" ")
    return (
        f"{named(owners) if len(owners) > 1 else f'{kind} {name}'} creates its pods: see whether it could"
        f" (kubectl -n {group.key.namespace} describe {kind.lower()} {name}); a ResourceQuota or an admission"
        " webhook that refuses pods is named in its events."
    )

"""Deletion of any kind: preconditions, grace, finalizers, propagation.

Lives here: DELETE of one object, and checking its options. Not here: the length of a kind's grace period (its
strategy), the collection of dependents (the simulated controllers). Called by the registry; the options by
code that reads requests. Source: k8s.io/apiserver pkg/registry/rest/delete.go (BeforeDelete) and
pkg/registry/generic/registry/store.go (Delete), k8s.io/apimachinery pkg/apis/meta/v1/validation.

| the object | and | then |
|---|---|---|
| has a grace period | | deletionTimestamp = now + grace |
| is already waiting | a shorter grace is requested | the deletionTimestamp becomes earlier |
| is already waiting | else | nothing |
| is waiting only for its finalizers | | its propagation may still change |
| has finalizers, or is given one by propagation | no grace | deletionTimestamp = now, grace 0 |
| is of a kind with a grace | none is left to wait | marked with a grace of 0, then gone |
| | | gone |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

import msgspec

from gangsched.api_rules.status import FieldProblem, bad_request, invalid_value, not_supported
from gangsched.lab.apiserver.resources import Resource
from gangsched.lab.apiserver.status import conflict, invalid
from gangsched.lab.apiserver.storage.store import Item
from gangsched.lab.apiserver.strategy import Context, Object, Strategy, timestamp

PROPAGATIONS = ("Background", "Foreground", "Orphan")


class DeleteOptions(msgspec.Struct, frozen=True):
    """Options of a DELETE; `propagation` is Orphan, Background or Foreground."""

    grace_s: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None


def checked_options(given: Mapping[str, object]) -> tuple[DeleteOptions, bool]:
    """A request's metav1.DeleteOptions, and whether it is a dry run. Raises: StatusError (400, 422)."""
    try:
        options = msgspec.convert(given, type=_Given)
    except msgspec.ValidationError as error:
        raise bad_request(f"DeleteOptions cannot be read: {error}") from None
    problems = dry_run_problems(options.dry_run or ())
    policy = options.propagation
    if policy is not None and options.orphan is not None:
        problems.append(
            invalid_value(
                "propagationPolicy", policy, "orphanDependents and deletionPropagation cannot be both set"
            )
        )
    if policy is not None and policy not in PROPAGATIONS:
        problems.append(
            not_supported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        )
    if problems:
        raise invalid("DeleteOptions", "", problems, group="meta.k8s.io")
    if options.orphan is not None:
        policy = "Orphan" if options.orphan else "Background"
    # As the real server: a negative grace is one second.
    grace_s = 1 if options.grace_s is not None and options.grace_s < 0 else options.grace_s
    preconditions = options.preconditions or _Preconditions()
    return (
        DeleteOptions(grace_s, preconditions.uid, preconditions.resource_version, policy),
        bool(options.dry_run),
    )


def dry_run_problems(values: Sequence[str]) -> list[FieldProblem]:
    """Returns the problems of a request's `dryRun`."""
    if all(each == "All" for each in values):
        return []
    return [not_supported("dryRun", list(values), ["All"])]


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Given(msgspec.Struct, rename="camel"):
    grace_s: int | None = msgspec.field(default=None, name="gracePeriodSeconds")
    preconditions: _Preconditions | None = None
    orphan: bool | None = msgspec.field(default=None, name="orphanDependents")
    propagation: str | None = msgspec.field(default=None, name="propagationPolicy")
    dry_run: list[str] | None = None


class Deletion(NamedTuple):
    """The outcome: `left` is the object if it stays for now, `item` its last state in either case."""

    item: Item
    left: Item | None


class Objects(Protocol):
    """What a deletion needs of the registry: the kind's strategy, and its writes."""

    def strategy(self, resource: Resource) -> Strategy: ...

    def write(self, existing: Item, old: Object, new: Object, context: Context) -> Item: ...

    def replace(self, existing: Item, new: Object, context: Context) -> Item: ...

    def remove(self, existing: Item, context: Context) -> Item: ...


class Deletions:
    """Deletes in the registry's store."""

    def __init__(self, registry: Objects) -> None:
        self._registry = registry

    def delete(self, existing: Item, options: DeleteOptions, context: Context) -> Deletion:
        """Raises: StatusError."""
        self._check_preconditions(existing, options, context)
        strategy = self._registry.strategy(context.resource)
        old, new = existing.decode(), existing.decode()
        strategy.before_delete(new, context)
        meta = new["metadata"]
        if self._is_pending(new, options, context):
            return Deletion(existing, existing)
        meta["finalizers"] = strategy.finalizers(new, options.propagation)
        if not meta["finalizers"]:
            del meta["finalizers"]
        if meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
            _mark(meta, context.now, 0, strategy)
        if not meta.get("deletionTimestamp") or (
            not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds")
        ):
            if strategy.is_gone(new):
                if meta.get("deletionTimestamp") and new != old:
                    # Watchers see that it is being deleted before they see it go.
                    existing = self._registry.replace(existing, new, context)
                return Deletion(self._registry.remove(existing, context), None)
            _mark(meta, context.now, 0, strategy)
        item = self._registry.write(existing, old, new, context)
        return Deletion(item, item)

    def _check_preconditions(self, existing: Item, options: DeleteOptions, context: Context) -> None:
        resource = context.resource
        why = ""
        if options.uid is not None and options.uid != existing.uid:
            why = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({existing.uid}). The object might have been deleted and then recreated"
            )
        elif options.resource_version is not None and options.resource_version != str(existing.revision):
            why = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({existing.revision}). The object might have been modified"
            )
        if why:
            raise conflict(resource.kind, existing.name, why, group=resource.group)

    def _is_pending(self, new: Object, options: DeleteOptions, context: Context) -> bool:
        """Mark the object with its grace, in place; True if it is being deleted already and this changes
        nothing."""
        meta = new["metadata"]
        strategy = self._registry.strategy(context.resource)
        if not meta.get("deletionTimestamp"):
            grace_s = strategy.grace_s(new, options.grace_s, context)
            if grace_s is not None:
                # Even without a grace period: it shows watchers that the object was deleted regularly.
                _mark(meta, context.now, grace_s, strategy)
            return False
        waiting_s = meta.get("deletionGracePeriodSeconds")
        if not waiting_s:
            return False
        if options.grace_s is None or options.grace_s >= waiting_s:
            return True
        due = datetime.strptime(meta["deletionTimestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        meta["deletionTimestamp"] = timestamp(due - timedelta(seconds=waiting_s - options.grace_s))
        meta["deletionGracePeriodSeconds"] = options.grace_s
        return False


def _mark(meta: Object, now: datetime, grace_s: int, strategy: Strategy) -> None:
    """Set the deletionTimestamp, and the generation that goes with it."""
    if not meta.get("deletionTimestamp"):
        if meta.get("generation"):
            meta["generation"] += 1
        meta["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
    if strategy.says_grace:
        meta["deletionGracePeriodSeconds"] = grace_s

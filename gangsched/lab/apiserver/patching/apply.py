"""Server-side apply: a manager's configuration merged into an object, with an owner for every field.

Lives here: conflicts, removing fields that no manager applies any more, and taking over from client-side
apply. Not here: the walks (typed.py), the bookkeeping (managed.py), reading the body. Called by the HTTP face
for `application/apply-patch+yaml`. Source: sigs.k8s.io/structured-merge-diff merge/update.go,
k8s.io/apimachinery pkg/util/managedfields/internal.
"""

from __future__ import annotations

import json
from typing import Any

from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import Cause, StatusError, bad_request, quoted
from gangsched.lab.apiserver.patching.conformity import problems
from gangsched.lab.apiserver.patching.fieldsets import EMPTY, FieldSet, Path, order, shown, without_prefix
from gangsched.lab.apiserver.patching.managed import (
    APPLY,
    UPDATE,
    Entry,
    Manager,
    Managers,
    empty_object,
    filtered,
    read,
    reset_fields,
    stripped,
    updated,
    without_managed_fields,
    write,
)
from gangsched.lab.apiserver.patching.typed import (
    compare,
    field_set,
    merge,
    remove,
    with_named_fields,
)

Object = dict[str, Any]
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
BEFORE_FIRST_APPLY = "before-first-apply"
# kubectl's manager for `apply --server-side` unless told otherwise; it takes over from `kubectl apply`.
_KUBECTL = "kubectl"

Conflicts = dict[tuple[str, str, str, str], FieldSet]


def apply(
    live: Object | None,
    config: Object,
    schema: Schema,
    *,
    manager: str,
    force: bool,
    now: str,
    subresource: str = "",
    has_status: bool = True,
) -> Object:
    """Returns a new object with its managedFields; it equals `live` if nothing changed.

    `live` is None if the object is to be created. Both must have the request's apiVersion and kind. `now` is
    the time as metadata prints it. The result is not decoded yet: values are as in `config`. Raises:
    StatusError (400; 409 with a cause for each conflict; 500 where `config` does not conform to the schema,
    as the real server does).
    """
    if (config.get("metadata") or {}).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if wrong := list(problems(schema, config)):
        message = wrong[0] if len(wrong) == 1 else "\n  ".join(["errors:", *wrong])
        raise StatusError(500, "", f"failed to create typed patch object ({_named(config)}): {message}")
    reset = reset_fields(schema, subresource) if has_status else ()
    head = {key: config[key] for key in ("apiVersion", "kind")}
    before = without_managed_fields(live) if live is not None else head | empty_object(schema)
    managers = read(live or {})
    if not managers:
        first = Manager(BEFORE_FIRST_APPLY, UPDATE, config["apiVersion"], subresource)
        managers = updated(head | empty_object(schema), before, schema, managers, first, now, reset)
    applying = _Applying(before, config, schema, reset, managers)
    who = Manager(manager, APPLY, config["apiVersion"], subresource)
    try:
        after, managers = applying.by(who, now, force=force)
    except _Conflicting as conflicting:
        left = conflicting.conflicts
        if manager == _KUBECTL:
            allowed = _last_applied(before, schema, config["apiVersion"])
            left = {identity: fields - allowed for identity, fields in left.items() if fields - allowed}
        if left:
            raise _conflict(left, applying.managers) from None
        after, managers = applying.by(who, now, force=True)
    if manager == _KUBECTL and LAST_APPLIED in ((after.get("metadata") or {}).get("annotations") or {}):
        after = _with_last_applied(after, config)
    # The metadata of both the live object and the configuration stays unchanged.
    after = after | {"metadata": dict(after.get("metadata") or {})}
    write(after, managers)
    return after


def _named(config: Object) -> str:
    """Names the object as in the server's own errors; the namespace is the configuration's."""
    meta = config.get("metadata") or {}
    api_version = config["apiVersion"] if "/" in config["apiVersion"] else f"/{config['apiVersion']}"
    return f"{meta.get('namespace', '')}/{meta.get('name', '')}; {api_version}, Kind={config['kind']}"


class _Conflicting(Exception):
    def __init__(self, conflicts: Conflicts) -> None:
        self.conflicts = conflicts
        super().__init__()


class _Applying:
    """One configuration, which may be tried first without force and then with it."""

    def __init__(
        self, before: Object, config: Object, schema: Schema, reset: tuple[Path, ...], managers: Managers
    ) -> None:
        self.managers = managers
        self._before = before
        self._config = config
        self._schema = schema
        self._reset = reset

    def by(self, who: Manager, now: str, *, force: bool) -> tuple[Object, Managers]:
        """Returns the object and its managers. Raises: _Conflicting."""
        managers = dict(self.managers)
        merged = merge(self._schema, self._before, self._config)
        last = managers.get(who.identity)
        fields = without_prefix(field_set(self._schema, self._config), self._reset)
        # The time of its last apply stays if this one changes nothing.
        managers[who.identity] = Entry(who, fields, last.time if last is not None else None)
        after = self._pruned(merged, managers, last.fields if last is not None else EMPTY)
        managers = self._taken(after, managers, who, force=force)
        if who.identity in managers:
            entry = managers[who.identity]
            left = stripped(entry.fields)
            if left:
                changed = not _same(self._before, after)
                managers[who.identity] = entry._replace(fields=left, time=now if changed else entry.time)
            else:
                del managers[who.identity]
        return after, managers

    def _taken(self, after: Object, managers: Managers, who: Manager, *, force: bool) -> Managers:
        """Takes the changed fields from their other owners; without force that is a conflict."""
        change = filtered(compare(self._schema, self._before, after), self._reset)
        taken = change.added | change.modified
        conflicts = {
            identity: entry.fields & taken
            for identity, entry in managers.items()
            if identity != who.identity and entry.fields & taken
        }
        if conflicts and not force:
            raise _Conflicting(conflicts)
        found = {}
        for identity, entry in managers.items():
            fields = entry.fields
            if identity != who.identity:
                fields = fields - taken - change.removed
            if fields:
                found[identity] = entry._replace(fields=fields)
        return found

    def _pruned(self, merged: Object, managers: Managers, last: FieldSet) -> Object:
        """Removes the fields that were applied last time, are not applied now, and have no other owner."""
        if not last:
            return merged
        schema = self._schema
        last = with_named_fields(schema, last)
        pruned = remove(schema, merged, last)
        owned = frozenset[Path]().union(*(entry.fields for entry in managers.values()))
        everything = with_named_fields(schema, field_set(schema, merged))
        kept = with_named_fields(schema, field_set(schema, pruned)) | with_named_fields(schema, owned)
        pruned = remove(schema, merged, everything - kept)
        left = with_named_fields(schema, field_set(schema, pruned))
        found: Object = remove(schema, merged, (everything - left) & last)
        return found


def _same(before: Object, after: Object) -> bool:
    return before == after


def _last_applied(before: Object, schema: Schema, api_version: str) -> FieldSet:
    """The fields that client-side apply set and that have not changed since."""
    annotations = (before.get("metadata") or {}).get("annotations") or {}
    try:
        applied = json.loads(annotations.get(LAST_APPLIED) or "")
    except ValueError:
        return EMPTY
    if not isinstance(applied, dict) or applied.get("apiVersion") != api_version:
        return EMPTY
    change = compare(schema, applied, before)
    return field_set(schema, applied) - change.modified - change.added - change.removed


def _with_last_applied(after: Object, config: Object) -> Object:
    """Updates the annotation of client-side apply, which may be used again later."""
    meta = config.get("metadata") or {}
    annotations = {
        key: value for key, value in (meta.get("annotations") or {}).items() if key != LAST_APPLIED
    }
    applied = config | {"metadata": meta | {"annotations": annotations}}
    if not annotations:
        applied["metadata"].pop("annotations", None)
    text = json.dumps(applied, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    meta = after["metadata"]
    return after | {"metadata": meta | {"annotations": meta["annotations"] | {LAST_APPLIED: text}}}


def _conflict(conflicts: Conflicts, managers: Managers) -> StatusError:
    named: dict[str, list[Path]] = {}
    causes = []
    for identity, fields in conflicts.items():
        name = _printed(managers[identity].manager)
        paths = sorted(fields, key=lambda path: (len(path), order(path)))
        named.setdefault(name, []).extend(paths)
        causes += [Cause("FieldManagerConflict", f"conflict with {name}", shown(path)) for path in paths]
    if len(causes) == 1:
        message = f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    else:
        lines = []
        for name in sorted(named):
            lines += [f"conflicts with {name}:", *(f"- {shown(path)}" for path in named[name])]
        message = f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", message, causes=causes)


def _printed(manager: Manager) -> str:
    shown = quoted(manager.name)
    if manager.subresource:
        shown += f" with subresource {quoted(manager.subresource)}"
    return f"{shown} using {manager.api_version}" if manager.operation == UPDATE else shown

"""Applies a PATCH request's body to an object, in all formats but server-side apply.

Lives here: the three patch formats by content type, and decoding their result. Called by the HTTP face. Not
here: the formats (json_patch.py, strategic.py), server-side apply (apply.py), what the registry does with the
result. Source: k8s.io/apiserver pkg/endpoints/handlers/patch.go.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec

from gangsched.api_rules.schema.decode import DecodeFailed, decode
from gangsched.api_rules.schema.node import Schema
from gangsched.api_rules.status import StatusError, quoted
from gangsched.lab.apiserver.patching import refusal
from gangsched.lab.apiserver.patching.json_patch import json_patch, merge_patch, unknown_operation_fields
from gangsched.lab.apiserver.patching.strategic import merge_map
from gangsched.lab.apiserver.schema.fields import complain, duplicates

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
_MAP = "map[string]interface {}"

Object = dict[str, Any]


class Patch:
    """A request's patch, parsed once, so that it can be applied again if the object changes meanwhile.

    `content_type` is one of the three above. `directive` is fieldValidation's value ("" means Warn); `warn`
    takes its warnings. Raises: StatusError 400 for a body that is not JSON.
    """

    def __init__(
        self,
        body: bytes,
        content_type: str,
        *,
        directive: str = "",
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._content_type = content_type
        self._directive = directive
        self._warn = warn
        try:
            self._patch: Any = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise refusal.not_json() from None
        self._problems: list[str] = []
        if content_type == JSON_PATCH:
            if isinstance(self._patch, list) and all(isinstance(each, dict) for each in self._patch):
                self._problems = unknown_operation_fields(self._patch)
        elif not isinstance(self._patch, dict):
            prefix = "" if content_type == STRATEGIC_MERGE_PATCH else "error decoding patch: "
            raise refusal.wrong_json_type(self._patch, _MAP, prefix=prefix)
        else:
            self._problems = [f"duplicate field {quoted(path)}" for path in duplicates(body)]

    def applied(self, doc: Object, schema: Schema) -> Object:
        """Returns a new object, decoded as the server decodes a body; `doc` stays unchanged.

        Its kind and apiVersion must still be those of `doc`. Raises: StatusError (400, 413, 422, 500).
        """
        patch, doc = copy.deepcopy(self._patch), dict(doc)
        if self._content_type == STRATEGIC_MERGE_PATCH:
            patched = merge_map(copy.deepcopy(doc), patch, schema)
            # A typed object ignores a patch's kind.
            patched = {key: doc.get(key) for key in ("kind", "apiVersion")} | patched
            patched["kind"], patched["apiVersion"] = doc.get("kind"), doc.get("apiVersion")
        elif self._content_type == MERGE_PATCH:
            patched = merge_patch(doc, patch)
        else:
            patched = json_patch(doc, patch)
        return self._taken_in(patched, doc, schema, patch)

    def _taken_in(self, patched: Any, doc: Object, schema: Schema, left: Any) -> Object:
        """Decodes the result. `left`: the patch as changed by merging, which the real server prints."""

        def refused(why: str) -> StatusError:
            if self._content_type == STRATEGIC_MERGE_PATCH:
                return refusal.patch_itself(left, why)
            return refusal.patched_object(patched, why, by_name=schema.custom)

        if not isinstance(patched, dict):
            raise refused("json: cannot unmarshal array into Go value of type map[string]interface {}")
        for key in ("kind", "apiVersion"):
            patched.setdefault(key, doc.get(key))
        if (patched["kind"], patched["apiVersion"]) != (doc.get("kind"), doc.get("apiVersion")):
            version = str(patched["apiVersion"])
            raise refused(
                f"no kind {quoted(str(patched['kind']))} is registered for version {quoted(version)} "
                'in scheme "pkg/runtime/scheme.go:111"'
            )
        try:
            found = decode(schema, patched)
        except DecodeFailed as failed:
            strategic = self._content_type == STRATEGIC_MERGE_PATCH
            raise refused(refusal.conversion(failed) if strategic else str(failed)) from None
        problems = self._problems + [f"unknown field {quoted(path)}" for path in found.unknown]
        complain(problems, self._directive, self._warn, refused)
        return found.obj

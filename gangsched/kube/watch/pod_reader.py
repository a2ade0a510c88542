"""Decodes pods from JSON in batches: parts that neighbours share are decoded once and stored once.

A gang's pods arrive one after the other, in a list and in the echo of its binds, and differ in little more
than their names. A spec is two thirds of a pod's memory, and touching memory for the first time costs more
than the decoding. Not here: pods that do not parse, which kube.watch.decode examines. Called by
kube.watch.watch_state through kube.watch.decode's Kind.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gangsched.kube.watch.envelopes import Page, PageOf, WatchEvent, WatchEventOf
from gangsched.kube.watch.newer import NewerFields
from gangsched.kube.watch.resized import MARK, Running, as_it_runs, is_behind
from gangsched.model.devices.unwell import only_unwell
from gangsched.model.objects import ObjectMeta, Pod, PodSpec, PodStatus


class _Outline(msgspec.Struct, gc=False):
    """A pod whose spec is not decoded yet."""

    metadata: ObjectMeta
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = msgspec.field(default_factory=PodStatus)


_decode_lines = msgspec.json.Decoder(WatchEventOf[_Outline]).decode_lines
_decode_page = msgspec.json.Decoder(PageOf[_Outline]).decode
_decode_outline = msgspec.json.Decoder(_Outline).decode
_decode_line = msgspec.json.Decoder(WatchEventOf[Pod]).decode
_decode_object = msgspec.json.Decoder(Pod).decode
_running_lines = msgspec.json.Decoder(WatchEventOf[Running]).decode_lines
_running_page = msgspec.json.Decoder(PageOf[Running]).decode
_running_line = msgspec.json.Decoder(WatchEventOf[Running]).decode
_running_object = msgspec.json.Decoder(Running).decode
_decode_spec = msgspec.json.Decoder(PodSpec).decode
# Fields that are often equal even if specs differ (in the name of a node, a claim or a group).
_OFTEN_EQUAL = ("containers", "tolerations", "affinity", "init_containers", "topology_spread_constraints")
# The echoes of a few gangs arrive mixed, so this many specs are cached, a kilobyte each.
_MAX_SPECS = 64


class PodReader:
    """Caches recently decoded parts; objects share them, so they must not be changed."""

    __slots__ = ("_meta", "_raw", "_spec", "_specs", "_status", "newer")

    def __init__(self) -> None:
        self.newer: NewerFields | None = None
        """Set before the first list, where the API server knows fields that this version does not."""
        self._meta = ObjectMeta()
        self._raw = msgspec.Raw(b"{}")
        self._spec = PodSpec()
        self._specs: dict[bytes, PodSpec] = {}
        self._status = PodStatus()

    def lines(self, data: bytes) -> list[WatchEvent]:
        """Lines of a watch. Raises: msgspec.MsgspecError, when one of them is not a complete pod."""
        lines: list[Any] = _decode_lines(data)
        behind = False
        for line in lines:
            pod = line.object = self._pod(line.object)
            if pod.status.observed_generation and is_behind(pod):
                behind = True
        if behind or MARK in data:
            for line, running in zip(lines, _running_lines(data), strict=True):
                line.object = as_it_runs(line.object, running.object)
        return lines

    def page(self, body: bytes) -> Page:
        """A page of a list. Raises: msgspec.MsgspecError, if it is no page or a pod in it does not parse."""
        page: Page = _decode_page(body)
        page.items = [self._pod(outline) for outline in page.items]
        if MARK in body or any(map(is_behind, page.items)):
            page.items = [
                as_it_runs(pod, running)
                for pod, running in zip(page.items, _running_page(body).items, strict=True)
            ]
        return page

    def line(self, data: bytes) -> WatchEvent:
        """A line of a watch by itself. Raises: msgspec.MsgspecError, if it is no pod."""
        line: WatchEvent = _decode_line(data)
        if self.newer is not None:
            outline: Any = _decode_lines(data)[0].object
            line.object.spec.not_understood = self.newer.problem(outline.spec)
        if MARK in data or is_behind(line.object):
            line.object = as_it_runs(line.object, _running_line(data).object)
        return line

    def object(self, data: bytes) -> Pod:
        """A pod by itself. Raises: msgspec.MsgspecError, if it is none."""
        pod = _decode_object(data)
        if self.newer is not None:
            pod.spec.not_understood = self.newer.problem(_decode_outline(data).spec)
        return as_it_runs(pod, _running_object(data)) if MARK in data or is_behind(pod) else pod

    def _pod(self, outline: _Outline) -> Pod:
        meta, before, status = outline.metadata, self._meta, outline.status
        self._meta = meta
        if meta.namespace == before.namespace:
            meta.namespace = before.namespace
        if meta.labels == before.labels:
            meta.labels = before.labels
        if status.phase and status.phase != "Failed":  # only of failed pods is asked whether one has run
            if status.container_statuses is not None:
                status.container_statuses = only_unwell(status.container_statuses)
            if status.init_container_statuses is not None:
                status.init_container_statuses = only_unwell(status.init_container_statuses)
        if status == self._status:
            status = self._status
        else:
            self._status = status
        if outline.spec != self._raw:
            text = bytes(outline.spec)  # a copy without the page around it
            self._spec = self._specs.get(text) or self._read(text)
            self._raw = msgspec.Raw(text)
        return Pod(meta, self._spec, status)

    def _read(self, text: bytes) -> PodSpec:
        spec, before = _decode_spec(text), self._spec
        if self.newer is not None:
            spec.not_understood = self.newer.problem(text)
        if spec == before:
            spec = before
        else:
            for name in _OFTEN_EQUAL:
                known = getattr(before, name)
                if known is not None and known == getattr(spec, name):
                    setattr(spec, name, known)
        if len(self._specs) >= _MAX_SPECS:
            self._specs.clear()
        self._specs[text] = spec
        return spec

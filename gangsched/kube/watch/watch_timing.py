"""WatchTiming: how long a reflector waits, and for what (kube.watch.reflector)."""

from __future__ import annotations

import msgspec


class WatchTiming(msgspec.Struct, frozen=True, gc=False):
    """The reflector's timeouts; the defaults are for a real cluster.

    silence_s + probe_timeout_s + grace_s bounds how long a dead watch with pending events goes unnoticed:
    under 30 s. bookmark_s covers dead watches without events: kube-apiserver sends a bookmark once a minute.
    """

    # 0: the kind's own.
    page_limit: int = 0
    watch_s: tuple[float, float] = (300.0, 600.0)
    silence_s: float = 15.0
    probe_s: float = 1.0
    probe_timeout_s: float = 8.0
    grace_s: float = 2.0
    bookmark_s: float = 90.0
    open_timeout_s: float = 10.0
    missing_s: float = 10.0
    backoff_s: tuple[float, float] = (0.5, 30.0)
    # While a kind has never been read: the longest backoff, and how long to wait for an optional kind.
    unread_backoff_s: float = 5.0
    unread_s: float = 15.0
    # A watch that lived this long, or that sent something, is resumed without waiting.
    worked_s: float = 10.0

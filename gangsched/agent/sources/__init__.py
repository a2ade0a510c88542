"""Sources of devices. A source is read repeatedly, in its own thread, and returns all its devices.

One file a source: `files` (JSON), `nvml` (NVIDIA's library), `registers` (what HAMi's and Volcano's own
agents write on the Node; read with the Node, so it needs no thread), `pod_resources` (what other device
plugins have registered with kubelet).
"""

from __future__ import annotations

from typing import Protocol

from gangsched.agent.report.reports import Report, Silence


class Source(Protocol):
    """name: for people, unique among sources. period_s: pause between two readings.

    silence: what it means if it does not answer for long.
    """

    @property
    def name(self) -> str: ...

    @property
    def period_s(self) -> float: ...

    @property
    def silence(self) -> Silence: ...

    def read(self) -> Report:
        """May block; called from one thread, never twice at a time. Raises: nothing."""
        ...

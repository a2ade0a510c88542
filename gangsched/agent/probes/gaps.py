"""The terms of a node's load without data, and what would provide it. Pure. A term without data is 0 in the
published sums, as if it were unused: readers of the node's score must know that. Called by `running`, which
puts this into the log and an Event.
"""

from __future__ import annotations

from gangsched.agent.probes.probe_settings import LoadDocument
from gangsched.model.stated.evenness import terms_without_data
from gangsched.model.stated.load import NodeLoad, Term


def gaps(load: NodeLoad, settings: LoadDocument, *, nics: str, probe_failed: str) -> list[str]:
    """Returns a sentence per term. nics: the counted NICs' names; probe_failed: why diskProbe failed."""
    return [
        f"{term}: {_cure(term, settings, nics=nics, probe_failed=probe_failed)}"
        for term in terms_without_data(load.performance)
    ]


def _cure(term: Term, settings: LoadDocument, *, nics: str, probe_failed: str) -> str:
    if term == "cpu":
        return "the system does not report its clock rate: set load.cpuMHz"
    if term == "memory":
        return "the system does not report how much there is"
    if term == "network":
        return f"the speed of {nics} is not known: give bandwidth.totalMBps, or other nics"
    if probe_failed:
        return f"{probe_failed}: give load.diskMBps, or another load.diskProbe"
    if settings.disk_mbps or settings.disk_probe:
        return "the system counts no physical disk"
    return "its throughput is not known: set load.diskMBps, or load.diskProbe to have it measured"

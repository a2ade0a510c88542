"""Counts of a journal, for metrics. Not here: counting (writing, recorder)."""

from __future__ import annotations

from typing import NamedTuple


class Counted(NamedTuple):
    """Records written, their bytes on disk, missing records, gaps, tries to go on after a gap, and whether
    records are written now.
    """

    n_records: int
    n_bytes: int
    n_dropped: int
    n_gaps: int
    n_tries: int
    goes_on: bool

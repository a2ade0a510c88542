"""What a journal counts, for metrics. Not here: counting (writing, recorder)."""

from __future__ import annotations

from typing import NamedTuple


class Counted(NamedTuple):
    """Records written, their bytes on disk, records that are missing, gaps that they make, tries to go on
    after one, and whether everything is written now."""

    n_records: int
    n_bytes: int
    n_dropped: int
    n_gaps: int
    n_tries: int
    goes_on: bool

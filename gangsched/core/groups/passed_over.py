"""PassedOver: reports attempts to core.queueing, if the configuration has `queueing`. Decides nothing; that
is core.kept.claiming. Called by core.groups.attempts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from gangsched.core.framework.plan import FitError
from gangsched.core.framework.profile import Demand
from gangsched.core.kept.claim_reports import latest_end
from gangsched.core.queueing.expected_ends import EndsTold
from gangsched.core.state.reporter import Reporter
from gangsched.core.state.state import SharedState
from gangsched.core.types.group import Group

# How many unreadable statements one event names.
_MAX_TOLD = 3


class PassedOver:
    """Reports attempts to core.queueing, and unreadable statements to users."""

    def __init__(self, shared: SharedState, reporter: Reporter) -> None:
        self._shared = shared
        self._reporter = reporter
        self._ends = EndsTold()

    def begin(self, unit: Sequence[Group]) -> None:
        """Reports unreadable walltimes when the unit's turn begins."""
        walltimes = self._shared.walltimes
        if walltimes is None:
            return
        for group in unit:
            if problems := walltimes.problems(group):
                message = f"its walltime counts as not stated: {'; '.join(problems[:_MAX_TOLD])}"
                self._reporter.event(group, "Warning", "WalltimeUnread", "Scheduling", message)

    def refused(self, demands: Sequence[Demand], answer: FitError) -> None:
        """Records that the unit does not fit now."""
        shared = self._shared
        if shared.queue.bypasses is not None:
            shared.queue.bypasses.refused(demands, answer.code, shared.cache.view, shared.now_s)

    def told_ends(self, answer: FitError) -> Iterator[str]:
        """Sentences for the condition: which groups run where room is short, and until when."""
        shared = self._shared
        queueing = shared.settings.queueing
        if queueing is None or not queueing.writes_estimates:
            return
        if shared.walltimes is not None and answer.shortage is not None:
            revision = (shared.n_inputs, shared.cache.view.journal_end)
            latest = partial(latest_end, shared)
            yield from self._ends.told(answer.shortage, shared.walltimes, revision, latest)

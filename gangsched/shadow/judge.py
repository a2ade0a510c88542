"""A profile's verdict on every node for one pod, without deciding anything.

Lives here: one pass through Filter and Score. Not here: placing (core.cycle.cycle). Called by shadow mode, to
explain why another scheduler's node was not ours; it uses a separate profile, so that the real one's caches
between cycles, and its observers, are not affected.
"""

from __future__ import annotations

import msgspec
import numpy as np

from gangsched.core.cache.trial import ClusterView
from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import BoolArray, CycleState, FloatArray
from gangsched.core.framework.profile import Profile
from gangsched.core.groups.attempts.extenders import EXTENDER_SCALE
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.events import ExtendersAnswered


class Judgement(msgspec.Struct, frozen=True):
    """By row, at that time: bool[n_rows], float64[n_rows] (0 if nothing scores or the node is not feasible).

    refusals: (reason, rows it applies to).
    """

    feasible: BoolArray
    scores: FloatArray
    refusals: tuple[tuple[str, BoolArray], ...]

    def why_not(self, row: int, chosen: int) -> str:
        """Returns why `row` is not `chosen`; "" if both are equally good."""
        if row >= len(self.feasible):
            return "the node came later"
        if not self.feasible[row]:
            reasons = [reason for reason, rows in self.refusals if rows[row]]
            return ", ".join(reasons) or "it does not take the pod"
        own, other = float(self.scores[chosen]), float(self.scores[row])
        return "" if own == other else f"it scores {other:g}, ours {own:g}"


def with_extenders(judged: Judgement, answer: ExtendersAnswered, view: RowQueries) -> Judgement:
    """Returns the same with the extenders' answers added."""
    feasible, scores = judged.feasible.copy(), judged.scores.copy()
    refusals = list(judged.refusals)
    for node, why in answer.failed.items():
        row = view.row_of(node)
        if row is not None and row < len(feasible):
            feasible[row] = False
            refusals.append((why or "an extender refused it", np.arange(len(feasible)) == row))
    for node, score in answer.scores.items():
        row = view.row_of(node)
        if row is not None and row < len(feasible):
            scores[row] += score * EXTENDER_SCALE
    return Judgement(feasible, scores, tuple(refusals))


def judge(profile: Profile, template: PodTemplate, view: ClusterView) -> Judgement:
    """Judges every node for a pod of the template. Raises: PluginError."""
    state = CycleState()
    status = profile.run_pre_filter(state, template, view)
    if not status.is_success:
        nowhere = np.zeros(view.n_rows, dtype=np.bool_)
        return Judgement(nowhere, np.zeros(view.n_rows), ((status.reason, ~nowhere),))
    feasible: BoolArray = profile.capacity(state, template, view) > 0
    refusals = tuple((str(reason), rows) for _, reason, rows in profile.reasons(state, template, view))
    scores: FloatArray = np.zeros(view.n_rows, dtype=np.float64)
    rows = np.flatnonzero(feasible)
    if len(rows):
        own = profile.score(state, template, view, rows)
        if own is not None:
            scores[rows] = own
    return Judgement(feasible, scores, refusals)

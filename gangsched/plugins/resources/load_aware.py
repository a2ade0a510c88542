"""LoadAware: prefers nodes with more spare capacity, by measurement.

Lives here: the score. Not here: the sums (model.stated.evenness), the books (plugins.resources.load_book),
and the measuring, by the node agent or by metrics-server, which the app polls if the args ask for it. Source:
the published method of scheduling by real-time load and node performance, score = (1 - L/S) * 10.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta

from gangsched.core.cache.view.rows import RowQueries
from gangsched.core.framework.interface import MAX_SCORE, BoolArray, CycleState, FloatArray, IntArray
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.model.stated.evenness import Mode, load_and_strength, paper_score
from gangsched.model.stated.load import TERMS, Term
from gangsched.plugins.resources.load_book import LoadBook

_MAX_SECONDS = 86_400.0
_MAX_MHZ = 1e6
# Score of a node that was never measured, when the policy does not penalise it: neither good nor bad.
_UNKNOWN = MAX_SCORE / 2


class Args(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What counts as load, and for how long. Raises: ValueError.

    mode: `paper` has the units of model.stated.evenness.PAPER_UNITS; `literal` sets the sum of utilisations
    against the sum of `paper`, as printed. assumed_mhz: metrics-server does not report the clock rate.
    """

    mode: Annotated[
        Mode,
        Meta(
            description="`normalized` scales each term to the cluster's largest; `paper` adds them up in"
            " their units; `literal` adds utilisations up, as the paper prints L."
        ),
    ] = "normalized"
    terms: Annotated[tuple[Term, ...], Meta(description="Which terms count.")] = TERMS
    stale_policy: Annotated[
        Literal["full", "ignore"],
        Meta(
            description="A node not heard of for `staleSeconds` counts as fully loaded, or by its last"
            " report."
        ),
    ] = "full"
    stale_seconds: Annotated[float, Meta(description="When a report is too old.")] = 90.0
    predict: Annotated[
        bool,
        Meta(description="Count what just-placed pods ask for until it shows in a report."),
    ] = True
    settle_seconds: Annotated[float, Meta(description="For how long at most.")] = 60.0
    metrics_server_seconds: Annotated[
        float,
        Meta(description="How often metrics-server is asked about nodes without an agent; 0: never."),
    ] = 0.0
    assumed_mhz: Annotated[
        float,
        Meta(description="The clock rate of those nodes."),
    ] = msgspec.field(default=2000.0, name="assumedMHz")

    def __post_init__(self) -> None:
        if not self.terms or len(set(self.terms)) != len(self.terms):
            raise ValueError(f"terms: each of {', '.join(TERMS)} at most once, and at least one of them")
        for name, value, most in (
            ("staleSeconds", self.stale_seconds, _MAX_SECONDS),
            ("settleSeconds", self.settle_seconds, _MAX_SECONDS),
            ("assumedMHz", self.assumed_mhz, _MAX_MHZ),
        ):
            if not (math.isfinite(value) and 0 < value <= most):
                raise ValueError(f"{name} {value:g} is not greater than 0 and at most {most:g}")
        period_s = self.metrics_server_seconds
        if period_s and not (math.isfinite(period_s) and 1 <= period_s <= _MAX_SECONDS):
            raise ValueError(f"metricsServerSeconds {period_s:g} is neither 0 nor within 1..{_MAX_SECONDS:g}")


class LoadAware:
    """Score by measured load against performance."""

    name = "LoadAware"
    score_by_row = True
    ignores_placed: ClassVar[bool] = True
    """Requests of a gang's members count as load from their reservation on, not while they are placed."""

    def __init__(self, args: Args | None = None) -> None:
        self._args = args or Args()
        self._counted = np.array([[name in self._args.terms] for name in TERMS])
        self._scores: FloatArray = np.zeros(0)
        self._stale: BoolArray = np.zeros(0, dtype=np.bool_)
        self.metrics_server_s = self._args.metrics_server_seconds
        self.usage_tracker = LoadBook(
            stale_s=self._args.stale_seconds if self._args.stale_policy == "full" else math.inf,
            settle_s=self._args.settle_seconds if self._args.predict else None,
            assumed_mhz=self._args.assumed_mhz,
        )

    def score(
        self, state: CycleState, template: PodTemplate, view: RowQueries, rows: IntArray
    ) -> FloatArray | None:
        """Ten times the published score, whose maximum is 10; None while no node reports anything."""
        book = self.usage_tracker
        if not book.n_known:
            return None
        changed = book.take_changed(view.n_rows)
        if len(changed):
            self._note_stale(changed, max(view.n_rows, int(changed[-1]) + 1))
        if self._stale[rows].any():
            self._update_scores(np.flatnonzero(self._stale))
        return self._scores[rows]

    def _note_stale(self, rows: IntArray, n_rows: int) -> None:
        if n_rows > len(self._scores):
            more = n_rows - len(self._scores)
            self._scores = np.concatenate([self._scores, np.zeros(more)])
            self._stale = np.concatenate([self._stale, np.zeros(more, dtype=np.bool_)])
        self._stale[rows] = True

    def _update_scores(self, rows: IntArray) -> None:
        """Rescores these rows. Scores do not depend on the pod: cached until a node's load or the cluster
        changes."""
        book = self.usage_tracker
        self._stale[rows] = False
        terms, utilisation = book.terms(rows) * self._counted, book.expected_utilisation(rows)
        sums = load_and_strength(utilisation, terms, mode=self._args.mode, largest=book.largest)
        scores = paper_score(*sums) * (MAX_SCORE / 10)
        unknown = 0.0 if self._args.stale_policy == "full" else _UNKNOWN
        scores = np.where(book.unknown(rows), unknown, scores)
        self._scores[rows] = np.where(book.stale(rows), 0.0, scores)

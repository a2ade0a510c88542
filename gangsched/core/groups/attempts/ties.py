"""Ties: which of several equally good nodes a lone pod gets, as the settings say. Called by the cycle."""

from __future__ import annotations

from collections.abc import Callable

from gangsched.core.state.state import SharedState


class Ties:
    """At random by `pick`, as in kube-scheduler, or in turn.

    In turn: a counter, increased at every tie of any profile, modulo the number of equally good nodes.
    Source: Kubernetes 1.11 `pkg/scheduler/core/generic_scheduler.go`, selectHost.
    """

    def __init__(self, shared: SharedState, pick: Callable[[int], int]) -> None:
        self._shared = shared
        self.pick = pick
        self._n_ties = 0

    def __call__(self, n: int) -> int:
        if self._shared.settings.ties == "random":
            return self.pick(n)
        at = self._n_ties % n
        self._n_ties += 1
        return at

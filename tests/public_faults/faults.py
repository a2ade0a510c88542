"""The faults of devices given out by claims that are told in public, and the tests that show each.

A test is one scenario with its judge. `shows` notes which fault it shows, and the mistakes that would make it
ours: test_put_back makes each of them, and the judge has to find it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

Mistake = Callable[[pytest.MonkeyPatch], None]
Test = Callable[[], None]

ISSUES = {
    "I1": "github.com/kubernetes/kubernetes/pull/136269",
    "I2": "github.com/kubernetes/kubernetes/issues/137617",
    "I3": "github.com/kubernetes/kubernetes/issues/140087",
    "I4": "github.com/kubernetes/kubernetes/issues/140053",
    "I5": "github.com/kubernetes/kubernetes/pull/140269",
    "I6": "github.com/kubernetes/kubernetes/issues/138765",
    "I7": "github.com/kubernetes/kubernetes/issues/140436",
    "I8": "github.com/kubernetes/kubernetes/pull/138885",
    "I9": "github.com/kubernetes/kubernetes/issues/133705",
    "I10": "github.com/kubernetes/kubernetes/issues/131730",
    "I11": "github.com/kubernetes/kubernetes/issues/135835",
    "I12": "github.com/kubernetes/enhancements/issues/5983",
    "I13": "github.com/kubernetes/kubernetes/issues/128980",
    "I14": "github.com/kubernetes/kubernetes/issues/141471",
    "I15": "github.com/kubernetes/kubernetes/issues/141912",
    "I16": "github.com/kai-scheduler/KAI-Scheduler/issues/1217",
    "I17": "github.com/kai-scheduler/KAI-Scheduler/issues/2100",
    "I18": "github.com/kai-scheduler/KAI-Scheduler/pull/1177",
    "I19": "github.com/volcano-sh/volcano/issues/5119",
    "I20": "github.com/kubernetes-sigs/dra-driver-nvidia-gpu/issues/725",
    "I21": "github.com/ai-dynamo/grove/issues/209",
    "I22": "github.com/kubernetes-sigs/kueue/issues/14573",
    "I23": "github.com/cilium/cilium/issues/48923",
}
"""By number, where it is told."""


class Shown(NamedTuple):
    """A test that shows a fault, and a mistake that it finds."""

    number: str
    test: Test
    mistake: Mistake


SHOWN: list[Shown] = []


def shows(number: str, *mistakes: Mistake) -> Callable[[Test], Test]:
    """Notes that the test shows the fault, and finds each of the mistakes."""

    def noted(test: Test) -> Test:
        SHOWN.extend(Shown(number, test, one) for one in mistakes)
        return test

    return noted

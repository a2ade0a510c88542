"""Selectors answer as cel-go does in Kubernetes' environment: by chance, and in cases of our own.

Needs the oracle, which `make controlplane` builds. More of the same, with another seed:
`python -m tests.model.cel.oracle --expressions 50000 --seed 7`.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from tests.model.cel.oracle import ask, compared, near_questions, random_questions
from tests.model.cel.questions import ERROR, NO, YES, Question, answer, steps
from tests.model.cel.test_language import CASES, DEVICE

pytestmark = pytest.mark.real
SEED = 20261130


@pytest.fixture(autouse=True)
def oracle() -> None:
    """Skips the test where there is no oracle, or fails it where everything must run."""
    try:
        assets.find(module=assets.CEL)
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no cel-go to compare with: {error}")


def differing(questions: list[Question]) -> tuple[list[str], Counter[str]]:
    """What is answered otherwise, and how many answers of each kind there are."""
    different, counts = [], Counter[str]()
    for question, answered in compared(questions):
        counts[answered.answer] += 1
        if (ours := answer(question)) != answered.answer:
            different.append(f"{question}: {ours}, cel-go {answered.answer} {answered.reason}")
    return different, counts


def test_expressions_by_chance_are_answered_alike() -> None:
    print(f"seed {SEED}")
    different, counts = differing(random_questions(SEED, 5500))
    assert different == []
    assert counts.total() > 5000
    assert min(counts[YES], counts[NO], counts[ERROR]) > 1000


def test_texts_that_nearly_parse_are_told_alike() -> None:
    print(f"seed {SEED}")
    different, counts = differing(near_questions(SEED, 200))
    assert different == []
    assert min(counts[YES], counts[NO], counts[ERROR]) > 200


def test_the_language_s_own_cases_are_facts() -> None:
    answered = ask([{"expression": case["expression"], **DEVICE} for case in CASES])
    assert [one.answer for one in answered] == [case["answer"] for case in CASES]


def test_steps_are_counted_after_the_cost_that_the_api_server_reckons() -> None:
    """So that no evaluation of what it has let in ends for want of steps, as far as expressions are usual."""
    print(f"seed {SEED}")
    asked = list(compared(random_questions(SEED, 1500)))
    over = [question for question, answered in asked if steps(question) > 2 * answered.max_cost + 10]
    assert len(asked) > 1000
    assert over == []

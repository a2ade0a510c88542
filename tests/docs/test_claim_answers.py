"""Each situation in which a gang with resource claims waits is answered by what is in its way."""

from __future__ import annotations

import pytest

from tests.docs.claim_answers import SITUATIONS, Situation, answer


@pytest.mark.parametrize("one", SITUATIONS, ids=lambda one: one.title)
def test_the_answer_names_what_is_in_its_way(one: Situation) -> None:
    assert one.has in " ".join(answer(one).split())

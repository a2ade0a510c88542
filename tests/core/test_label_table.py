"""A table of labels answers as each selector does alone; terms are found by the pods that they are about."""

from __future__ import annotations

from random import Random

import pytest

from gangsched.core.cache.pods.carried_terms import CarriedTerms
from gangsched.core.cache.pods.label_table import LabelTable
from gangsched.core.types.templates.affinity_terms import AffinityKind, AffinityTerm
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.lab.sim.objects import make_pod
from gangsched.model.resources import ResourceTable
from gangsched.model.selectors import EVERYTHING, PodTerm, Requirement, Selector

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Unknown")
SPACES = ("d", "e", "f")


def selector(rng: Random) -> Selector:
    def one() -> Requirement:
        operator = rng.choice(OPERATORS)
        n = rng.choice((1, 2, 20)) if "In" in operator else 0
        return Requirement(
            f"k{rng.randrange(100)}", operator, tuple(f"v{rng.randrange(5)}" for _ in range(n))
        )

    return Selector(tuple(one() for _ in range(rng.randrange(4))))


def labels(rng: Random) -> dict[str, str]:
    return {f"k{rng.randrange(100)}": f"v{rng.randrange(5)}" for _ in range(rng.choice((0, 3, 60)))}


@pytest.mark.parametrize("seed", range(20))
def test_a_table_of_labels_answers_as_the_selector_does(seed: int) -> None:
    rng = Random(seed)
    table, rows = LabelTable(), []
    for step in range(200):
        if rng.random() < 0.5:
            rows.append(labels(rng))
            assert table.add(rows[-1]) == len(rows) - 1
        asked, first = selector(rng), rng.randrange(len(rows) + 1)
        found = table.matches(asked, first).tolist()
        assert found == [asked.matches(own) for own in rows[first:]], f"seed {seed}, step {step}: {asked}"


@pytest.mark.parametrize("seed", range(20))
def test_terms_are_found_by_the_pods_that_they_are_about(seed: int) -> None:
    rng = Random(seed)

    class Meanings:
        def means_template(self, term: PodTerm, template: PodTemplate) -> bool:
            return means(term, template)

    def means(term: PodTerm, template: PodTemplate) -> bool:
        is_in = term.namespace_selector is not None or template.namespace in term.namespaces
        return is_in and term.selector is not None and term.selector.matches(template.labels)

    said, stated = CarriedTerms(Meanings()), []
    templates = []
    for serial in range(12):
        own = labels(rng)
        pod = make_pod(f"p{serial}", namespace=rng.choice(SPACES), labels=own)
        templates.append(PodTemplate(pod, ResourceTable(), serial, own))
    for step in range(200):
        spaces = tuple(sorted(rng.sample(SPACES, rng.randrange(3))))
        chosen = EVERYTHING if rng.random() < 0.3 else None
        term = PodTerm(spaces, chosen, rng.choice((None, selector(rng), selector(rng))))
        stated.append((AffinityKind.ANTI_REQUIRED, AffinityTerm(term, "rack")))
        said.add(stated[-1])
        if rng.random() < 0.05:
            stated = rng.sample(stated, len(stated) // 2)
            said.keep(stated)
        template = rng.choice(templates)
        found = [one.stated for one in said.about(template)]
        right = [one for one in dict.fromkeys(stated) if means(one[1].term, template)]
        assert set(found) == set(right), f"seed {seed}, step {step}"
        assert len(found) == len(set(found)), f"seed {seed}, step {step}"


def test_a_term_for_other_pods_is_not_looked_at() -> None:
    compared: list[PodTerm] = []

    class Meanings:
        def means_template(self, term: PodTerm, template: PodTemplate) -> bool:
            compared.append(term)
            return True

    said = CarriedTerms(Meanings())
    for i in range(1_000):
        term = PodTerm(("d",), None, Selector((Requirement("app", "In", (f"a{i}",)),)))
        said.add((AffinityKind.ANTI_REQUIRED, AffinityTerm(term, "rack")))
    template = PodTemplate(make_pod("p", labels={"app": "a7"}), ResourceTable(), 1, {"app": "a7"})
    for _ in range(2):
        assert len(said.about(template)) == 1
        assert len(compared) == 1, "once, and with no other"

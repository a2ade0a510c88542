"""Label selectors of any size."""

from __future__ import annotations

from gangsched.model.objects import LabelSelector, SelectorRequirement
from gangsched.model.selectors import Requirement, Selector, selector_of
from tests.plugins.build import Compared


def test_a_label_is_not_compared_with_each_of_thousands_of_values() -> None:
    """A pod may list fifty thousand, and each kind of pods on nodes is asked about them."""
    values = sorted(f"v{i}" for i in range(5000))
    found = {
        operator: selector_of(LabelSelector(match_expressions=[SelectorRequirement("k", operator, values)]))
        for operator in ("In", "NotIn")
    }
    Compared.n = 0
    for operator, is_in in (("In", True), ("NotIn", False)):
        selector = found[operator]
        assert selector is not None
        assert selector.matches({"k": Compared("v4999")}) is is_in
        assert selector.matches({"k": Compared("w")}) is not is_in
    assert Compared.n < 20
    # It is the same term, for whoever counts by it.
    same = Selector((Requirement("k", "In", tuple(values)),))
    assert found["In"] == same
    assert hash(found["In"]) == hash(same)

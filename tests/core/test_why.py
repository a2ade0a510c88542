"""Reasons: one value, the words for administrators and for tenants, and what is read of it without words."""

from __future__ import annotations

from gangsched.core.why import (
    EvenWithAllGone,
    Excluded,
    FewFit,
    NodesExcluded,
    NotDoneYet,
    OfGang,
    OfMember,
    Reserved,
    Searched,
    SearchEnd,
    beyond,
    is_about,
    parts_of,
    proved_there,
    together,
    without_gang,
    words,
)
from gangsched.model.printable import clean, clean_for, marked

NOWHERE = NodesExcluded(3, (Excluded(2, "NodeResourcesFit", "Insufficient cpu"), Excluded(1, "Own", "no")))


def test_a_reason_is_told_in_kube_schedulers_words() -> None:
    told = OfGang("d/a", FewFit("", 1, 2, "a-1", NOWHERE))
    assert str(told) == (
        "gang d/a: 1 of 2 fit; member a-1: 0/3 nodes are available: 2 Insufficient cpu, 1 no."
    )
    assert str(NodesExcluded(0, ())) == "0/0 nodes are available."


def test_names_of_others_are_in_full_for_administrators_and_counted_for_tenants() -> None:
    why = Reserved("d/a", f"{marked('gang', ['e/b'])} to bind", 60.0)
    ends = "to bind; for 60 s at most, then all is given back and tried again"
    assert clean(words(why)) == f"gang d/a is reserved and waits: e/b {ends}"
    assert clean_for("d", words(why)) == f"gang d/a is reserved and waits: a gang of another namespace {ends}"


def test_what_it_is_about_is_read_without_words() -> None:
    why = together(EvenWithAllGone("pods", OfGang("d/a", OfMember("a-0", NotDoneYet("x (yet)")))), "More.")
    assert is_about(why, NotDoneYet)
    assert not is_about(why, NodesExcluded)
    assert not is_about("x (yet)", NotDoneYet)
    assert next(one for one in parts_of(why) if isinstance(one, OfMember)).member == "a-0"


def test_reasons_are_joined_and_what_one_adds_to_another_is_known() -> None:
    both = together(NOWHERE, together("and", "more"))
    assert str(both) == f"{NOWHERE} and more"
    assert together(NOWHERE) == NOWHERE
    assert beyond(NOWHERE, both) == ("and", "more")
    assert beyond(NOWHERE, NOWHERE) == ()
    assert beyond("otherwise", both) is None


def test_a_gang_is_named_once_and_a_proof_holds_for_one_domain() -> None:
    proved = together(OfGang("d/a", NOWHERE), Searched(SearchEnd.PROVED))
    there = proved_there(without_gang("d/a", proved))
    assert str(there) == f"{NOWHERE} {SearchEnd.PROVED_THERE.value}"
    assert without_gang("d/b", proved) == proved

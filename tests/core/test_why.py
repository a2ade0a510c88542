"""Reasons: one value, the words for administrators and for tenants, and what is read of it without words."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gangsched.core.why import (
    Because,
    OfGang,
    OfMember,
    beyond,
    is_about,
    parts_of,
    together,
    without_gang,
    words,
)
from gangsched.core.why.binds import MayBeMixedUp
from gangsched.core.why.evictions import EvenWithAllGone
from gangsched.core.why.incomplete import EndedDeleted, MembersLost, MembersMissing, Short, roles_text
from gangsched.core.why.kept import KeptForClaim, StartEstimated, StartKept
from gangsched.core.why.nodes import Excluded, FewFit, NodesExcluded, Searched, SearchEnd, proved_there
from gangsched.core.why.not_tried import NotDoneYet, SetBusy
from gangsched.core.why.released import PreemptedBy, Reserved, VictimsStay
from gangsched.model.text.printable import clean, clean_for, marked

NOWHERE = NodesExcluded(3, (Excluded(2, "NodeResourcesFit", "Insufficient cpu"), Excluded(1, "Own", "no")))


def test_a_reason_is_given_in_kube_schedulers_words() -> None:
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


@pytest.mark.parametrize(
    ("why", "in_full", "to_a_tenant"),
    [
        (
            KeptForClaim("cpu", 2000, "gang", "e/b", datetime(2026, 1, 2, 3, 4, tzinfo=UTC), True),
            "2 cpu are kept for e/b, which is promised to start by 2026-01-02 03:04 UTC.",
            "2 cpu are kept for a gang of another namespace, which is promised to start by"
            " 2026-01-02 03:04 UTC.",
        ),
        (
            KeptForClaim("cpu", 500, "pod", "e/b", None, False),
            "500m cpu are kept for e/b, which may start.",
            "500m cpu are kept for a pod of another namespace, which may start.",
        ),
        (
            PreemptedBy("gang", "e/b"),
            "preempted by gang e/b",
            "preempted by a gang of another namespace",
        ),
        (
            SetBusy("d/a", "e/b", "binding"),
            "gang d/a starts together with e/b, which is binding",
            "gang d/a starts together with a gang of another namespace, which is binding",
        ),
        (
            VictimsStay(("d/x", "e/y")),
            "preemption: its victims did not go in time: d/x, e/y",
            "preemption: its victims did not go in time: d/x and a pod of another namespace",
        ),
        (
            MayBeMixedUp("d/x", "e/y", 2, "a.b/c", "n1"),
            "e/y is about to be given 2 a.b/c on n1 by kubelet's device plugin API,"
            " which could mix it up with d/x",
            "a pod of another namespace is about to be given 2 a.b/c on n1 by kubelet's device plugin API,"
            " which could mix it up with d/x",
        ),
    ],
)
def test_who_is_named_in_a_reason_depends_on_the_reader(why: Because, in_full: str, to_a_tenant: str) -> None:
    assert clean(words(why)) == in_full
    assert clean_for("d", words(why)) == to_a_tenant


@pytest.mark.parametrize(
    ("early", "late", "between"),
    [
        (
            datetime(2026, 1, 2, 3, 0, tzinfo=UTC),
            datetime(2026, 1, 2, 4, 0, tzinfo=UTC),
            "03:00 and 04:00 UTC",
        ),
        (
            datetime(2026, 1, 2, 3, 0, tzinfo=UTC),
            datetime(2026, 1, 3, 4, 0, tzinfo=UTC),
            "2026-01-02 03:00 and 2026-01-03 04:00 UTC",
        ),
    ],
)
def test_a_range_names_its_day_unless_it_is_the_day_of_the_estimate(
    early: datetime, late: datetime, between: str
) -> None:
    at = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
    assert f"about 2026-01-02 03:04 UTC, four in five between {between}, if" in str(
        StartEstimated(at, (early, late))
    )
    assert str(StartEstimated(at, None)) == (
        "An estimate: it starts about 2026-01-02 03:04 UTC if nothing else comes; no room is kept for it."
    )


def test_what_else_is_known_of_missing_members_follows_how_many_they_are() -> None:
    roles = tuple((f"r{k}", 0, k) for k in range(1, 6))
    more = EndedDeleted(2), "a webhook refused more"
    told = str(MembersMissing("d/a", 1, 16, 0, roles, more))
    assert told.startswith("gang d/a waits for members: 1 of 16 exist; role r1: 0 of 1; role r2: 0 of 2;")
    assert "; and 2 roles more; members that ended and were deleted: 2; " in told
    assert told.endswith("; a webhook refused more")


def test_what_a_gang_lacks_names_three_roles_and_counts_the_others() -> None:
    short = Short(3, 9, (("a", 0, 1), ("b", 1, 2), ("c", 2, 3)), 2)
    lacking = "3 of 9 members run; role a: 0 of 1; role b: 1 of 2; role c: 2 of 3; and 2 roles more"
    assert str(MembersLost("d/a", short, 0.0)) == f"gang d/a has lost members: {lacking}"
    ends = "; 60 s after the first loss the rest is evicted"
    assert str(MembersLost("d/a", short, 60.0)) == f"gang d/a has lost members: {lacking}{ends}"
    assert roles_text([*short.roles, ("d", 0, 1)]) == roles_text(short.roles, 1)


def test_a_time_that_is_not_known_is_left_out() -> None:
    assert str(StartKept(None, True, 1, 0)) == "It starts: room is kept for it on 1 node."
    assert (
        str(StartKept(None, False, 2, 3))
        == "An estimate: it starts; room is kept for it on 2 nodes; no end stated by 3 there."
    )

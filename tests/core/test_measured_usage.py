"""MeasuredUsage: what is promised and what is measured of it, whatever order things happen in."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gangsched.core.cache.nodes.usage_trackers import MeasuredUsage

Step = tuple[str, int]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("measure"), st.integers(0, 2000)),
        st.tuples(st.just("reserve"), st.integers(1, 500)),
        st.tuples(st.just("found"), st.integers(1, 500)),
        st.tuples(st.just("release"), st.integers(0, 10)),
    ),
    max_size=40,
)


@given(STEPS)
def test_what_is_claimed_is_never_less_than_measured_or_than_promised(steps: list[Step]) -> None:
    flow = MeasuredUsage(1)
    flow.fit(1)
    held: list[int] = []
    for what, amount in steps:
        if what == "measure":
            flow.measure(0, (amount,))
        elif what == "reserve":
            before = int(flow.claimed(1)[0, 0])
            flow.reserve(0, (amount,))
            held.append(amount)
            assert flow.claimed(1)[0, 0] == before + amount, "subtracted at once"
        elif what == "found":
            flow.found(0, (amount,))
            held.append(amount)
        elif held:
            flow.release(0, (held.pop(amount % len(held)),))
        used, others = int(flow.used[0, 0]), int(flow.others[0, 0])
        (promised,) = flow.promised(0)
        assert flow.reserved[0, 0] == sum(held)
        assert 0 <= promised <= sum(held)
        assert max(0, used - sum(held)) <= others <= used
        assert flow.claimed(1)[0, 0] == used + promised == others + sum(held)


@given(STEPS)
def test_when_all_have_gone_the_next_measurement_is_all_there_is(steps: list[Step]) -> None:
    flow = MeasuredUsage(1)
    flow.fit(1)
    held: list[int] = []
    for what, amount in steps:
        if what == "measure":
            flow.measure(0, (amount,))
        elif what in ("reserve", "found"):
            getattr(flow, what)(0, (amount,))
            held.append(amount)
    for amount in held:
        flow.release(0, (amount,))
    flow.measure(0, (123,))
    assert flow.claimed(1)[0, 0] == 123
    assert flow.promised(0) == [0]


def test_rows_are_apart_and_a_cleared_one_is_empty() -> None:
    flow = MeasuredUsage(2)
    flow.fit(3)
    flow.measure(1, (10, 20))
    flow.reserve(1, (5, 0))
    assert flow.claimed(3).tolist() == [[0, 15, 0], [0, 20, 0]]
    flow.fit(500)
    assert flow.claimed(3).tolist() == [[0, 15, 0], [0, 20, 0]], "growing changes nothing"
    flow.clear(1)
    assert flow.claimed(3).tolist() == [[0, 0, 0], [0, 0, 0]]

"""Quantities: exact, rounded up, bounded, and nothing else is one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.errors import ParseError
from gangsched.model.text.quantity import MAX_VALUE, to_int, to_milli


@pytest.mark.parametrize(
    ("text", "whole", "milli"),
    [
        ("0", 0, 0),
        ("2", 2, 2000),
        ("500m", 1, 500),
        ("1.5", 2, 1500),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+3", 3, 3000),
        ("-1500m", -1, -1500),
        ("1n", 1, 1),
        ("64Gi", 64 * 2**30, 64 * 2**30 * 1000),
        ("1e3", 1000, 10**6),
        ("1E3", 1000, 10**6),
        ("1E", 10**18, MAX_VALUE),
        ("1.5Ki", 1536, 1536000),
        ("100k", 100_000, 10**8),
        ("8Ei", MAX_VALUE, MAX_VALUE),
        ("1e30", MAX_VALUE, MAX_VALUE),
        ("-1e30", -MAX_VALUE, -MAX_VALUE),
        ("9" * 17, 10**17 - 1, MAX_VALUE),
        ("9" * 40, MAX_VALUE, MAX_VALUE),
        ("007", 7, 7000),
        ("1e-9", 1, 1),
    ],
)
def test_values(text: str, whole: int, milli: int) -> None:
    assert to_int(text) == whole
    assert to_milli(text) == milli


@pytest.mark.parametrize(
    "text",
    ["", " 1", "1 ", "1 Gi", "Gi", ".", "1K", "1gi", "1e", "1e3Gi", "0x10", "1_000", "--1", "NaN", "٣", "²"],
)
def test_a_text_that_is_no_quantity_is_refused(text: str) -> None:
    for read in (to_int, to_milli):
        with pytest.raises(ParseError, match="is not a quantity"):
            read(text)


def test_hostile_text_is_quick_and_quoted_short() -> None:
    with pytest.raises(ParseError) as caught:
        to_int("x" * 100_000)
    assert len(str(caught.value)) < 200
    assert to_int("1" * 5000) == MAX_VALUE
    assert to_int("1e999") == MAX_VALUE
    assert to_int("0." + "0" * 5000 + "1") == 1


_SUFFIXES = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40),
}  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(-(10**6), 10**6), st.integers(0, 999_999), st.sampled_from(sorted(_SUFFIXES)))
def test_exact_and_rounded_up(whole: int, decimals: int, suffix: str) -> None:
    text = f"{whole}.{decimals:06d}{suffix}"
    exact = (abs(whole) + Fraction(decimals, 10**6)) * (-1 if text.startswith("-") else 1) * _SUFFIXES[suffix]
    assert to_int(text) == max(-MAX_VALUE, min(MAX_VALUE, -(-exact // 1)))
    assert to_milli(text) == max(-MAX_VALUE, min(MAX_VALUE, -(-(exact * 1000) // 1)))

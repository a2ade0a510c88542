"""When a gang fits, by arrays, beside a plain search that ends pods one moment after the other."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from gangsched.core.queueing.planning import Amounts, Ending, Search, Wanted, earliest, moments_from


def plainly(
    free: list[list[int]],
    request: list[int],
    ok: list[bool],
    need: int,
    pods: list[tuple[int, float, list[int]]],
    domains: list[int],
) -> float:
    """At each moment, counts the copies on each node, one at a time."""
    for at_s in (-math.inf, *sorted({end_s for _, end_s, _ in pods if end_s < math.inf})):
        copies = dict.fromkeys(domains, 0)
        for row, is_ok in enumerate(ok):
            left = [own[row] for own in free]
            for there, end_s, amounts in pods:
                if there == row and end_s <= at_s:
                    left = [have + amount for have, amount in zip(left, amounts, strict=True)]
            while is_ok and all(have >= wanted for have, wanted in zip(left, request, strict=True)):
                left = [have - wanted for have, wanted in zip(left, request, strict=True)]
                copies[domains[row]] += 1
        if any(n >= need for domain, n in copies.items() if domain >= 0):
            return at_s
    return math.inf


def held(rng: Random, amounts: list[list[int]], k: int) -> Amounts:
    """Each a kind of its own, or equal ones the same; some kinds are of nobody."""
    kinds = [list(one) for one in dict.fromkeys(map(tuple, amounts))] if rng.random() < 0.7 else amounts
    kinds = [*kinds, [1] * k]
    of_kind = np.array(kinds, dtype=np.int64).reshape(len(kinds), k).T
    return Amounts(of_kind, np.array([kinds.index(one) for one in amounts], dtype=np.int64))


@pytest.mark.parametrize("seed", range(400))
def test_the_same_moment_as_by_trying_each(seed: int) -> None:
    rng = Random(seed)
    n_rows, k = rng.randint(1, 6), rng.randint(1, 3)
    free = [[rng.randint(-3, 6) for _ in range(n_rows)] for _ in range(k)]
    request = [rng.randint(1, 3) for _ in range(k)]
    ok = [rng.random() < 0.8 for _ in range(n_rows)]
    pods = [
        (
            rng.randrange(n_rows),
            math.inf if rng.random() < 0.2 else float(rng.randint(1, 5)),
            [rng.randint(0, 4) for _ in range(k)],
        )
        for _ in range(rng.randint(0, 12))
    ]
    need = rng.randint(1, 9)
    domains = [rng.randint(-1, 2) for _ in range(n_rows)] if rng.random() < 0.5 else None
    found = earliest(
        np.array(free),
        Wanted(
            np.array(request),
            need,
            np.array(ok),
            None if domains is None else np.array(domains, dtype=np.int64),
        ),
        Ending(
            np.array([row for row, _, _ in pods], dtype=np.int64),
            np.array([end_s for _, end_s, _ in pods], dtype=np.float64),
            held(rng, [amounts for _, _, amounts in pods], k),
        ),
        from_s := rng.choice([-math.inf, 1.0, 3.0]),
    )
    first_s = plainly(free, request, ok, need, pods, domains or [0] * n_rows)
    assert found == (first_s if first_s > from_s else -math.inf), f"seed {seed}"


def test_moments_are_reported_once_and_in_order() -> None:
    assert moments_from(2.0, [5.0, math.inf, 1.0, 2.0, 5.0]) == [2.0, 5.0]
    assert moments_from(-math.inf, []) == []


@pytest.mark.parametrize("n", [0, 1, 2, 7, 100, 5000])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_the_first_moment_is_found_where_it_stays_so(n: int, share: float) -> None:
    first = round(n * share)
    search, found, n_looks = Search(n), None, 0
    for at in search:
        n_looks += 1
        assert 0 <= at < n
        if at >= first:
            found = at
        search.report(at >= first)
    assert n_looks <= 13
    if first >= n:
        assert found is None
    else:
        assert found is not None
        assert first <= found <= max(first + 3, 3 * first + 3)

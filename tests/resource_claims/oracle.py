"""Kubernetes' allocator, asked line by line: oracle/main.go, which `make controlplane` builds.

`python -m tests.resource_claims.oracle --cases 20000 --seed 7` compares ours with it in that many random
cases, and prints those that are answered otherwise here.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, tee
from typing import Any

from gangsched.lab.controlplane import assets
from tests.resource_claims.cases import Case, case
from tests.resource_claims.judge import faults

Answer = dict[str, Any]
"""`{"nodes": {name: …}}`, with "allocations" (a v1 AllocationResult a claim), "none" or "error"; beside an
error "onNode" if it is of this node only: any other one ends the attempt on all nodes."""

ALLOCATED, NONE, ERROR, DEADLINE = "allocated", "none", "error", "deadline"
_BATCH = 500


def ask(cases: Iterable[Case]) -> Iterator[Answer]:
    """What Kubernetes' allocator says to each case. Raises: MissingAssets, ConfigError."""
    binary = assets.find(module=assets.DRA).path("dra-oracle")
    rest = iter(cases)
    while lines := "".join(f"{json.dumps(one)}\n" for one in islice(rest, _BATCH)):
        done = subprocess.run([str(binary)], input=lines, capture_output=True, text=True, check=True)
        yield from (json.loads(line) for line in done.stdout.splitlines())


def kind(answered: dict[str, Any]) -> str:
    """What is feasible on one node, of its answer. An error of this node alone is a "none"."""
    if "allocations" in answered:
        return ALLOCATED
    if answered.get("none") or answered.get("onNode"):
        return NONE
    return DEADLINE if answered["error"] == DEADLINE else ERROR


def differences(one: Case, theirs: Answer, ours: Answer) -> Iterator[str]:
    """In words, where we find feasible what they do not, or the reverse, and what our allocations break."""
    for name, answered in theirs["nodes"].items():
        own = ours["nodes"][name]
        if kind(answered) == DEADLINE:
            continue
        if kind(own) != kind(answered):
            yield f"{name}: {kind(own)} here, there {kind(answered)} {answered.get('error', '')}"
        elif kind(own) == ALLOCATED:
            yield from (f"{name}: {fault}" for fault in faults(one, name, own["allocations"]))


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 1 where an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.resource_claims.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    answer: Callable[[Case], Answer] = importlib.import_module("tests.resource_claims.ours").answer
    counts: Counter[str] = Counter()
    n_different = 0
    cases, asked = tee(case(arguments.seed, at) for at in range(arguments.cases))
    for at, (theirs, one) in enumerate(zip(ask(asked), cases, strict=True)):
        counts.update(kind(answered) for answered in theirs["nodes"].values())
        if found := list(differences(one, theirs, answer(one))):
            n_different += 1
            print(f"case({arguments.seed}, {at})", *found, sep="\n  ")
    print(f"seed {arguments.seed}: {counts.total()} nodes ({dict(counts)}), {n_different} cases differ")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())

"""cel-go in Kubernetes' environment, asked line by line: oracle/main.go, which `make controlplane` builds.

`python -m tests.model.cel.oracle --expressions 50000 --seed 7` compares that many random expressions, and
prints those that are answered otherwise here.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gangsched.lab.controlplane import assets
from tests.model.cel.expressions import Expressions
from tests.model.cel.questions import ERROR, NO, REFUSED, YES, Question, answer

# cel-go's own: that a sort costs the square of the length, and that it breaks off as it reckons the cost of a
# function whose argument failed.
_FAULTS_OF_CEL_GO = ("actual cost limit exceeded", "internal error: interface conversion")


class Answered(NamedTuple):
    """What cel-go says: `answer` with its reason, and the most that an evaluation may cost on any device."""

    answer: str
    reason: str
    max_cost: int


def ask(questions: Sequence[Question]) -> list[Answered]:
    """What cel-go says. Raises: MissingAssets, ConfigError."""
    binary = assets.find(module=assets.CEL).path("cel-oracle")
    lines = "".join(f"{json.dumps(question)}\n" for question in questions)
    done = subprocess.run([str(binary)], input=lines, capture_output=True, text=True, check=True)
    return [_answered(json.loads(line)) for line in done.stdout.splitlines()]


def _answered(line: Mapping[str, Any]) -> Answered:
    for kind, reason in ((REFUSED, line.get("refused")), (ERROR, line.get("error"))):
        if reason:
            return Answered(kind, reason, line["maxCost"])
    return Answered(YES if line["matches"] else NO, "", line["maxCost"])


def random_questions(seed: int, n: int) -> list[Question]:
    """Expressions and devices by chance."""
    source = Expressions(seed)
    return [{"expression": source.expression(), **source.device()} for _ in range(n)]


def near_questions(seed: int, n: int) -> list[Question]:
    """Of texts that nearly parse, whether they do."""
    source = Expressions(seed)
    asked: list[Question] = []
    for _ in range(n):
        text = source.text()
        asked += [{"expression": f"{tell}({text})"} for tell in _TELLING]
        # In a list, so that it is read when it is evaluated: the API server checks constants.
        asked += [
            {"expression": f"{function}([{text}][0]) == {function}([{text}][0])"} for function in _READING
        ]
        asked += [{"expression": f"format.{form}().validate({text}).hasValue()"} for form in _FORMATS]
    return asked


_TELLING = ("isURL", "isQuantity", "isSemver", "isIP", "isCIDR")
_READING = (
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "url",
    "ip",
    "cidr",
    "quantity",
    "semver",
)
_FORMATS = ("uri", "uuid", "byte", "date", "datetime", "dns1123Label", "qualifiedName", "labelValue")


def compared(questions: Sequence[Question]) -> Iterator[tuple[Question, Answered]]:
    """Those that the API server lets in, with what cel-go says; without its own faults."""
    for question, answered in zip(questions, ask(questions), strict=True):
        if answered.answer != REFUSED and not any(fault in answered.reason for fault in _FAULTS_OF_CEL_GO):
            yield question, answered


def main(argv: Sequence[str] | None = None) -> int:
    """The command: 1 where an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.model.cel.oracle", description=__doc__)
    parser.add_argument("--expressions", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args(argv)
    counts: Counter[str] = Counter()
    n_different = 0
    for question, answered in compared(random_questions(arguments.seed, arguments.expressions)):
        counts[answered.answer] += 1
        if answer(question) != answered.answer:
            n_different += 1
            print(json.dumps(question), f"cel-go: {answered.answer} {answered.reason}", sep="\n  ")
    print(f"seed {arguments.seed}: {counts.total()} compared ({dict(counts)}), {n_different} differ")
    return 1 if n_different else 0


if __name__ == "__main__":
    sys.exit(main())

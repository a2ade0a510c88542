"""The example of docs/record-and-replay.md: a simulated day, recorded and asked about.

Lives here: the day, the question, what the page shows of the answer. Called by generate.
"""

from __future__ import annotations

import contextlib
import io
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import NamedTuple

from gangsched.command.cli import main
from gangsched.config.documents import file_with
from tests.counterfactual.days import cluster, gang, record

N_GANGS, N_NODES, N_ADDED = 60, 24, 10
OTHER = "other.yaml"
CONFIG = file_with("packing: {weight: 5}\n")
FLAGS = ("--config", OTHER, "--nodes", f"+{N_ADDED}", "--like", "n3", "--rows", "6", "--seeds", "3")


class Shown(NamedTuple):
    """What is printed, the picture, and that of the day as it was."""

    text: str
    svg: str
    day_svg: str


@cache
def shown() -> Shown:
    """The command's own output. Raises: AssertionError."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        _record(folder / "journal")
        (folder / OTHER).write_text(CONFIG, encoding="utf-8")
        out, replayed = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(replayed):
            assert main(["replay", str(folder / "journal"), "--picture", str(folder / "day.svg")]) == 0
        with contextlib.redirect_stdout(out), contextlib.chdir(folder):
            assert main(["counterfactual", "journal", *FLAGS, "--svg", "what-if.svg"]) == 0
        drawn = [(folder / name).read_text(encoding="utf-8") for name in ("what-if.svg", "day.svg")]
        return Shown(out.getvalue(), *drawn)


def region() -> str:
    """Without spaces at the ends of lines."""
    lines = [line.rstrip() for line in shown().text.splitlines()]
    return "\n".join(("```text", *lines, "```", ""))


def _record(directory: Path) -> None:
    """Gangs of 1 to 24 pods that run for minutes to hours, on nodes of 8 GPUs."""
    rng = Random("a day")
    arrivals, at_s = [], 0.0
    for k in range(N_GANGS):
        at_s += rng.expovariate(1 / 150)
        n_pods = rng.choice((1, 1, 2, 4, 4, 8, 16, 24))
        gpus = rng.choice((1, 2, 4, 8)) if n_pods < 16 else rng.choice((1, 2, 4))
        run_s = round(rng.lognormvariate(7.4, 0.9))
        arrivals.append(gang(at_s, f"job{k:02}", pods=n_pods, gpus=gpus, run_s=run_s))
    record(directory, cluster(N_NODES), arrivals, for_s=at_s + 3600)

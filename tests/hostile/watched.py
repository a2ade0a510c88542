"""The scheduler as its users run it, with the CPU of each turn measured from inside: for tests.hostile.hour.

`TURNS=FILE python -m tests.hostile.watched scheduler …` is `gangsched scheduler …`; a turn that took more
than a twentieth of a second of its thread's CPU becomes a line of the file: seconds, and what it was called
for.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from gangsched.command import cli
from gangsched.core.scheduler import Scheduler

TOLD_S = 0.05


def watch(path: Path) -> None:
    """Measures each call of the core from now on."""

    def measured(name: str) -> None:
        real = getattr(Scheduler, name)

        def call(self: Scheduler, *given: Any) -> Any:
            at_s = time.thread_time()
            try:
                return real(self, *given)
            finally:
                spent_s = time.thread_time() - at_s
                if spent_s > TOLD_S:
                    about = given[0] if given else ""
                    what = f"{len(about)} events" if isinstance(about, list) else str(about)[:80]
                    with path.open("a") as file:
                        file.write(f"{spent_s:.3f} {name} {what}\n")

        setattr(Scheduler, name, call)

    for name in ("handle", "schedule", "advance"):
        measured(name)


if __name__ == "__main__":
    watch(Path(os.environ["TURNS"]))
    sys.exit(cli.main(sys.argv[1:]))

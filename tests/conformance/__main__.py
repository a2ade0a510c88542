"""Runs Kubernetes' own end-to-end tests of scheduling and of Dynamic Resource Allocation with gangsched and
with kube-scheduler as default-scheduler, at the same time, and writes docs/conformance.md:
`python -m tests.conformance`.

Ends with 0 where each test that passes with kube-scheduler passes with gangsched, 1 where one does not,
2 where there is no result. Called by `make conformance`, outside of CI.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from gangsched import __version__
from gangsched.errors import ConfigError, GangschedError
from gangsched.lab.controlplane import assets
from tests.conformance import cluster, tools
from tests.conformance.report import (
    OURS,
    SCHEDULERS,
    SUITES,
    Outcome,
    as_json,
    compared,
    from_json,
    lost,
    of_suite,
    page,
    summary,
)

ROOT = Path(__file__).parents[2]
RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "conformance.md"
LOGS = ROOT / "build" / "conformance"


def versions() -> dict[str, str]:
    """Of everything that takes part."""
    return {
        OURS: __version__,
        "Kubernetes": assets.KUBERNETES_VERSION.removeprefix("v"),
        "e2e.test": tools.MODULE.version.removeprefix("v"),
        "kwok": tools.KWOK_VERSION.removeprefix("v"),
    }


def speaker(name: str) -> Callable[[str], None]:
    """Says a line of this name, at once also through a pipe."""
    started_s = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - started_s:5.0f} s] {name}: {text}", flush=True)


def run_all(ready: tools.Tools, focus: str) -> dict[str, dict[str, Outcome]]:
    """Each scheduler's outcomes; where one run fails, or this is interrupted, the other is ended too."""
    stop = threading.Event()
    with ThreadPoolExecutor(max_workers=len(SCHEDULERS)) as pool:
        try:
            runs = {
                pool.submit(
                    cluster.run, one, ready, focus=focus, folder=LOGS / one, say=speaker(one), stop=stop
                ): one
                for one in SCHEDULERS
            }
            return {runs[ended]: ended.result() for ended in as_completed(runs)}
        finally:
            stop.set()


def main(argv: Sequence[str] | None = None) -> int:
    """A suite that is not run stays in the page as it was; of one that is run in part what is not run stays
    too, if it was run last with the same versions."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, help="one of them alone")
    parser.add_argument(
        "--focus", default="", metavar="REGEX", help="only tests that have this behind their suite's name"
    )
    arguments = parser.parse_args(argv)
    suites = [SUITES[arguments.suite]] if arguments.suite else SUITES.values()
    focus = f"(?:{'|'.join(map(re.escape, suites))})"
    focus += f".*(?:{arguments.focus})" if arguments.focus else ""
    # A plain `kill` cleans up as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        found = compared(run_all(tools.ready(), focus))
    except (ConfigError, GangschedError, OSError) as error:
        print(f"conformance: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("conformance: interrupted, nothing is written", file=sys.stderr)
        return 130
    kept = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for suite in SUITES:
        mine, before = of_suite(suite, found), kept.get(suite, {})
        if arguments.focus and before.get("versions") == versions():
            mine = dict(sorted((from_json(before) | mine).items()))
        if mine:
            kept[suite] = as_json(versions(), mine)
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept))
    print(f"{summary(found)}; {PAGE.relative_to(ROOT)} tells each, logs are in {LOGS.relative_to(ROOT)}")
    for name in lost(found):
        print(f"passes with kube-scheduler and not with gangsched: {name}")
    return 1 if lost(found) else 0


if __name__ == "__main__":
    sys.exit(main())

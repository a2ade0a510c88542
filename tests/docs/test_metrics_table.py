"""docs/operating-reference.md: each metric that /metrics has is in the table, whatever is switched on."""

from __future__ import annotations

import asyncio
import re

from gangsched.config import Settings
from gangsched.config.queueing import QueueingSettings
from tests.docs.metrics_table import described_metrics
from tests.docs.pages import DOCS, ROOT
from tests.web.measured import MeasuredCluster

_DECLARED = re.compile(r"# TYPE (\w+) (\w+)")


def test_a_scheduler_that_runs_shows_no_metric_that_the_table_lacks() -> None:
    page = asyncio.run(MeasuredCluster(Settings(queueing=QueueingSettings())).page())
    shown = {(name, kind) for name, kind in _DECLARED.findall(page) if not name.startswith("process_")}
    assert len(shown) > 30
    assert shown <= {(name, one.kind) for name, one in described_metrics().items()}


def test_each_name_in_the_code_is_in_the_table() -> None:
    """Also of families that only some configurations have."""
    text = (DOCS / "operating-reference.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert told >= {*described_metrics()}
    for path in (ROOT / "gangsched" / "web" / "metrics").glob("*families.py"):
        for name in re.findall(r'"(gangsched_\w+)"', path.read_text(encoding="utf-8")):
            assert {name, f"{name}_total"} & told, name

"""Journals that were altered: what reads them ends with what they are, or with what is wrong with them.

Checksums are right, so that what is in the records is read. MUTATED_JOURNALS: how many, 16 unless it is set.
"""

from __future__ import annotations

import os
import zlib
from functools import cache
from pathlib import Path
from random import Random

import pytest

from gangsched.command.cli import main
from gangsched.journal.records import HEAD
from tests.journal.kept import Kept, key_in, recorded
from tests.journal.mutated import mutated, with_bytes

N = int(os.environ.get("MUTATED_JOURNALS", "16"))


@cache
def days() -> tuple[Kept, ...]:
    """One segment, and several, which begin with a state."""
    return recorded(7, n_gangs=6)[1][0], recorded(8, n_gangs=6, per_segment=40)[1][0]


def altered(rng: Random, directory: Path) -> Path:
    whole = rng.choice(days())
    kept = Kept()
    kept.segments = [list(one) for one in whole.segments]
    records = rng.choice(kept.segments)
    for _ in range(rng.choice((1, 1, 2))):
        at = rng.choice((0, min(1, len(records) - 1), *(rng.randrange(len(records)) for _ in range(3))))
        body = mutated(rng, records[at][HEAD.size :])
        records[at] = HEAD.pack(len(body), zlib.crc32(body)) + body
    if rng.random() < 0.2:
        records.insert(rng.randrange(len(records)), records.pop(rng.randrange(len(records))))
    if len(kept.segments) > 1 and rng.random() < 0.5:
        del kept.segments[0]
    directory.mkdir()
    path = kept.write_to(directory)
    if rng.random() < 0.1:
        path.write_bytes(with_bytes(rng, path.read_bytes()))
    return directory


@pytest.mark.parametrize("seed", range(N))
def test_an_altered_journal_ends_in_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    rng = Random(seed)
    journal = str(altered(rng, tmp_path / "journal"))
    flags = rng.choice(
        ([], ["--from", "+300s"], ["--until", "+1h"], ["--picture", str(tmp_path / "day.svg")])
    )
    assert main(["replay", journal, *flags]) in (0, 1, 2)
    drawn = ["--svg", str(tmp_path / "what-if.svg")]
    change = rng.choice((["--nodes", "+1", "--like", "n0", *drawn], ["--without", "d/g0"]))
    assert main(["counterfactual", journal, "--seeds", "0", *change]) in (0, 1, 2)
    key = key_in(tmp_path)
    assert main(["anonymise", journal, str(tmp_path / "out"), "--key", key]) in (0, 1, 2)
    told = capsys.readouterr()
    assert "\x1b" not in told.out + told.err
    assert "\x00" not in told.out + told.err

"""`gangsched gangs`: what is listed of each gang, and what is drawn of it."""

from __future__ import annotations

import io
from datetime import timedelta

from rich.console import Console

from gangsched.lab.sim.objects import at, make_pod
from gangsched.web.commands.gangs import gangs_of, print_gangs
from tests.support.scenario import cluster, gang


def test_each_gang_has_a_row_with_how_far_it_is() -> None:
    c = cluster(nodes=1, gpus=8).submit(gang("old", pods=2, gpus=3)).run()
    c.phase("old-0", "Running")
    c.submit(make_pod("lone", gpus=1)).run()
    c.submit(gang("train", pods=2, gpus=4)).run().submit(gang("new", pods=1, min_members=3)).run()
    new, old, train = gangs_of(c.scheduler, at(c.now_s) + timedelta(seconds=90))
    assert (new.gang, new.state, new.needed, new.existing, new.bound) == ("d/new", "gathering", 3, 1, 0)
    assert (old.state, old.bound, old.running, old.nodes, old.why) == ("running", 2, 1, ("n0",), "")
    assert (train.state, train.needed, train.nodes, train.age_s) == ("pending", 2, (), 90.0)
    out = io.StringIO()
    print_gangs([new, old, train], Console(file=out, width=200))
    drawn = [line.split() for line in out.getvalue().splitlines()]
    assert drawn[0][:3] == ["GANG", "OF", "SCHEDULER"]
    assert drawn[2][:10] == ["d/old", old.dialect, "gangsched", "0", "running", "2", "2", "2", "1", "1"]


def test_an_empty_list_says_so_and_a_bad_name_stays_text() -> None:
    out = io.StringIO()
    print_gangs([], Console(file=out, width=200))
    assert out.getvalue() == "There is no gang.\n"
    c = cluster().submit(gang("[bold]x", pods=1, gpus=1)).run()
    print_gangs(gangs_of(c.scheduler, at(c.now_s)), Console(file=out, width=200))
    assert "[bold]x" in out.getvalue()

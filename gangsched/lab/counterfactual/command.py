"""`gangsched counterfactual DIR`: its flags, and reading its inputs. Called by command.cli."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from gangsched.command import printing
from gangsched.command.messages import tell
from gangsched.config import SchedulerConfig, parse_config
from gangsched.core.framework.profile import Profile
from gangsched.errors import ConfigError
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.source import ConfigSource
from gangsched.journal.records import Reconfigured, Start
from gangsched.journal.replay.replaying import check_plugins
from gangsched.journal.segments import segments_at
from gangsched.journal.unreadable import REPAIR
from gangsched.lab.counterfactual.answers.answer import Question, answer
from gangsched.lab.counterfactual.answers.picture import picture
from gangsched.lab.counterfactual.answers.report import print_answer
from gangsched.lab.counterfactual.day import Day
from gangsched.lab.counterfactual.gangs import MAX_ADDED
from gangsched.lab.counterfactual.reading import read_day
from gangsched.model.text.printable import clean
from gangsched.plugins import build_profiles
from gangsched.process.flags import add_plugin_flag
from gangsched.whole_file import check_file, put_file

_MAX_SEEDS = 100
_MAX_ROWS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags."""
    parser.description = (
        "Says what a recorded day would have been with another configuration, more nodes, or without a gang:"
        " the same pods come and run as long as they did, and the scheduler's own code places them on a"
        " simulated cluster. The recorded configuration is run there too, which shows the model's own error."
        " Nothing is sent anywhere. Exit code 1: not all of the journal could be read, and the answer is of"
        " the rest."
    )
    add = parser.add_argument
    add("journal", metavar="DIR", help="a journal of `gangsched scheduler --record DIR`, or one file of it")
    add("--config", metavar="FILE", default="", help="the other configuration (default: the recorded one)")
    add_plugin_flag(parser)
    add("--nodes", metavar="+N", default="", help="this many more nodes, from the beginning on")
    add("--like", metavar="NODE", default="", help="with --nodes: empty copies of this one")
    add(
        "--without",
        metavar="NAMESPACE/GANG",
        action="append",
        default=[],
        help="as if this gang or pod had not come; may be given several times",
    )
    add(
        "--seeds",
        metavar="N",
        type=int,
        default=5,
        help="how many days with slightly other arrivals and run times give the range of each figure (5)",
    )
    add("--rows", metavar="N", type=int, default=10, help="of the table of gangs (10)")
    add("--svg", metavar="FILE", default="", help="draw the cluster over time and waits by size")
    add("-o", "--output", choices=("text", "json"), default="text")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, GangschedError."""
    known = KnownPlugins(args.plugin)
    question = _question(args, known)
    day = read_day(segments_at(Path(args.journal)), args.plugin)
    for why in day.lost:
        tell(f"not all of the journal could be read: {clean(why)}. {REPAIR}")
    recorded = _recorded(day, known)
    if day.length_s <= 0.0:
        raise ConfigError("is too short: ends as the cluster has been listed", source=args.journal)
    if args.svg:
        check_file(args.svg, flag="--svg")  # before the runs, which take minutes

    def build(config: SchedulerConfig) -> Mapping[str, Profile]:
        return build_profiles(config, known.factories, with_hooks=False)

    found, drawn = answer(day, question, recorded, build, _tell)
    if args.svg:
        put_file(args.svg, picture(found, drawn), flag="--svg")
    if args.output == "json":
        printing.print_json(found)
    else:
        console = printing.console(140)
        print_answer(found, console, n_rows=args.rows)
    return int(bool(day.lost))


def _question(args: argparse.Namespace, known: KnownPlugins) -> Question:
    """Raises: ConfigError."""
    if not 0 <= args.seeds <= _MAX_SEEDS:
        raise ConfigError(f"{args.seeds} is not within 0..{_MAX_SEEDS}", path="--seeds")
    if not 0 <= args.rows <= _MAX_ROWS:
        raise ConfigError(f"{args.rows} is not within 0..{_MAX_ROWS}", path="--rows")
    if bool(args.nodes) != bool(args.like):
        missing = "--like" if args.nodes else "--nodes"
        raise ConfigError("is needed too: --nodes +N says how many, --like NODE what they are", path=missing)
    n_added = 0
    if args.nodes:
        if re.fullmatch(r"\+[0-9]{1,6}", args.nodes) is None or not 1 <= int(args.nodes) <= MAX_ADDED:
            raise ConfigError(f"{args.nodes!r} is not within +1..+{MAX_ADDED}; example: +10", path="--nodes")
        n_added = int(args.nodes)
    config = ConfigSource(args.config, known).read() if args.config else None
    if config is None and not n_added and not args.without:
        raise ConfigError("nothing would be otherwise: give --config, --nodes, or --without")
    return Question(config, n_added, args.like, tuple(args.without), args.seeds)


def _recorded(day: Day, known: KnownPlugins) -> list[tuple[float, SchedulerConfig]]:
    """Returns the recorded configurations, each with its start time. Raises: ConfigError."""
    found, last = [(0.0, _config(day.start, known))], day.start.config
    for at_s, one in day.changes:
        if one.config != last:
            found.append((at_s, _config(one, known)))
            last = one.config
    return found


def _config(record: Start | Reconfigured, known: KnownPlugins) -> SchedulerConfig:
    check_plugins(record.plugins, known)
    return parse_config(record.config, source="the journal's configuration", plugins=known)


def _tell(done: int, all_: int) -> None:
    if sys.stderr.isatty():
        end = "\n" if done == all_ else "\r"
        print(f"run {done} of {all_}", end=end, file=sys.stderr, flush=True)

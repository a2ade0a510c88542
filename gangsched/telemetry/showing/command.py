"""`gangsched trace NAMESPACE/GANG`: the waterfall of a gang's latest trace, from a file or from Jaeger.

Called by the command line. Without colours the output is plain text that can be piped.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from gangsched.command import namespaces
from gangsched.errors import ApiError, ConfigError
from gangsched.model.text.printable import one_line
from gangsched.web.commands.asking import add_flags, ask, decoded


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Draws a gang's trace in the terminal: where its time went, attempt by attempt. A gang that still"
        " waits has written little of it; then the scheduler is asked why it waits."
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--file", metavar="FILE", help="what `gangsched scheduler --trace-file` has written")
    where.add_argument("--jaeger", metavar="URL", help="Jaeger's query API, as http://localhost:16686")
    parser.add_argument(
        "--trace-id", metavar="ID", default="", help="this trace, not the latest; a prefix will do"
    )
    parser.add_argument("--all", action="store_true", help="all of the gang's traces, oldest first")
    namespaces.add_gang(parser)
    add_flags(parser)
    parser.add_argument("--width", metavar="COLUMNS", type=_columns, help="default: the terminal's")


def _columns(text: str) -> int:
    if text.isdecimal() and 1 <= len(text) <= 6 and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of columns, 1 or more")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError, ApiError."""
    from gangsched.command import printing
    from gangsched.telemetry.showing.reading import NoTrace, from_file, from_jaeger
    from gangsched.telemetry.showing.waterfall import draw

    gang = "/".join(namespaces.full_name(args, args.gang))
    if not (args.file or args.jaeger):
        _find(args, gang)
    try:
        traces = from_file(Path(args.file), gang) if args.file else from_jaeger(args.jaeger, gang)
    except NoTrace as error:
        raise ConfigError(f"{error.message}; {_present(args, gang)}", source=error.source) from None
    chosen = traces if args.all else traces[-1:]
    if args.trace_id:
        chosen = [trace for trace in traces if trace.trace_id.startswith(args.trace_id.lower())]
        if not chosen:
            ids = ", ".join(trace.trace_id for trace in traces[-3:])
            raise ConfigError(f"no trace of {gang} begins with {args.trace_id!r}; the latest are {ids}")
    console = printing.console(width=args.width)
    ascii_only = "utf" not in console.encoding.lower()
    for i, trace in enumerate(chosen):
        if i:
            console.print()
        for line in draw(trace, gang=gang, width=console.width, ascii_only=ascii_only):
            console.print(line)
    if len(chosen) < len(traces):
        console.print(f"The gang has {len(traces)} traces; --all shows them all.", style="dim")
    return 0


def _find(args: argparse.Namespace, gang: str) -> None:
    """Sets --file as the running scheduler names it. Raises: ConfigError, with what to type."""
    from gangsched.signals import run_loop
    from gangsched.web.pages.explanations import Page, path_of

    what = "give --file FILE, or --jaeger URL (as http://localhost:16686): where the traces are"
    try:
        body = run_loop(ask, args, path_of(*gang.split("/", 1)))
        pages = decoded(args, body or b"[]", list[Page])
    except (ApiError, ConfigError) as error:
        raise ConfigError(f"{what}; a scheduler that would know does not answer: {error.message}") from None
    if not pages:
        raise ConfigError(f"{what}; the scheduler knows no gang and no pod of its own named {gang}")
    trace = pages[-1].trace
    if not trace:
        raise ConfigError(
            f"{what}; this scheduler writes none: it does with --trace-file FILE or --trace-endpoint URL"
        )
    file = trace.partition(" --file ")[2]
    if not file or not Path(file).is_file():
        raise ConfigError(f"{what}; the scheduler says: {one_line(trace)}")
    args.file = file


def _present(args: argparse.Namespace, gang: str) -> str:
    """Returns the gang's current state from the running scheduler: before its first attempt there is no trace
    to read.
    """
    from gangsched.model.text.printable import clean
    from gangsched.signals import run_loop
    from gangsched.web.commands.queue import duration
    from gangsched.web.pages.explanations import Page, path_of

    try:
        body = run_loop(ask, args, path_of(*gang.split("/", 1)))
        pages = decoded(args, body or b"[]", list[Page])
    except (ApiError, ConfigError):
        return (
            "a trace is written as its parts end, and a gang that still waits may have none:"
            f" `gangsched explain {gang}` asks the scheduler why it waits"
        )
    if not pages:
        return "and the scheduler knows no gang and no pod of its own of that name"
    explanation = pages[-1].explanation
    then = (
        "a trace is written as its parts end"
        if explanation.position
        else "its trace was not kept, or is elsewhere"
    )
    state = f"{explanation.state} for {duration(explanation.state_s)}"
    return f"it has been {state}: {clean(explanation.answer)} ({then})"

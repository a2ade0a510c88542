"""`gangsched check-config FILE`: what a configuration file amounts to. Called by command.cli."""

from __future__ import annotations

import argparse
import json

from gangsched.command.arguments import add_output_flag
from gangsched.command.messages import tell_note
from gangsched.errors import ConfigError
from gangsched.model.text.printable import one_line
from gangsched.process.flags import add_plugin_flag, with_environment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Reads a configuration file as the scheduler does, and prints what it amounts to:"
        " profiles with all their plugins, and settings; with the environment variables that a scheduler"
        " started here would read. No cluster is asked. Exit code 2: it has a mistake,"
        " which is named with its place."
    )
    parser.add_argument("file", metavar="FILE", help="KubeSchedulerConfiguration; see config/scheduler.yaml")
    add_plugin_flag(parser)
    add_output_flag(parser, "text", "json", "yaml")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError."""
    from gangsched.config.checked import resolved, resolved_text
    from gangsched.extension.loading import KnownPlugins
    from gangsched.extension.source import ConfigSource
    from gangsched.plugins import build_profiles

    if not args.file:
        raise ConfigError("names no file", path="FILE")  # a ConfigSource without a file has the defaults
    plugins = KnownPlugins(args.plugin)
    config, trace_notes = with_environment(ConfigSource(args.file, plugins).read())
    build_profiles(config, plugins.factories)  # a plugin that cannot be made is a mistake too
    for note in (*plugins.unused(config.plugin_names), *trace_notes):
        tell_note(note)
    if args.output == "text":
        print(resolved_text(config, plugins))
        for name in sorted(config.plugin_names):
            if plugins.source(name):
                print(one_line(f"from outside: {name}: {plugins.source(name)}"))
    elif args.output == "json":
        print(json.dumps(resolved(config, plugins), indent=2))
    else:
        import yaml

        print(yaml.safe_dump(resolved(config, plugins), sort_keys=False), end="")
    return 0

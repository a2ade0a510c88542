"""Out-of-tree plugins: files given by --plugin, and entry points of installed packages.

Lives here: from a file or an entry point to a class known to be a plugin, or a ConfigError with file, line
and what would be right. Not here: which profile uses it (the configuration names it, like any other plugin),
its time limit (budget). Called by commands, and when a configuration is reloaded.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from gangsched.config import PluginInfo
from gangsched.errors import ConfigError
from gangsched.extension.budget import TurnBudget, budgeted
from gangsched.extension.signatures import HOOKS, POINTS, check_attributes, check_hooks, line_of
from gangsched.model.text.printable import in_words
from gangsched.plugins import IN_TREE
from gangsched.reading.strict import nearest

ENTRY_POINTS = "gangsched.plugins"


class KnownPlugins(Mapping[str, PluginInfo]):
    """Every plugin that a configuration may name: in-tree, from files, and from installed packages.

    Packages are searched only for a name that is neither in-tree nor a file's, and only the package of that
    name is imported: the scheduler starts without scanning what is installed, and a broken package that no
    profile names breaks nothing.
    """

    def __init__(
        self, files: Sequence[str] = (), *, budget_s: float = 1.0, budget: TurnBudget | None = None
    ) -> None:
        """Raises: ConfigError (a file that cannot be loaded, a name that is taken)."""
        self.budget = TurnBudget(budget_s) if budget is None else budget
        self.factories: dict[str, Callable[..., Any]] = {}
        self._infos: dict[str, PluginInfo] = dict(IN_TREE)
        self._sources: dict[str, str] = {}
        self._missing: set[str] = set()
        for file in files:
            for kind in _plugins_of(_load_file(file), file):
                self._add(kind, f"--plugin {file}")

    def __getitem__(self, name: str) -> PluginInfo:
        info = self._infos.get(name)
        if info is None and name not in self._missing:
            info = self._discovered(name)
        if info is None:
            self._missing.add(name)
            raise KeyError(name)
        return info

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def source(self, name: str) -> str:
        """The file or package it comes from; "" for in-tree plugins."""
        return self._sources.get(name, "")

    def unused(self, names: set[str]) -> list[str]:
        """Warnings about plugins of files that no profile names."""
        return [
            f"{source}: no profile enables {name}; add it to plugins of a profile of the configuration"
            for name, source in self._sources.items()
            if name not in names
        ]

    def _discovered(self, name: str) -> PluginInfo | None:
        from importlib.metadata import entry_points

        found = list(entry_points(group=ENTRY_POINTS, name=name))
        if not found:
            return None
        places = [f"{one.value} of {one.dist.name if one.dist else 'an unknown package'}" for one in found]
        if len(found) > 1:
            raise ConfigError(f"plugin {name} is installed twice: {' and '.join(places)}; keep one")
        source = f"entry point {places[0]}"
        try:
            kind = found[0].load()
        except (Exception, SystemExit) as error:
            raise ConfigError(f"{source}: {_where(error)}") from None
        if not inspect.isclass(kind) or getattr(kind, "name", None) != name:
            raise ConfigError(f"{source} is not a plugin class with name = {name!r}")
        self._add(kind, source)
        return self._infos[name]

    def _add(self, kind: type[Any], source: str) -> None:
        name = kind.name
        if name in self._infos:
            taken = self._sources.get(name) or "gangsched's own"
            raise ConfigError(f"{line_of(kind)}: the name {name} is taken ({taken})", source=source)
        hooks = check_hooks(kind, source)
        points = frozenset(POINTS[hook] for hook in hooks if hook in POINTS)
        info = PluginInfo(name, points, _args_of(kind, source), is_default=False)
        self._infos[name] = info
        self._sources[name] = source
        self.factories[name] = _factory(budgeted(kind, name, hooks, self.budget), name, source)


def module_name(file: Path) -> str:
    """The name under which a plugin file is loaded."""
    return f"gangsched_plugin_{file.stem}"


def _load_file(file: str) -> ModuleType:
    """The module of a plugin file. Raises: ConfigError."""
    path = Path(file)
    if not os.path.isfile(file):  # the path's own method raises where one may not look
        raise ConfigError("is not a file", source=f"--plugin {file}")
    name = module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError("is not a Python file (its name should end in .py)", source=f"--plugin {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # msgspec looks up a Struct's annotations there
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(_where(error, file), source=f"--plugin {file}") from None
    return module


def _plugins_of(module: ModuleType, file: str) -> list[type[Any]]:
    named = dict.fromkeys(one for one in vars(module).values() if inspect.isclass(one))
    own = [one for one in named if one.__module__ == module.__name__]
    found = []
    for kind in own:
        if not any(hasattr(kind, hook) for hook in HOOKS):
            continue
        name = getattr(kind, "name", None)
        if not isinstance(name, str) or not name.isidentifier():
            problem = f"{line_of(kind)}: class {kind.__name__} needs a name, as in: name = {kind.__name__!r}"
            raise ConfigError(problem, source=f"--plugin {file}")
        found.append(kind)
    if not found:
        raise ConfigError(f"there is no plugin in it: {_what_it_is(own)}", source=f"--plugin {file}")
    return found


def _what_it_is(own: Sequence[type[Any]]) -> str:
    methods = [name for kind in own for name in vars(kind) if not name.startswith("_")]
    hints = [hint for name in methods if (hint := nearest(name, HOOKS))]
    return "a plugin is a class with a name and a method of an extension point" + (hints[0] if hints else "")


def _args_of(kind: type[Any], source: str) -> type[msgspec.Struct] | None:
    args = getattr(kind, "Args", None)
    if args is None:
        return None
    if not (inspect.isclass(args) and issubclass(args, msgspec.Struct)):
        raise ConfigError(f"{line_of(kind)}: {kind.__name__}.Args is not a msgspec.Struct", source=source)
    try:
        args()
    except TypeError as error:
        problem = f"{line_of(args)}: every field of {kind.__name__}.Args needs a default ({error})"
        raise ConfigError(problem, source=source) from None
    return args


def _factory(kind: type[Any], name: str, source: str) -> Callable[..., Any]:
    """Makes the plugin, with its args if it has any. Raises: ConfigError."""

    def make(*args: Any) -> Any:
        try:
            plugin = kind(*args)
        except (Exception, SystemExit) as error:
            given = "its args" if args else "no arguments"
            problem = f"plugin {name} could not be made with {given}: {_where(error)}"
            raise ConfigError(problem, source=source) from None
        check_attributes(plugin, line_of(kind), source)
        return plugin

    return make


def _where(error: BaseException, file: str = "") -> str:
    """File, line and the exception; for a given file, its innermost own line."""
    if isinstance(error, SyntaxError):
        place = f"line {error.lineno}" if error.filename == file else f"{error.filename}, line {error.lineno}"
        return f"{place}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == file] or [
        frame for frame in frames if "importlib" not in frame.filename
    ]
    text = in_words(error)
    if not own:
        return text
    last = own[-1]
    place = f"line {last.lineno}" if last.filename == file else f"{last.filename}, line {last.lineno}"
    return f"{place}: {text}"

"""No circle of imports: nobody has to read a module to understand another that the first one needs."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

REPO = Path(__file__).parents[2]

Imports = Mapping[str, Iterable[str]]
"""The modules that each module imports, those for its types alone included."""


def imports(root: Path) -> Imports:
    """Of all modules below `root`, a package's directory; what lies outside of it is left out."""
    modules = {_name(path, root): path for path in root.rglob("*.py")}
    return {
        name: sorted({_module(one, modules) for one in _imported(ast.parse(path.read_text()))} - {name, ""})
        for name, path in modules.items()
    }


def _name(path: Path, root: Path) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _module(imported: str, modules: Mapping[str, Path]) -> str:
    """`a.b.c` is a module, or a name in a.b; "" when neither is ours."""
    return next((one for one in (imported, imported.rpartition(".")[0]) if one in modules), "")


def circles(graph: Imports) -> list[list[str]]:
    """The strongly connected components of more than one module (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    numbers = itertools.count()

    def visit(module: str) -> None:
        index[module] = lowest[module] = next(numbers)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            if len(stack) > at + 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for module in sorted(graph):
        if module not in index:
            visit(module)
    return found


def test_no_two_modules_need_each_other() -> None:
    graph = imports(REPO / "gangsched")
    assert len(graph) > 400
    assert "gangsched.lab.sim.world.api" in graph["gangsched.lab.sim.faults.mischief"]
    assert not circles(graph)


def test_a_circle_is_found_also_one_that_types_alone_make(tmp_path: Path) -> None:
    package = tmp_path / "house"
    (package / "room").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "room" / "__init__.py").write_text("from house.room.a import A")
    (package / "room" / "a.py").write_text("import house.b\nclass A: ...")
    (package / "b.py").write_text("if TYPE_CHECKING:\n    from house import c")
    (package / "c.py").write_text("def late():\n    from house.room import a")
    (package / "d.py").write_text("from house.c import late\nimport os")
    assert circles(imports(package)) == [["house.b", "house.c", "house.room.a"]]

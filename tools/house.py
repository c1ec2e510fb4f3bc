"""The house in figures: lines, files, headers, names that stand twice, circles, signatures with Any.

    python tools/house.py [--names] [--circles]

Counts the source below `src/levelbench`; `--names` and `--circles` list what is behind these two figures.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "levelbench"


def sources() -> list[Path]:
    """The package's modules; planted parts are data."""
    return sorted(path for path in SOURCE.rglob("*.py") if path.parent.name != "planted")


def module_of(path: Path) -> str:
    """`levelbench.records.store` of its file."""
    return ".".join(("levelbench", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def header_lines(tree: ast.Module) -> int:
    """Lines of the module's docstring, its imports at the top level, and `__all__`."""
    found = 0
    for at, node in enumerate(tree.body):
        docstring = at == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        names = isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        )
        typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if docstring or names or typing or isinstance(node, ast.Import | ast.ImportFrom):
            found += (node.end_lineno or node.lineno) - node.lineno + 1
    return found


def imports_of(tree: ast.Module, modules: set[str]) -> set[str]:
    """Our modules that are imported when the module is: those at the top level."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("levelbench"):
            each = {f"{node.module}.{alias.name}" for alias in node.names} & modules
            found |= each or ({node.module} & modules)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in graph[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in graph:
        if name not in index:
            visit(name)
    return found


def import_circles() -> list[list[str]]:
    """Modules that import each other when they are imported."""
    trees = {module_of(path): ast.parse(path.read_text()) for path in sources()}
    return circles({name: imports_of(tree, set(trees)) for name, tree in trees.items()})


def names_of_several_classes() -> dict[str, list[str]]:
    """Public class names that are defined more than once, with the modules that do so."""
    classes = defaultdict(list)
    for path in sources():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(module_of(path))
    return {name: places for name, places in classes.items() if len(places) > 1}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="list public class names that are defined more than once")
    parser.add_argument("--circles", action="store_true", help="list circles of imports")
    chosen = parser.parse_args()
    texts = {path: path.read_text() for path in sources()}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    sizes = [text.count("\n") for text in texts.values()]
    small = sum(text.count("\n") < 40 for path, text in texts.items() if path.name != "__init__.py")
    statements = sum(isinstance(node, ast.stmt) for tree in trees.values() for node in ast.walk(tree))
    signatures = {True: [0, 0], False: [0, 0]}
    formula = 0
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                counts = signatures[path.relative_to(SOURCE).parts[0] == "frameworks"]
                arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                hints = [node.returns, *(each.annotation for each in arguments)]
                counts[0] += 1
                counts[1] += any("Any" in ast.unparse(hint).replace("NDArray[Any]", "") for hint in hints if hint)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                formula += "The one idea:" in (ast.get_docstring(node) or "")
    round_trips = import_circles()
    twice = names_of_several_classes()
    headers = sum(map(header_lines, trees.values()))
    for figure, value in (
        ("lines", f"{sum(sizes):,}"),
        ("statements", f"{statements:,}"),
        ("files; median; under 40 lines", f"{len(sizes)}; {statistics.median(sizes):g}; {small}"),
        ("public class names defined more than once", len(twice)),
        ("circles of imports", len(round_trips)),
        ("share of headers", f"{headers / sum(sizes):.1%}"),
        ("signatures with Any", f"{signatures[False][1] / signatures[False][0]:.1%}"),
        ("signatures with Any in frameworks", f"{signatures[True][1] / signatures[True][0]:.1%}"),
        ('docstrings with "The one idea:"', formula),
    ):
        print(f"{figure:45} {value}")
    for name, places in sorted(twice.items()) if chosen.names else ():
        print(f"{name}: {', '.join(places)}")
    for group in round_trips if chosen.circles else ():
        print(f"circle: {', '.join(group)}")


if __name__ == "__main__":
    main()

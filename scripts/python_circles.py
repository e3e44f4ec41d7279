"""Finds modules of a Python package that import each other in a circle.

Imports inside functions count, because they only hide a circle from the interpreter. Imports for
type checkers only do not count. An import of a name that an `__init__.py` imports from another
module counts as an import from that module. A package's `__init__.py` is the facade of its
modules, its parts: a part's import from its own facade does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from import_circles import strong


def circles(files: Mapping[str, str]) -> list[list[str]]:
    """Returns the import circles of a package, each as a sorted list of modules (`report/page`).

    Args:
        files: the texts by their paths below the folder that has the package, such as
            `anabranch/report/page.py`.
    """
    texts = {_module(name): (name, text) for name, text in files.items()}
    found = {module: list(_imports(*texts[module])) for module in texts}
    tops = {module: list(_imports(*texts[module], top=True)) for module in texts
            if texts[module][0].endswith("__init__.py")}  # fmt: skip
    graph = {
        module: {
            other for path in paths if (other := _target(path, tops, found))
            and not f"{module}.".startswith(f"{other}.")
        }
        for module, paths in found.items()
    }  # fmt: skip
    return sorted(
        sorted(module.replace(".", "/") for module in circle)
        for circle in strong(graph)
        if len(circle) > 1
    )


def _module(name: str) -> str:
    return name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imports(name: str, text: str, *, top: bool = False) -> Iterator[str]:
    """Yields the imported modules and names, such as `anabranch.report.page.build`.

    Args:
        name: path of the file.
        text: its text.
        top: whether to yield only the imports outside of functions and conditions.
    """
    tree = ast.parse(text)
    package = _module(name).split(".") if name.endswith("__init__.py") else name.split("/")[:-1]
    for node in tree.body if top else _walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            path = [*start, *([node.module] if node.module else [])]
            yield from (".".join([*path, each.name]) for each in node.names)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes below one, except in `if TYPE_CHECKING:`."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _walk(child)


def _target(path: str, facades: Mapping[str, list[str]], modules: Mapping[str, object]) -> str:
    """Returns the module that an imported path is from; empty for paths of other packages."""
    seen = set()
    while path not in modules and path not in seen:
        seen.add(path)
        module, _, name = path.rpartition(".")
        elsewhere = [each for each in facades.get(module, []) if each.rpartition(".")[2] == name]
        if not elsewhere:
            return module if module in modules else ""
        path = elsewhere[0]
    return path if path in modules else ""

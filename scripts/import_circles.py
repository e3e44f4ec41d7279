"""Finds files of a Rust crate that import each other in a circle.

A folder's own file (`NAME.rs` or `mod.rs`) is the facade of the files in the folder, its parts. A
facade depends on its parts; a part's import from its own facade does not count. If a facade
re-exports an item with `pub use`, an import of the item also counts as an import from the item's
own module. Test files do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import takewhile
from typing import TypeVar

from rust_source import blank, without_tests

Module = tuple[str, ...]
Node = TypeVar("Node")
_USE = re.compile(r"^\s*(pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)
#: Items that a module re-exports with `pub use`: the path of each name.
Exports = Mapping[str, list[str]]


def circles(files: Mapping[str, str]) -> list[list[str]]:
    """Returns the import circles of a crate, each as a sorted list of modules (`session/copies`).

    Args:
        files: the texts by their paths below the crate's `src/`.
    """
    texts = {_module(name): text for name, text in files.items() if _is_source(name)}
    graph = {
        module: {other for other in _imported(module, text, texts) if not _is_inside(module, other)}
        for module, text in texts.items()
    }
    return sorted(sorted("/".join(m) for m in found) for found in strong(graph) if len(found) > 1)


def _is_source(name: str) -> bool:
    return name.endswith(".rs") and not re.search(r"(?:^|/|_)tests?(?:\.rs|/)", name)


def _module(name: str) -> Module:
    parts = name.removesuffix(".rs").split("/")
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def _is_inside(one: Module, other: Module) -> bool:
    """Returns whether `one` is a part of `other`, or both are the same."""
    return one[: len(other)] == other


def _imported(module: Module, text: str, modules: Mapping[Module, str]) -> Iterator[Module]:
    yield from (part for part in modules if part[:-1] == module and part != module)
    for path, _ in _uses(text):
        yield from _reached(module, path.partition("@")[0].split("::"), modules)


def _reached(module: Module, path: list[str], modules: Mapping[Module, str]) -> Iterator[Module]:
    """Yields the module of a path, and the modules from which it re-exports the item."""
    seen = set()
    while (found := _resolved(module, path, modules)) is not None and found not in seen:
        seen.add(found)
        yield found
        full = _full(module, path, modules)
        item = full[len(found)] if full and len(full) > len(found) else "*"
        exported = _exports(modules[found]).get(item)
        if exported is None or _is_inside(module, found):
            return
        module, path = found, exported


@cache
def _uses(text: str) -> tuple[tuple[str, bool], ...]:
    """Returns the paths in `use` items, new names after an `@`, and whether each is public."""
    return tuple(_each_use(text))


def _each_use(text: str) -> Iterator[tuple[str, bool]]:
    for public, tree in _USE.findall(without_tests(blank(text))):
        renamed = re.sub(r"\s+as\s+", "@", " ".join(tree.split()))
        yield from ((path, bool(public)) for path in _paths(renamed.replace(" ", "")))


@cache
def _exports(text: str) -> Exports:
    found = {}
    for path, public in _uses(text):
        full, _, name = path.partition("@")
        if public:
            found[name or full.split("::")[-1]] = full.split("::")
    return found


def _paths(tree: str) -> Iterator[str]:
    """Yields `a::{b, c::d}` as `a::b` and `a::c::d`."""
    head, brace, rest = tree.partition("{")
    if not brace:
        yield tree
        return
    depth, start, inner = 0, 0, rest[: rest.rindex("}")]
    for at, letter in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if at > start:
                yield from (head + path for path in _paths(inner[start:at]))
            start = at + 1


def _full(module: Module, path: list[str], modules: Mapping[Module, str]) -> Module | None:
    """Returns a path relative to the crate's root; `None` for paths of other crates."""
    ups = len(list(takewhile(lambda part: part == "super", path)))
    if path[0] == "crate":
        return tuple(path[1:])
    if ups:
        return (*module[: len(module) - ups], *path[ups:])
    if path[0] == "self":
        return (*module, *path[1:])
    return (*module, *path) if (*module, path[0]) in modules else None


def _resolved(module: Module, path: list[str], modules: Mapping[Module, str]) -> Module | None:
    """Returns the crate's module that a path is in; `None` for paths of other crates."""
    full = _full(module, path, modules)
    while full and full not in modules:
        full = full[:-1]
    return full if full in modules else None


def strong(graph: Mapping[Node, set[Node]]) -> list[list[Node]]:
    """Returns the strongly connected components of a graph, by Tarjan's algorithm."""
    number: dict[Node, int] = {}
    lowest: dict[Node, int] = {}
    stack: list[Node] = []
    found: list[list[Node]] = []

    def visit(module: Node) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            place = stack.index(module)
            found.append(stack[place:])
            del stack[place:]

    for module in graph:
        if module not in number:
            visit(module)
    return found

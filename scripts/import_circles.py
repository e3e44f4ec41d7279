"""Files of a Rust crate that import each other in a circle.

A folder's own file and the files in it are a facade and its parts, which know each other by right:
imports between a module and one inside it do not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import takewhile

from rust_source import blank, without_tests

Module = tuple[str, ...]
_USE = re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.MULTILINE)


def circles(files: Mapping[str, str]) -> list[list[str]]:
    """The circles of a crate, each as its modules (`session/copies`), sorted.

    Args:
        files: the texts by their paths below the crate's `src/`.
    """
    texts = {_module(name): text for name, text in files.items() if name.endswith(".rs")}
    graph = {
        module: {other for other in _imported(module, text, texts) if not _related(module, other)}
        for module, text in texts.items()
    }
    return sorted(sorted("/".join(m) for m in found) for found in _strong(graph) if len(found) > 1)


def _module(name: str) -> Module:
    parts = name.removesuffix(".rs").split("/")
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def _related(one: Module, other: Module) -> bool:
    """Whether one is inside the other, or they are the same."""
    shorter = min(len(one), len(other))
    return one[:shorter] == other[:shorter]


def _imported(module: Module, text: str, modules: Mapping[Module, str]) -> Iterator[Module]:
    for tree in _USE.findall(without_tests(blank(text))):
        for path in _paths(re.sub(r"\s+as\s+\w+", "", tree).replace("\n", " ").replace(" ", "")):
            if (found := _resolved(module, path.split("::"), modules)) is not None:
                yield found


def _paths(tree: str) -> Iterator[str]:
    """`a::{b, c::d}` as `a::b` and `a::c::d`."""
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


def _resolved(module: Module, path: list[str], modules: Mapping[Module, str]) -> Module | None:
    """The module of the crate that a path leads into; `None` for other crates."""
    ups = len(list(takewhile(lambda part: part == "super", path)))
    if path[0] == "crate":
        full = tuple(path[1:])
    elif ups:
        full = (*module[: len(module) - ups], *path[ups:])
    elif path[0] == "self":
        full = (*module, *path[1:])
    elif (*module, path[0]) in modules:
        full = (*module, *path)
    else:
        return None
    while full and full not in modules:
        full = full[:-1]
    return full if full in modules else None


def _strong(graph: Mapping[Module, set[Module]]) -> list[list[Module]]:
    """Strongly connected components, by Tarjan's algorithm."""
    number: dict[Module, int] = {}
    lowest: dict[Module, int] = {}
    stack: list[Module] = []
    found: list[list[Module]] = []

    def visit(module: Module) -> None:
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

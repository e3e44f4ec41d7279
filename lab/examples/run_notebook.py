"""Runs a notebook's code from the first cell to the last, and keeps or compares what it prints.

    python lab/examples/run_notebook.py lab/examples/tour.ipynb          # exit code 1 if it differs
    python lab/examples/run_notebook.py lab/examples/tour.ipynb --write

A notebook here is plain Python, so that this needs neither Jupyter nor a kernel: no magics, and
what is to be seen is printed or drawn. Figures are drawn, not kept.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

INDENT = 1
"""As Jupyter writes it."""


class NotebookError(Exception):
    """A cell that fails; the message names it."""


def run(path: Path) -> list[str]:
    """What each code cell prints, all run in one namespace, in the notebook's folder.

    Raises:
        NotebookError: if one fails.
    """
    space: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    with _in_folder(path.resolve().parent):
        for number, cell in enumerate(code_cells(read(path)), 1):
            text = io.StringIO()
            source = "".join(cell["source"])
            try:
                with contextlib.redirect_stdout(text):
                    exec(compile(source, f"{path.name}, cell {number}", "exec"), space)
            except Exception as error:
                raise NotebookError(f"{path.name}, cell {number}: {error!r}") from error
            printed.append(text.getvalue())
    return printed


def read(path: Path) -> dict[str, Any]:
    """The notebook (nbformat 4)."""
    notebook: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if notebook.get("nbformat") != 4:
        raise NotebookError(f"{path.name}: is of nbformat {notebook.get('nbformat')}, not 4")
    return notebook


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Those that are run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def kept(notebook: dict[str, Any]) -> list[str]:
    """What each code cell printed when its output was written."""
    return [
        "".join("".join(output["text"]) for output in cell["outputs"])
        for cell in code_cells(notebook)
    ]


def write(path: Path, printed: list[str]) -> None:
    """Keeps what each cell printed in the notebook."""
    notebook = read(path)
    for number, (cell, text) in enumerate(zip(code_cells(notebook), printed, strict=True), 1):
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}
        cell["outputs"] = [stream] if text else []
        cell["execution_count"] = number
    path.write_text(json.dumps(notebook, indent=INDENT, ensure_ascii=False) + "\n", "utf-8")


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Where Jupyter starts a notebook's kernel, with figures drawn into memory."""
    os.environ.setdefault("MPLBACKEND", "agg")
    before = Path.cwd()
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))


def main(arguments: list[str]) -> int:
    """The command line."""
    path = Path(arguments[0])
    printed = run(path)
    if "--write" in arguments:
        write(path, printed)
        return 0
    return int(printed != kept(read(path)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Writes a report: all of its files, or none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from anabranch.io import draft
from anabranch.report import html, markdown
from anabranch.report.page import Page
from anabranch.validate import TraceError, source

NAME = "report.html"

MARKS = {
    ".html": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    ".csv": "setting,design",
    ".tex": "% Made by anabranch-lab report",
    ".jsonl": '"spec":',
}
"""Text by which a file of a report is recognised, by kind of file."""


def write(
    page: Page, folder: Path, document: Path | None = None, others: Mapping[Path, str] | None = None
) -> list[Path]:
    """Writes `report.html` and an SVG for each figure into `folder`, and a Markdown document.

    Files of an earlier report are replaced, and its figures in `folder` are removed. Files that
    are not a report's are never replaced.

    Args:
        page: the report.
        folder: created if missing.
        document: Markdown document whose generated part is replaced (`markdown.within`), or None.
        others: the texts of further files of the report.

    Returns:
        The written files.

    Raises:
        TraceError: if a file cannot be written, or one exists that no report has written; no file
            is changed then.
    """
    texts = [(folder / NAME, html.document(page))]
    texts += [(folder / f"{figure.key}.svg", figure.svg) for figure in page.figures]
    if document is not None:
        links = _links(page, folder, document)
        texts.append((document, _filled(document, markdown.document(page, links))))
    texts += (others or {}).items()
    targets = Counter(file.resolve() for file, _ in texts)
    for file, _ in texts:
        if targets[file.resolve()] > 1:
            raise TraceError(
                "two parts of the report would have this name: choose different names", file=file
            )
        _refuse_foreign(file)
    made = _make(folder)
    try:
        with ExitStack() as drafts:
            for file, text in texts:
                with source(file):
                    written = drafts.enter_context(draft.file(file))
                    written.write_text(text, "utf-8")
                    # Reports are for publication, unlike traces, which only their owner can read.
                    written.chmod(0o644)
    except BaseException:
        if made:
            folder.rmdir()
        raise
    for old in folder.glob("figure-*.svg"):
        if old.resolve() not in targets:
            old.unlink()
    return [file for file, _ in texts]


def _refuse_foreign(file: Path) -> None:
    """Refuses to replace a file without the text that identifies a report's files."""
    mark = MARKS.get(file.suffix)
    if mark is None or not file.is_file():
        return
    with source(file):
        if file.stat().st_size and mark not in file.read_text("utf-8", errors="replace"):
            raise TraceError(
                "this file exists and was not written by a report: choose another name"
            )


def _make(folder: Path) -> bool:
    """Creates the folder if it is missing; returns whether it was missing."""
    with source(folder):
        if folder.is_dir():
            return False
        if folder.exists():
            raise TraceError("is a file, not a folder")
        if not folder.parent.is_dir():
            raise TraceError("its folder does not exist")
        folder.mkdir()
    return True


def _links(page: Page, folder: Path, document: Path) -> dict[str, str]:
    """Returns links to the figures by key, if they are in a folder below the document's."""
    below, here = folder.resolve(), document.resolve().parent
    if not below.is_relative_to(here):
        return {}
    return {
        figure.key: (below.relative_to(here) / f"{figure.key}.svg").as_posix()
        for figure in page.figures
    }


def _filled(document: Path, new: str) -> str:
    with source(document):
        old = document.read_text("utf-8") if document.is_file() else None
        return markdown.within(old, new)

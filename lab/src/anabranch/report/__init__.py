"""What sweeps found, as one page that people read: tables, figures, plain words.

| module | what it does |
|---|---|
| `collection` | reads results, and finds those of a setting, an attack, an observer |
| `setting` | settings and designs under the names that people use |
| `published` | what the CoMPS paper found (`published.toml`) |
| `tables` | a table before it is HTML or Markdown; how numbers are written |
| `comparison` | the paper's Tables 3 to 6 beside ours |
| `beyond` | tables that the paper has no like of |
| `sizes` | each number beside what the size alone tells; what of a planned sweep is there |
| `costs` | what is recognised beside what it costs: splits, padding and shaping |
| `summary` | the findings in plain words, from the numbers |
| `drawing` | what all figures share: colours, text, SVG |
| `curves`, `dots` | Figures 6 and 7; accuracy of settings, observers, shares |
| `fronts` | the figure of `costs` |
| `page` | which text, table and figure stands where |
| `html`, `markdown` | the page in either form |
| `export` | the results as CSV and LaTeX |
| `files` | writes all of it, or nothing |

Nothing here computes a metric: every number is one that a result holds.
"""

from __future__ import annotations

from importlib.util import find_spec

from anabranch.nets import MissingExtraError, how_to_install


def require_matplotlib() -> None:
    """Raises `MissingExtraError` where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError(f"reports need matplotlib: {how_to_install('report')}")

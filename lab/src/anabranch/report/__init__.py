"""Reports: the results of sweeps as one page with tables, figures and findings in plain words.

| module | what it does |
|---|---|
| `collection` | reads results, and selects them by setting, attack and observer |
| `setting` | settings and designs under readable names |
| `published` | the CoMPS paper's results (`published.toml`) |
| `tables` | tables before HTML or Markdown; the format of numbers |
| `comparison` | the paper's Tables 3 to 6 next to ours |
| `beyond` | tables without a counterpart in the paper |
| `sizes` | each accuracy next to that of the attack `size`; progress of a planned sweep |
| `costs` | recognition against cost: splits, padding and shaping |
| `summary` | the findings in plain words, from the numbers |
| `drawing` | common parts of all figures: colours, text, SVG |
| `curves`, `dots` | Figures 6 and 7; accuracy of settings, observers, shares |
| `fronts` | the figure of `costs` |
| `page` | the arrangement of texts, tables and figures |
| `html`, `markdown` | the page in either form |
| `export` | the results as CSV and LaTeX |
| `files` | writes all files, or none |

No module here computes a metric: every number comes from a result.
"""

from __future__ import annotations

from importlib.util import find_spec

from anabranch.nets import MissingExtraError, how_to_install


def require_matplotlib() -> None:
    """Raises `MissingExtraError` where matplotlib is not installed."""
    if find_spec("matplotlib") is None:
        raise MissingExtraError(f"reports need matplotlib: {how_to_install('report')}")

"""The lab: what an observer of one path learns of a split session.

Every decision of a schedule is made by `anabranch._core`, the same Rust code that splits live
traffic; there is no second scheduler here. A tour:

* `anabranch.traces`: recorded loads in memory; `anabranch.io`: the files that hold them.
* `anabranch.splitting`: a `Split` gives each packet its path.
* `anabranch.attacks`: what tries to recognise the page.
* `anabranch.anonymity`: what hostile relays of an onion network learn of clients with several
  paths.
"""

from anabranch._core import __version__

__all__ = ["__version__"]

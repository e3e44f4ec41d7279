"""The lab: what an observer of one path learns of a split session.

Every decision of a schedule is made by `anabranch._core`, the same Rust code that splits live
traffic; there is no second scheduler here. A tour:

* `anabranch.traces`: recorded loads in memory; `anabranch.io`: the files that hold them.
* `anabranch.splitting`: a `Split` assigns each packet to a path.
* `anabranch.attacks`: attacks that try to recognise the page.
* `anabranch.anonymity`: how much hostile relays of an onion network learn about multi-path clients.
"""

from anabranch._core import __version__

__all__ = ["__version__"]

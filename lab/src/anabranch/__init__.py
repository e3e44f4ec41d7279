"""The lab: measures what the observer of one path learns from a split session.

`anabranch._core` contains the Rust code that also splits live traffic. This code makes every
choice of a path. The modules:

* `anabranch.traces`: recorded page loads in memory; `anabranch.io`: their files.
* `anabranch.splitting`: a `Split` assigns each packet to a path.
* `anabranch.attacks`: attacks that try to recognise the page.
* `anabranch.anonymity`: how much hostile relays of an onion network learn about multi-path clients.
"""

from anabranch._core import __version__

__all__ = ["__version__"]

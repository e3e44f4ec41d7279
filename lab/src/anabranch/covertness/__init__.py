"""The covertness lab: what a detector says of a transport's connections, beside a browser's.

It takes captures that were made at a client's line, and looks at each TCP connection as who stands
on the way does: from outside. A tour:

* `manifest`: which captures there are, and what made each.
* `flows`: a capture as connections, with each direction put in order; `http` finds requests and
  answers where they are in clear.
* `detectors`: fixed rules that were published or follow from what was, one a file.
* `features`: numbers of one connection; `servers`: of all connections of one server.
* `statistics`: distances, areas and rates with intervals; `forest`: a classifier whose folds never
  share a site.
* `requests`: how long a class's requests are, how many, and how they are answered.
* `judge` does all of it, `page` and `command` show it.
"""

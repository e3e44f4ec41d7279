"""The covertness lab: how well a transport's connections can be distinguished from a browser's.

It reads captures from a client's line, and analyses each TCP connection as an observer on the path
would. The modules:

* `manifest`: the captures of a folder, and the program that made each.
* `flows`: a capture as connections, with each direction in order; `http` finds cleartext requests
  and responses.
* `detectors`: fixed rules, published or derived from published ones, one a file.
* `features`: of one connection; `servers`: of all connections of one server.
* `statistics`: distances, areas and rates with intervals; `forest`: a classifier whose folds never
  share a site.
* `requests`: lengths and numbers of a class's requests, and their responses.
* `judge` runs all measurements; `page` and `command` show the results.
"""

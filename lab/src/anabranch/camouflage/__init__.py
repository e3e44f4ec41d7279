"""Website fingerprinting of page loads through pluggable transports (`make camouflage-loads`).

| module | what |
|---|---|
| `captures` | the captures of `bench/camouflage_fingerprinting.py`, as traces |
| `attacks` | the attacks and their parameters |
| `sums` | the classifier of StegoTorus' paper: Gaussians of cumulative sums |
| `folds` | predictions of an attack for every load, by cross-validation |
| `judge` | all evaluations; each result is a line of JSON |
| `numbers` | results as text |
| `page` | the results page |
| `command` | `anabranch-lab camouflage` |
"""

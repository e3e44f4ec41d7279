"""Sub-commands of `anabranch-lab`, one module each, and their common parts.

| module | what |
|---|---|
| `convert`, `inspect`, `split` | on files of traces |
| `evaluate`, `sweep` | one evaluation, and lists of them |
| `simulate` | a sweep of the simulator, on several machines |
| `evaluation_options` | the options of `evaluate`, in a group for each concern |
| `groups` | groups of options as dataclasses |
| `options` | options that several commands have |
| `progress` | bars on a terminal, lines elsewhere |
| `errors` | expected errors as one line |

The other commands are modules of other packages, such as `report.command`.
"""

"""The index of the four papers' tables, figures and claims: `docs/reproduction.md`.

| module | what |
|---|---|
| `claims`, `claims.toml` | the papers' claims, with their numbers, and where each is measured |
| `data` | reader of the committed data of `docs/results` |
| `found` | our result for a claim, with its verdict, and the rules of verdicts |
| `spread` | intervals of means and medians over rounds |
| `attacks` | website fingerprinting: CoMPS' Tables 3 to 6 |
| `splitting` | CoMPS' data set, the censor, and the cost in speed |
| `onions` | multi-path onion routing and unordered links |
| `udp`, `wide` | UDP designs and MORE on loopback; the larger network, in simulation |
| `advice` | the table of designs for section 5.3 of the paper on multi-path onion routing |
| `anonymity` | hostile relays and guard fingerprints |
| `camouflage` | StegoTorus |
| `index` | the page |
| `command` | `anabranch-lab reproduction` |
"""

from anabranch.reproduction.command import reproduction

__all__ = ["reproduction"]

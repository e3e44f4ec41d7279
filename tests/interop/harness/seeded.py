"""The bytes that every test server sends, generated from a seed so that their hash is known.

The stream of a seed is the concatenation of SHA-256("anabranch" || seed || i) for i = 0, 1, 2, …,
with seed and i as big-endian 64-bit numbers. The Go and the Rust peers make the same bytes.
"""

from __future__ import annotations

import functools
import hashlib

SEED = 1
MIB = 1024 * 1024


@functools.lru_cache(maxsize=4)
def seeded_bytes(length: int, seed: int = SEED) -> bytes:
    """Returns the first ``length`` bytes of the stream of ``seed``."""
    prefix = b"anabranch" + seed.to_bytes(8, "big")
    blocks = range((length + 31) // 32)
    made = b"".join(hashlib.sha256(prefix + i.to_bytes(8, "big")).digest() for i in blocks)
    return made[:length]


@functools.cache
def seeded_sha256(length: int, seed: int = SEED) -> str:
    """Returns the hexadecimal SHA-256 of the first ``length`` bytes of the stream of ``seed``."""
    return hashlib.sha256(seeded_bytes(length, seed)).hexdigest()

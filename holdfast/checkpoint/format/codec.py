"""Encode and decode chunks: the bytes as they are, or byte-shuffled and compressed with zstd.

"shuffle<n>+zstd": the longest prefix of the raw bytes that is a multiple of n is taken as rows of n bytes and
written column by column (all first bytes, then all second bytes, ...); the rest follows unchanged. All of it
is one zstd frame that records its content's size. n is the width of the numbers: their exponents, which
resemble each other, come to lie side by side. numpy and zstd release the GIL while they work.

Columns of numbers have few distinct values and no repeated phrases. So a short memory for matches, and only
long matches, leave nearly everything to the entropy coder. That takes half the time of plain level 1, and
saves more."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import zstandard

from holdfast.checkpoint.format import names
from holdfast.checkpoint.format.names import PLAIN

if TYPE_CHECKING:
    from holdfast.checkpoint.format.names import Bytes

AUTO, ZSTD = "auto", "zstd"
SETTINGS = (PLAIN, ZSTD, AUTO)
"""What a job may ask for."""
_LEVEL, _HASH_LOG, _MATCH_BYTES = 1, 8, 7
_WORTH = 0.97
"""A chunk that does not shrink below this share of its size is stored as it is."""
_WIDTHS = {
    "float64": 8, "int64": 8, "uint64": 8, "complex128": 8,
    "float32": 4, "int32": 4, "uint32": 4, "complex64": 4,
    "bfloat16": 2, "float16": 2, "int16": 2, "uint16": 2,
}  # fmt: skip
_own = threading.local()


class CodecError(ValueError):
    """Stored bytes that no codec has written."""


def for_dtype(dtype: str) -> str:
    """The compressing codec for tensors of this dtype."""
    return f"shuffle{_WIDTHS.get(dtype, 1)}+zstd"


def encode(content: Bytes, codec: str) -> Bytes | None:
    """A chunk's bytes as they are to be stored; None if compression is not worth it."""
    width = names.item_bytes(codec)
    if not width:
        return content
    stored: bytes = _compressor(width > 1).compress(_reordered(content, width, forth=True))
    return stored if len(stored) < _WORTH * len(content) else None


def decode(stored: Bytes, codec: str, nbytes: int) -> Bytes:
    """The chunk's `nbytes` raw bytes. Raises CodecError if `stored` cannot be decoded to them."""
    width = names.item_bytes(codec)
    if not width:
        return stored
    try:
        claimed = zstandard.frame_content_size(stored)
        if claimed != nbytes:
            raise CodecError(f"claims to hold {claimed} bytes, not {nbytes}")
        plain = _decompressor().decompress(stored, allow_extra_data=False)
        return _reordered(plain, width, forth=False)
    except zstandard.ZstdError as error:
        raise CodecError(f"cannot be decompressed: {error}") from error


def stored_most(nbytes: int, codec: str) -> int:
    """The largest number of bytes that a chunk of `nbytes` can take on storage."""
    return int(nbytes * _WORTH) + 1 if names.item_bytes(codec) else nbytes


def _reordered(content: Bytes, width: int, *, forth: bool) -> Bytes:
    """Items of `width` bytes to columns (`forth`), or columns back to items; the rest stays."""
    count = len(content) // width
    if width == 1 or not count:
        return content
    import numpy as np  # only here: an agent that never shuffles need not load it

    source, target = np.frombuffer(content, np.uint8), np.empty(len(content), np.uint8)
    items, columns = (source, target) if forth else (target, source)
    end = count * width
    sides = items[:end].reshape(count, width).T, columns[:end].reshape(width, count)
    given, made = sides if forth else sides[::-1]
    for byte in range(width):
        made[byte] = given[byte]
    target[end:] = source[end:]
    return target.data


def _compressor(columns: bool) -> zstandard.ZstdCompressor:
    """This thread's compressor, for columns or for plain bytes: compressors must not be shared."""
    if not hasattr(_own, "compressors"):
        made = zstandard.ZstdCompressionParameters.from_level
        plain, short = made(_LEVEL), made(_LEVEL, hash_log=_HASH_LOG, min_match=_MATCH_BYTES)
        _own.compressors = [zstandard.ZstdCompressor(compression_params=params) for params in (plain, short)]
    compressor: zstandard.ZstdCompressor = _own.compressors[columns]
    return compressor


def _decompressor() -> zstandard.ZstdDecompressor:
    if not hasattr(_own, "decompressor"):
        _own.decompressor = zstandard.ZstdDecompressor()
    decompressor: zstandard.ZstdDecompressor = _own.decompressor
    return decompressor

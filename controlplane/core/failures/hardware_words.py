"""List the words by which the text of an exception names a device or a link rather than the script.

There is one list. `blame` asks whether any of them is there; the table of `analysis.failure_logs.wordings`
has a row for each, with the cause and the source that are named here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HardwareWords:
    """Words, in lower case, with one meaning. `cause`: a code of `analysis.failure_logs.causes`; `source`: a
    key of `analysis.failure_logs.wordings.SOURCES`."""

    cause: str
    source: str
    words: tuple[str, ...]


HARDWARE = (
    HardwareWords("ecc_error", "cuda", ("ecc error", "uncorrectable")),
    HardwareWords("nvlink_error", "cuda", ("nvlink",)),
    HardwareWords("gpu_fault", "xid", ("xid",)),
    HardwareWords("nccl_error", "nccl group", ("nccl error",)),
    HardwareWords("cuda_error", "cuda", ("cuda error", "acceleratorerror")),
)
"""The particular stands before the general: the first that fits counts."""

HARDWARE_WORDS = tuple(word for each in HARDWARE for word in each.words)
"""All of them. An exception whose text has one is more likely the device's than the script's."""

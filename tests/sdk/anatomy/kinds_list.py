"""The ways of training that kinds.py tries."""

KINDS = (
    *("plain", "unused", "static", "no_sync", "fp16", "power", "own"),
    *("reentrant", "not_reentrant", "buffers", "backward", "waits", "snapshot"),
)

"""Turn seconds and bytes into ratios, and list the aims."""

from __future__ import annotations

from benchmarks.report import Aim

RATIOS: dict[str, tuple[str, str]] = {
    "stall_vs_memcpy": ("stall_s", "memcpy_s"),
    "total_vs_disk_limit": ("total_s", "disk_s"),
    "total_vs_safetensors": ("total_s", "safetensors_s"),
    "restore_vs_safetensors": ("restore_s", "safetensors_load_s"),
    "stall_vs_dcp_async": ("stall_s", "async_thread_stall_s"),
    "stall_vs_dcp_cached": ("stall_s", "async_cached_stall_s"),
    "total_vs_async_thread": ("total_s", "async_thread_total_s"),
    "total_vs_async_process": ("total_s", "async_process_total_s"),
    "total_vs_dcp_save": ("total_s", "dcp_save_s"),
    "step_slowdown": ("step_during_s", "step_alone_s"),
    "bytes_dense": ("dense_bytes", "state_bytes"),
    "bytes_codec": ("codec_bytes", "state_bytes"),
    "bytes_partial": ("partial_bytes", "partial_allowed_bytes"),
    "restore_vs_dcp_load": ("restore_s", "dcp_load_s"),
    "restore_vs_disk_limit": ("restore_s", "disk_read_s"),
    "restore_shm_vs_dcp_load": ("restore_memory_s", "dcp_load_s"),
    "restore_peer_vs_grpc": ("peer_s", "grpc_s"),
    "wait_vs_memcpy": ("lazy_wait_s", "lazy_memcpy_s"),
    "step_every_snapshot": ("lazy_step_s", "lazy_plain_s"),
    "short_step_every_snapshot": ("lazy_short_step_s", "lazy_short_plain_s"),
}
"""Each ratio: which measurement is divided by which."""

AIMS = (
    Aim("stall within 1.25x of a warm memcpy", "stall_vs_memcpy", None, 1.25),
    Aim("stall 0.3x of dcp.async_save", "stall_vs_dcp_async", None, 0.3),
    Aim("stall 1.0x of its cached stager", "stall_vs_dcp_cached", None, 1.0),
    Aim("durable within 1.25x of the disk's limit", "total_vs_disk_limit", None, 1.25),
    Aim("durable 0.35x of async_save, thread", "total_vs_async_thread", None, 0.35),
    Aim("durable 0.45x of async_save, process", "total_vs_async_process", None, 0.45),
    Aim("durable 0.5x of dcp.save", "total_vs_dcp_save", None, 0.5),
    Aim("durable 0.75x of safetensors with fsync", "total_vs_safetensors", None, 0.75),
    Aim("steps during an upload 1.03x", "step_slowdown", None, 1.03),
    Aim("dense state 1.01x of its bytes", "bytes_dense", None, 1.01),
    Aim("with the codec 0.83x of its bytes", "bytes_codec", None, 0.83),
    Aim("partial change: its bytes and a chunk per tensor", "bytes_partial", None, 1.0),
    Aim("cold restore 0.55x of dcp.load", "restore_vs_dcp_load", None, 0.55),
    Aim("cold restore 0.9x of safetensors", "restore_vs_safetensors", None, 0.9),
    Aim("cold restore within 1.25x of the disk's limit", "restore_vs_disk_limit", None, 1.25),
    Aim("restore from memory 0.2x of dcp.load", "restore_shm_vs_dcp_load", None, 0.2),
    Aim("restore from a peer 1.5x of raw gRPC", "restore_peer_vs_grpc", None, 1.5),
    Aim("steps wait 0.1x of a memcpy for a lazy copy", "wait_vs_memcpy", None, 0.1),
    Aim("a snapshot every step: 1.03x at 10 copies a step", "step_every_snapshot", None, 1.03),
    Aim("a snapshot every step: 1.1x at 3 copies a step", "short_step_every_snapshot", None, 1.1),
)


def ratios(medians: dict[str, float], state_bytes: int) -> dict[str, float | None]:
    """Every ratio whose parts were measured; None for the others."""
    known = medians | {"state_bytes": float(state_bytes)}
    return {
        name: round(known[value] / known[against], 4) if value in known and against in known else None
        for name, (value, against) in RATIOS.items()
    }

"""Own a launcher's folder: its lock, its private socket, and who may connect to it.

Standard library and holdfast.folders only."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from typing import TYPE_CHECKING

from holdfast.folders import FolderError, make_own

if TYPE_CHECKING:
    from pathlib import Path

SOCKET_NAME = "launcher.sock"
PID_NAME = "launcher.pid"


def prepare(run_dir: Path) -> int:
    """Make the folder our own and lock it. Returns the lock's descriptor. Exits with the fix."""
    try:
        make_own(run_dir)
    except FolderError as error:
        sys.exit(f"{error}; give another --run-dir")
    descriptor = os.open(run_dir / PID_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another launcher uses {run_dir}: give another --run-dir")
    os.ftruncate(descriptor, 0)
    os.write(descriptor, f"{os.getpid()}\n".encode())
    return descriptor


def listener(path: Path) -> socket.socket:
    """A bound socket at this path that only our user may open."""
    bound = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    finally:
        os.umask(before)
    return bound


def check_peer(peer: socket.socket) -> None:
    """Raise PermissionError unless the process at the other end belongs to our user or to root."""
    _, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid not in (os.getuid(), 0):
        raise PermissionError(f"user {uid} may not connect")

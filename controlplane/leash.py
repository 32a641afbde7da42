"""Ties a process to the one that starts it: `leash.py SIGNAL PARENT ARGV...` becomes another program that
gets a signal when its parent dies.

A program of its own, because code between fork and exec may deadlock in a process that has threads."""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def leashed(argv: list[str], number: int) -> list[str]:
    """The command that becomes `argv`; the kernel sends it the signal `number` when the thread that starts it
    ends, however that comes. So start it from one that stays, as the main thread does."""
    return [sys.executable, "-I", "-S", __file__, str(int(number)), str(os.getpid()), *argv]


def main() -> None:
    """Tie this process to its parent, then exec."""
    number, parent, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is gone already")
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()

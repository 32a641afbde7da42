"""Tie a process to its parent: the kernel sends it a signal when the parent ends.

Run as `parent_death.py SIGNAL PARENT ARGV...`, it asks the kernel for that signal (PR_SET_PDEATHSIG), then
becomes ARGV by exec, which keeps the request. If the parent ended before the request, no signal would ever
come: so the parent's pid is compared afterwards, and the process ends when it has changed.

This is a program of its own because code between fork and exec may deadlock in a process that has threads."""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def with_parent_death_signal(argv: list[str], number: int) -> list[str]:
    """Return the command that becomes `argv`, and that the kernel sends the signal `number` when its parent
    ends, for whatever reason.

    The kernel watches the thread that starts the command, not its process. So start it from a thread that
    stays, as the main thread does."""
    return [sys.executable, "-I", "-S", __file__, str(int(number)), str(os.getpid()), *argv]


def main() -> None:
    """Ask for the signal, check that the parent still lives, then exec."""
    number, parent, argv = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent process has already ended")
    os.execvp(argv[0], argv)


if __name__ == "__main__":
    main()

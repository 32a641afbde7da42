"""Be process 1 of a host: start programs on request, reap what ends, and report it.

Input: {"start": name, "argv", "env", "log"}, one JSON object a line. Output: {"started": name, "pid"} and
{"ended": pid, "status"}; pids as this host sees them. The host dies with this process. Standard library
only."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from typing import Any


def main() -> None:
    """Serve until standard input ends."""
    socket.sethostname(sys.argv[1])
    awake, told = socket.socketpair()
    awake.setblocking(False)
    told.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    say(ready=sys.argv[1])
    waiting = b""
    while True:
        readable, _, _ = select.select([0, awake.fileno()], [], [])
        if awake.fileno() in readable:
            awake.recv(4096)
            reap()
        if 0 not in readable:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            start(json.loads(line))


def start(order: dict[str, Any]) -> None:
    """Fork, direct the outputs to the log, become the program."""
    pid = os.fork()
    if pid:
        say(started=order["start"], pid=pid)
        return
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execve(order["argv"][0], order["argv"], order["env"])
    except OSError as error:
        os.write(2, f"{order['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def reap() -> None:
    """Report how every ended process ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        say(ended=pid, status=status)


def say(**message: object) -> None:
    """One line on standard output."""
    os.write(1, (json.dumps(message) + "\n").encode())


if __name__ == "__main__":
    main()

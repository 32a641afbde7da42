"""One process of a group that is broken while it forms (of three), or in the middle of a transfer (of two).

`lone.py STORE RANK DEED OUT`: meets the others at STORE, and then does DEED. The file OUT/interrupt is its
order to leave the group. It writes its result to OUT/RANK."""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist

from holdfast.errors import Interrupted
from holdfast.groups import sockets
from holdfast.groups.groups import Groups
from holdfast.ipc.formation import Formation, Resume

STORE, RANK, DEED, OUT = sys.argv[1], int(sys.argv[2]), sys.argv[3], Path(sys.argv[4])
ELEMENTS = 50_000_000  # 200 MB: far more than what sockets hold
BEGUN_BYTES = 1 << 20
_BYTES = slice(120, 136)  # of TCP_INFO: bytes that the peer has acknowledged, bytes that came
GIVER = {"receives": 0, "broadcasts": 0, "sends": 1}
"""By deed: the rank (0 or 1) that gives what the other one waits for. Rank 1 lives on."""

groups = Groups("127.0.0.1", "gloo")
groups.serve(set)
groups.heed(lambda _: (OUT / "interrupt").exists())


def hear() -> None:
    while True:
        if (OUT / "interrupt").exists():
            groups.sever(1)
        time.sleep(0.02)


def die_halfway() -> None:
    """Kill this process in the middle of the transfer: once its own sockets show that many bytes have
    passed."""
    while True:
        for handle in sockets.opened():
            known, borrowed = sockets.ports(handle), sockets.borrow(handle)
            if borrowed is None:
                continue
            with borrowed:
                if known and known[1]:
                    info = borrowed.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    if max(struct.unpack("=QQ", info[_BYTES])) > BEGUN_BYTES:
                        os.kill(os.getpid(), signal.SIGKILL)


def transfer() -> None:
    tensor = torch.full((ELEMENTS,), float(RANK))
    dist.barrier()
    if RANK == 0:
        threading.Thread(target=die_halfway, daemon=True).start()
    if DEED == "broadcasts":
        dist.broadcast(tensor, GIVER[DEED])
    elif GIVER[DEED] == RANK:
        dist.send(tensor, 1 - RANK)
    else:
        dist.recv(tensor, 1 - RANK)


def tell(what: str) -> None:
    draft = OUT / f".{RANK}"
    draft.write_text(what)
    draft.rename(OUT / str(RANK))


threading.Thread(target=hear, daemon=True).start()
size = 3 if DEED == "forms" else 2
formation = Formation(1, RANK, RANK, size, size, (), STORE, "", 0, Resume("fresh", 0, 0))
try:
    groups.form(formation)
    groups.formed()
    if DEED != "forms":
        transfer()
    tell("ended well")
except Interrupted as error:
    tell(f"left: {error}")
except RuntimeError as error:
    tell(f"broken: {error}")
groups.dissolve()
tell((OUT / str(RANK)).read_text() + ", and dissolved")

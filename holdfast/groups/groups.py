"""Form the process groups of a generation, break them from another thread, and dissolve them.

A blocked gloo collective ends only when a connection breaks, so this module keeps track of which sockets
belong to the groups: those opened since the generation began to form, later narrowed to the groups' ports,
which the ranks exchange. `sever` shuts them down from the agent client's thread; groups of NCCL are also
aborted."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import distributed_c10d

from holdfast.errors import Interrupted
from holdfast.groups import alike, sockets, torch_texts, waiting
from holdfast.groups.answering import Answering
from holdfast.groups.flight_record import FlightRecord
from holdfast.ipc.formation import split_address

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from holdfast.ipc.formation import Formation

_CONNECT_TRY_S = 0.25
_STORE_TRY = timedelta(seconds=1)
_CONNECT_PAUSE_S = 0.02
_FORGOTTEN_S = 0.3  # an operation whose connection was cut ends within milliseconds, or never
_SIOCGIFADDR = 0x8915


def choose_backend(wanted: str | None) -> str:
    """The backend of this process: the one asked for, else nccl if there is a GPU, else gloo."""
    return wanted or ("nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo")


class Groups:
    """The default group of the current generation, and what is needed to break it."""

    def __init__(self, address: str, backend: str) -> None:
        self.backend = backend
        self._ours: Callable[[], set[int]] = set  # returns inodes of sockets that belong to no group
        self._store: TCPStore | None = None
        self._client: TCPStore | None = None
        self._served: frozenset[sockets.Handle] = frozenset()
        self._before: frozenset[sockets.Handle] = frozenset()
        self._window: frozenset[sockets.Handle] | None = None
        self._growing = False  # the script may still make groups of its own
        self._cut = 0, 0.0  # a generation, and when its connections were first cut (monotonic, s)
        self._severed = 0  # the newest generation that was severed here
        self._made: Any = None  # the present default group
        self._lock = threading.Lock()
        self._address = address
        self._active = 0
        self._ranks = 0
        self._line: frozenset[sockets.Handle] = frozenset()  # the connection to the generation's store
        self._answering = Answering()
        self.flight_record = FlightRecord()
        name = _interface(address)
        if name:  # gloo must bind to the address at which peers reach this node
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)

    def serve(self, ours: Callable[[], set[int]]) -> str:
        """Open this process's TCPStore, once. Returns the "host:port" at which peers reach it.

        `ours`: returns inodes of sockets that belong to no group."""
        self._ours = ours
        if self._store is None:
            before = sockets.opened()
            self._store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False, multi_tenant=True)
            self._served = sockets.opened() - before
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"{host}:{self._store.port}"

    def form(self, formation: Formation) -> None:
        """Build the generation's default group. Raises Interrupted, SessionError, or what torch raises if it
        fails."""
        self.flight_record.begin(formation.number)
        with self._lock:
            self._before, self._window = sockets.opened(), None
            self._active, self._ranks = formation.number, formation.world_size
            self._line = frozenset()
            self._answering.begin()
        host, port = split_address(formation.store)
        self._client = self._reach(host, port, formation.number)
        found = _ports(sockets.opened() - self._before)
        self._line = frozenset(handle for handle, known in found.items() if known[1] == port)
        if self.backend == "gloo":
            waiting.begin(lambda: self.broken, self.flight_record.transfers)
        hook = sys.excepthook
        store = PrefixStore(f"generation-{formation.number}", self._client)
        alike.publish(store, formation.rank)
        try:
            dist.init_process_group(
                self.backend,
                store=store,
                rank=formation.rank,
                world_size=formation.world_size,
            )
        finally:
            sys.excepthook = hook  # torch wraps it at each init, one layer deeper every time
        if self._stale(formation.number):  # some of its connections may be our own answers
            raise Interrupted
        self._made = dist.group.WORLD
        if self.backend == "gloo":
            alike.check(store, formation.world_size)

    def check_alike(self) -> None:
        """Raise SessionError unless all ranks run one version.

        Call it after their first collective: with NCCL a rank may begin before all others are there."""
        if self.backend != "gloo" and self._client is not None:
            alike.check(PrefixStore(f"generation-{self._active}", self._client), self._ranks)

    def formed(self) -> int:
        """Fix the set of the groups' sockets. Returns the port at which they were accepted, 0 if unknown.

        NCCL connects with the first collective, so its set is fixed by `narrow`."""
        if self.backend != "gloo":
            return 0
        found = _ports(sockets.opened() - self._before)
        listeners = [known[0] for known in found.values() if not known[1]]
        with self._lock:
            self._window = _connected(found)
        return listeners[0] if len(listeners) == 1 else 0

    def grow(self) -> None:
        """Begin to count new connections to peers as those of the script's own groups (meshes), until
        `settle`."""
        with self._lock:
            self._growing = True

    def listeners(self) -> list[int]:
        """The ports at which this process's groups were accepted, including the script's own groups."""
        known = _ports(sockets.opened() - self._before)
        return sorted(found[0] for found in known.values() if not found[1])

    def settle(self, own: set[int], peers: set[int]) -> None:
        """Fix the set of sockets once all groups are made.

        They are those accepted at our ports `own`, or connected to ports `peers` of peers."""
        found = _ports(sockets.opened() - self._before)
        theirs = {h for h, known in found.items() if known[0] in own or known[1] in peers}
        with self._lock:
            self._growing = False
            self._window = (self._window or frozenset()) | theirs

    def narrow(self, own: int, peers: set[int]) -> None:
        """Keep only sockets that were accepted at our port or connected to a peer's port.

        With NCCL, fix the set of the groups' sockets instead, which have connected by now."""
        if self.backend != "gloo":
            found = _ports(sockets.opened() - self._before)
            with self._lock:
                self._window = _connected(found)
            return
        if not own or 0 in peers:
            return
        with self._lock:
            found = _ports(self._window or ())
            self._window = frozenset(h for h, known in found.items() if known[0] == own or known[1] in peers)

    def sever(self, generation: int) -> bool:
        """From another thread: break what is blocked in this generation or an older one. True: call again
        soon."""
        with self._lock:
            if not self._active or self._active > generation:
                return False
            self._severed = self._active
            since = sockets.opened() - self._before
            for handle in self._theirs(since):
                sockets.shut(handle)
            if self.backend == "gloo":
                self._answering.answer(since, self._ranks)
                self._give_up_late()
        if self.backend != "gloo":
            _abort()
        return True

    def _give_up_late(self) -> None:
        """Give up the operations that gloo has forgotten: those that a cut connection ends have ended by
        now."""
        now = time.monotonic()
        if self._cut[0] != self._active:
            self._cut = self._active, now
        if now - self._cut[1] > _FORGOTTEN_S:
            waiting.give_up()

    @property
    def broken(self) -> bool:
        """Whether the generation's groups carry nothing any more: severed here, or broken by a peer.

        For the main thread; takes microseconds."""
        if self._active and self._severed >= self._active:
            return True
        window = self._window
        return self.backend == "gloo" and window is not None and not sockets.whole(window)

    def explain(self, error: BaseException) -> bool:
        """Whether this error means that communication with a peer failed, rather than the script's code.

        torch's errors show that by their type, gloo's by the place that raised them; else the groups' own
        state counts."""
        if isinstance(error, dist.DistError) or torch_texts.is_of_gloo(error):
            return True
        return isinstance(error, RuntimeError | ConnectionError) and self.broken

    @property
    def foreign(self) -> bool:
        """Whether there is a default group that was not made here."""
        return dist.is_initialized() and dist.group.WORLD is not self._made

    def _theirs(self, since: frozenset[sockets.Handle]) -> set[sockets.Handle]:
        """Of the sockets opened since the generation began to form: those of its groups and its store."""
        found = _ports(since)
        known = {handle: found[handle] for handle in _connected(found)}
        if self._window is None:  # still forming: all of them are the store's or the group's
            ours = self._ours()
            return {h for h in since if h.inode not in ours and (h in known or sockets.connecting(h))}
        theirs = {handle for handle in self._window | self._line if handle in known}
        if self._growing:  # and those that lead to the hosts of the group's peers
            peers = {known[handle][2] for handle in theirs & self._window}
            theirs |= {h for h, own in known.items() if own[2] in peers}
            theirs |= {h for h in since if sockets.connecting(h)}
        return theirs

    def dissolve(self) -> None:
        """From the main thread: end the generation's groups."""
        with self._lock:
            self._active, self._growing, self._made = 0, False, None
        for handle in self._window or ():
            sockets.shut(handle)  # before the script's own groups go: these breaks show peers what failed
        _abort()
        # A failed init has counted a group that it did not make: names would differ between ranks.
        distributed_c10d._world.group_count = 0
        self._window, self._before, self._client = None, frozenset(), None
        waiting.end()

    def neutralise(self) -> None:
        """In a forked child: close these sockets, which are the parent's, and forget its waiting threads."""
        waiting.neutralise()
        sockets.close_inherited(self._served | (self._window or frozenset()))

    def _reach(self, host: str, port: int, generation: int) -> TCPStore:
        """Connect to the generation's store. It may never exist: an interrupt ends the attempts."""
        while not self._stale(generation):
            try:
                socket.create_connection((host, port), _CONNECT_TRY_S).close()
                client = TCPStore(host, port, None, False, timeout=_STORE_TRY, wait_for_workers=False)
                client.set_timeout(dist.default_pg_timeout)
                return client
            except (OSError, dist.DistError):  # a silent server: torch retries for as long as it may
                time.sleep(_CONNECT_PAUSE_S)
        raise Interrupted

    _stale: Callable[[int], bool] = staticmethod(lambda _: False)

    def heed(self, stale: Callable[[int], bool]) -> None:
        """Set the function that tells whether a generation is known to be broken."""
        self._stale = stale


_Ports = tuple[int, int, str]
"""Own port; the peer's port, 0 for a listener; the peer's IP address."""


def _ports(handles: Iterable[sockets.Handle]) -> dict[sockets.Handle, _Ports]:
    """The ports of those that are TCP sockets."""
    return {handle: found for handle in handles if (found := sockets.ports(handle))}


def _connected(found: dict[sockets.Handle, _Ports]) -> frozenset[sockets.Handle]:
    """Those that are connected to a peer."""
    return frozenset(handle for handle, known in found.items() if known[1])


def _abort() -> None:
    if dist.is_initialized():
        distributed_c10d._abort_process_group()


def _interface(address: str) -> str:
    """The network interface that has this IPv4 address; "" if none has."""
    try:
        wanted = socket.gethostbyname(address)
    except OSError:
        return ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:  # this interface has no address
                continue
            if socket.inet_ntoa(answer[20:24]) == wanted:
                return name
    return ""


def device_for(backend: str, local_rank: int) -> torch.device:
    """The device this rank computes on. A GPU is made the current device."""
    if backend != "nccl" and not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank % max(torch.cuda.device_count(), 1))
    torch.cuda.set_device(device)
    return device


def carrier(backend: str, device: torch.device) -> torch.device:
    """The device on which tensors must be to go through the group: the GPU for nccl, the host for gloo."""
    return device if backend == "nccl" else torch.device("cpu")


def gather_numbers(numbers: list[int], device: torch.device, world_size: int) -> list[list[int]]:
    """Every rank's numbers, one row per rank. All ranks call it with equally many numbers (int64)."""
    own = torch.tensor(numbers, dtype=torch.int64, device=device)
    if world_size == 1:
        return [numbers]
    every = torch.empty(world_size * len(numbers), dtype=torch.int64, device=device)
    dist.all_gather(list(torch.split(every, len(numbers))), own)
    rows: Any = every.view(world_size, len(numbers)).tolist()
    return [[int(value) for value in row] for row in rows]


def gather_bytes(
    own: bytes, device: torch.device, world_size: int, sizes: list[int] | None = None
) -> list[bytes]:
    """Every rank's bytes, by rank. All ranks call it. `sizes`: how many each has, if all know that already.

    All ranks send as many as the largest: of the others the rest is cut off again."""
    if world_size == 1:
        return [own]
    sizes = sizes or [size for (size,) in gather_numbers([len(own)], device, world_size)]
    most = max(*sizes, 1)
    row = torch.frombuffer(bytearray(own.ljust(most, b"\0")), dtype=torch.uint8).to(device)
    every = torch.empty(world_size, most, dtype=torch.uint8, device=device)
    dist.all_gather(list(every.unbind()), row)
    return [each[:size].numpy().tobytes() for each, size in zip(every.cpu().unbind(), sizes, strict=True)]

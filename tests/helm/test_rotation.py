"""Certificates change under a running coordinator as the kubelet changes them: a link is swapped, at once."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from controlplane.access.client_credentials import ClientCredentials
from controlplane.access.tls import TlsFiles
from controlplane.wire import control_pb2 as pb
from tests.daemon.etcd_fixtures import etcd_server
from tests.daemon.rig import Coordinator, until
from tests.security.authority import Authority
from tests.security.serving import asked

if TYPE_CHECKING:
    from controlplane.daemon.etcd.server import PrivateEtcd
    from tests.security.authority import Files

__all__ = ["etcd_server"]
NAMES = {"tls.crt": "cert", "tls.key": "key", "ca.crt": "ca"}


class Mounted:
    """A secret as the kubelet mounts it: files are links through ..data, which is a link that is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._turn = folder, 0
        folder.mkdir()
        for name in NAMES:
            (folder / name).symlink_to(Path("..data") / name)

    def put(self, files: Files, *authorities: Path) -> None:
        """The secret's next content, all of it at once. `authorities`: who is believed from now on."""
        former, self._turn = self.folder / f"..{self._turn}", self._turn + 1
        fresh = self.folder / f"..{self._turn}"
        fresh.mkdir()
        for name, part in NAMES.items():
            (fresh / name).write_bytes(Path(getattr(files, part)).read_bytes())
        if authorities:
            (fresh / "ca.crt").write_bytes(b"".join(path.read_bytes() for path in authorities))
        (self.folder / "..data_tmp").symlink_to(fresh.name)
        (self.folder / "..data_tmp").replace(self.folder / "..data")
        shutil.rmtree(former, ignore_errors=True)

    def settings(self) -> dict[str, str]:
        return {f"tls_{name}": str(self.folder / file) for name, file in
                (("cert", "tls.crt"), ("key", "tls.key"), ("ca", "ca.crt"))}  # fmt: skip

    def access(self) -> ClientCredentials:
        """What a caller shows that has this secret mounted."""
        return ClientCredentials(
            TlsFiles(**{name.removeprefix("tls_"): path for name, path in self.settings().items()})
        )


async def may(address: str, access: ClientCredentials) -> bool:
    """Whether this caller is let in and answered."""
    code, _ = await asked(address, "Status", pb.StatusRequest(), access)
    return code is grpc.StatusCode.OK


async def test_every_certificate_and_then_the_authority_is_rotated_without_a_restart(
    folder: Path, etcd_server: PrivateEtcd
) -> None:
    old, new = Authority(folder, "old"), Authority(folder, "new")
    server, caller = Mounted(folder / "server"), Mounted(folder / "caller")
    cluster = folder.name
    viewer = f"holdfast://{cluster}/viewer/v"
    server.put(old.issue("s1"))
    caller.put(old.issue("c1", viewer))
    stale = caller.access()
    coordinator = Coordinator(folder, etcd_server.endpoint, cluster, **server.settings())
    try:
        await coordinator.start()
        await coordinator.leads()
        listen, pid = coordinator.listen, coordinator.pid
        assert await may(listen, stale)
        # Renewed by the same authority: the former certificate is good until it ends.
        server.put(old.issue("s2"))
        assert await may(listen, stale)
        # The authority is changed: all believe both, then all show the new one's, then the old one goes.
        server.put(old.issue("s3"), old.ca, new.ca)
        caller.put(old.issue("c2", viewer), old.ca, new.ca)
        assert await may(listen, caller.access())
        server.put(new.issue("s4"), old.ca, new.ca)
        assert await may(listen, caller.access())
        caller.put(new.issue("c3", viewer), old.ca, new.ca)
        assert await may(listen, caller.access())
        left = ClientCredentials(
            TlsFiles(str(folder / "c2.crt"), str(folder / "c2.key"), str(folder / "new.pem"))
        )
        assert await may(listen, left)
        server.put(new.issue("s5"), new.ca)
        caller.put(new.issue("c4", viewer))
        assert await may(listen, caller.access())
        assert not await may(listen, left)
        assert coordinator.pid == pid
        await until(lambda: coordinator.log().count("loaded the renewed certificate") >= 4)
        assert "cannot be used" not in coordinator.log()
    finally:
        coordinator.end()

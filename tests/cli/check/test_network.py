"""What interfaces and ports have negotiated, as files say it: sound ones, and odd ones of all kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controlplane.analysis.node_checks import findings, judge
from holdfast.node_check import network

if TYPE_CHECKING:
    from pathlib import Path

    from holdfast.node_check.reading import NodeReading

GBIT = 1e9


def interface(sysfs: Path, name: str, files: dict[str, str] | None = None, *, device: bool = True) -> Path:
    """An interface that is up, unless `files` says something else."""
    folder = sysfs / "class/net" / name
    (folder / "statistics").mkdir(parents=True)
    if device:
        (folder / "device").mkdir()
    usual = {"flags": "0x1003", "carrier": "1", "operstate": "up", "speed": "100000", "duplex": "full"}
    for file, text in (usual | (files or {})).items():
        (folder / file).write_text(f"{text}\n")
    for file in ("rx_errors", "tx_errors"):
        (folder / "statistics" / file).write_text("5\n")
    return folder


def port(sysfs: Path, device: str, number: int, state: str, physical: str, rate: str) -> None:
    folder = sysfs / "class/infiniband" / device / "ports" / str(number)
    folder.mkdir(parents=True)
    for file, text in (("state", state), ("phys_state", physical), ("rate", rate)):
        (folder / file).write_text(f"{text}\n")


def read(sysfs: Path) -> dict[str, NodeReading]:
    return {each.name: each for each in network.readings(sysfs, 0.0)}


def test_speeds_of_what_is_in_use_are_read(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "lo", device=False)
    interface(tmp_path, "eth9", {"flags": "0x1002"})  # nobody has switched it on
    found = read(tmp_path)
    assert set(found) == {"network.speed:eth0", "network.errors:eth0"}
    assert (found["network.speed:eth0"].value, found["network.errors:eth0"].value) == (100 * GBIT, 0.0)
    assert not any(each.broken or each.reason for each in found.values())


@pytest.mark.parametrize(
    ("files", "value", "words"),
    [
        ({"speed": "-1"}, None, "tells no speed (-1)"),
        ({"speed": "4294967295"}, None, "tells no speed (4294967295)"),
        ({"speed": "0"}, None, "tells no speed (0)"),
        ({"speed": "99999999999999999999"}, None, "tells no speed"),
        ({"speed": "quick"}, None, "tells no speed"),
        ({"speed": ""}, None, "tells no speed"),
        ({"carrier": "0", "operstate": "down"}, 0.0, "no carrier (its state is down)"),
        ({"carrier": "0", "operstate": ""}, 0.0, "no carrier (its state is unknown)"),
        ({"flags": "odd"}, 100 * GBIT, ""),
        ({"duplex": "unknown"}, 100 * GBIT, ""),
    ],
)
def test_what_cannot_be_read_has_no_number_and_what_is_down_has_none_of_its_peers(
    tmp_path: Path, files: dict[str, str], value: float | None, words: str
) -> None:
    interface(tmp_path, "eth0", files)
    found = read(tmp_path)["network.speed:eth0"]
    assert found.value == value and words in found.reason and not found.broken


def test_half_duplex_is_broken_whatever_peers_have(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", {"duplex": "half", "speed": "100"})
    (found,) = findings("n1", judge(list(read(tmp_path).values()), []))
    assert (found.kind, dict(found.place)["part"]) == ("node_part_broken", "network.speed:eth0")
    assert "half duplex" in found.reason


def test_files_that_cannot_be_read_are_no_error(tmp_path: Path) -> None:
    folder = interface(tmp_path, "eth0")
    for each in [*folder.glob("*"), *(folder / "statistics").glob("*")]:
        if each.is_file():
            each.unlink()
            each.mkdir()  # reading a folder fails, even for root
    found = read(tmp_path)
    assert set(found) == {"network.speed:eth0"} and found["network.speed:eth0"].value is None
    assert [each.reason for each in network.readings(tmp_path / "absent", 0.0)] == [network.ABSENT]


def test_more_interfaces_than_are_looked_at_are_named(tmp_path: Path) -> None:
    for at in range(20):
        interface(tmp_path, f"eth{at:02}")
    assert read(tmp_path)["network"].reason == "4 of 20 interfaces are left out, from eth16 on"


def test_errors_while_it_is_looked_at_are_broken_and_older_ones_are_not(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    counter = tmp_path / "class/net/eth0/statistics/rx_errors"

    def after(text: str) -> NodeReading:
        counter.write_text("5\n")
        running = network.readings(tmp_path, 0.0)
        next(running)  # the errors before have been counted
        counter.write_text(text)
        (found,) = running
        return found

    worse = after("12\n")
    assert worse.value == 7.0 and "7 errors" in worse.broken
    (found,) = findings("n1", judge([worse], []))
    assert (found.kind, found.confidence) == ("node_part_broken", 0.5)  # whose end of the cable it is?
    assert after("5\n").value == 0.0
    assert after("2\n").reason == "its counters have begun anew"
    assert after("odd\n").reason == "its counters cannot be read any more"


def test_a_card_that_has_negotiated_less_than_its_peers_is_named(tmp_path: Path) -> None:
    interface(tmp_path, "eth0", {"speed": "10000"})
    own = list(read(tmp_path).values())
    peers = []
    for at in range(3):
        interface(tmp_path / f"n{at}", "eth0")
        peers.append(list(read(tmp_path / f"n{at}").values()))
    (found,) = findings("n9", judge(own, peers), load=40.0)  # a load has nothing to do with it
    assert (found.kind, found.confidence) == ("node_part_slow", 0.9)
    assert "10 Gbit/s, where the mean of 3 peers is 100 Gbit/s" in found.reason
    assert findings("n0", judge(peers[0], [*peers[1:], own])) == ()


def test_a_link_that_is_down_is_named_if_it_is_up_on_the_peers(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    interface(tmp_path, "eth1", {"carrier": "0", "operstate": "down"})
    own = list(read(tmp_path).values())
    other = tmp_path / "other"
    interface(other, "eth0")
    interface(other, "eth1")
    up = list(read(other).values())
    (found,) = findings("n9", judge(own, [up] * 3))
    assert (found.kind, dict(found.place)["part"]) == ("node_part_broken", "network.speed:eth1")
    assert "no carrier" in found.reason and "on 3 peers it is up" in found.reason
    assert findings("n9", judge(own, [up] * 2)) == () == findings("n9", judge(own, [own] * 3))


def test_ports_of_infiniband(tmp_path: Path) -> None:
    interface(tmp_path, "eth0")
    port(tmp_path, "mlx5_0", 1, "4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)")
    port(tmp_path, "mlx5_1", 1, "1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)")
    port(tmp_path, "mlx5_2", 1, "4: ACTIVE", "5: LinkUp", "fast")
    port(tmp_path, "mlx5_3", 1, "", "", "")
    port(tmp_path, "mlx5_4", 1, "4: ACTIVE", "5: LinkUp", "nan Gb/sec")
    found = read(tmp_path)
    assert found["infiniband.rate:mlx5_0/1"].value == 400 * GBIT
    down = found["infiniband.rate:mlx5_1/1"]
    assert (down.value, down.reason) == (0.0, "the port is DOWN (physically Polling)")
    for name, words in (("2", "its rate"), ("3", "its state"), ("4", "its rate")):
        odd = found[f"infiniband.rate:mlx5_{name}/1"]
        assert odd.value is None and words in odd.reason

"""Weigh what the sensors of a node show, by a table that can be read aloud. A weight is no probability.

Of each code only the heaviest sign of a node counts, however many devices show it: eight devices that are hot
share one cause, and no number of hot devices may drain a node. Facts come from NVIDIA's published pages
(SOURCES); the weights are ours, and no history of such signs was at hand to fit them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from controlplane.core.records.node_checks import DeviceSign

SOURCES = {
    "xid": "NVIDIA, Xid errors (docs.nvidia.com/deploy/xid-errors)",
    "memory": "NVIDIA, GPU memory error management (docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt)",
    "nvml": "NVIDIA, NVML API reference (docs.nvidia.com/deploy/nvml-api)",
    "edac": "Linux, Documentation/ABI/testing/sysfs-devices-edac",
    "net": "Linux, Documentation/ABI/testing/sysfs-class-net-statistics",
}
"""Where what is said of signs stands."""


class SignRow(NamedTuple):
    """What a sign weighs. `least`: smaller numbers weigh nothing; `words`: with the number in it."""

    code: str
    least: float
    weight: float
    words: str
    advice: str
    source: str


_COOL = "look at fans, cooling and the air that reaches it: a device that is too hot protects itself"
_RESET = "reset it (`nvidia-smi -r`) when the node is drained next: the spare row is put in place then"
_EXCHANGE = "drain the node, and have the device exchanged: a failed remap meets NVIDIA's conditions for that"
_SEATS = "look at how the device sits in its slot, risers and cables"
_CABLE = "look at its cable, transceiver and the port of the switch"
_DIMM = "find the module (`edac-util`, or the machine's own log), and exchange it if the errors go on"

ROWS = {
    row.code: row
    for row in (
        # Slowdowns that the device or its power supply orders; the power cap of the software, which full load
        # meets, is none of them (nvmlClocksEventReasons).
        SignRow("heat", 10, 0.15, "held back by heat {:.0f} s or more of the last 60 s", _COOL, "nvml"),
        SignRow("power_brake", 10, 0.1, "held back by the power brake {:.0f} s or more of the last 60 s",
                "look at the power supplies of the machine", "nvml"),
        SignRow("hardware_slowdown", 10, 0.1,
                "slowed down by its hardware {:.0f} s or more of the last 60 s", _COOL, "nvml"),
        # One corrected error is what ECC is for; many of them come before uncorrected ones (Xid 92).
        SignRow("corrected_errors", 10, 0.1, "{:.0f} or more corrected memory errors in an hour",
                "watch whether they grow", "memory"),
        # The next reset puts a spare row in place; until then the device may be used.
        SignRow("remap_pending", 1, 0.2, "the remap of a memory row is pending", _RESET, "memory"),
        # No spare row was left, or it could not be put in place.
        SignRow("remap_failed", 1, 0.5, "the remap of a memory row failed", _EXCHANGE, "memory"),
        # Of the host: since its driver was loaded.
        SignRow("uncorrected_errors", 1, 0.3, "{:.0f} or more uncorrected errors of the host",
                _DIMM, "edac"),
        # Links repeat what did not arrive: a few of them are usual.
        SignRow("pcie_replays", 100, 0.15, "{:.0f} or more PCIe replays in an hour", _SEATS, "nvml"),
        SignRow("nvlink_replays", 100, 0.15, "{:.0f} or more NVLink replays in an hour", _SEATS, "nvml"),
        # A recovery trains the link anew: meanwhile it carries nothing.
        SignRow("nvlink_recoveries", 1, 0.15, "{:.0f} or more NVLink recoveries in an hour", _SEATS, "nvml"),
        SignRow("link_errors", 100, 0.15, "{:.0f} or more errors of the network interface in an hour", _CABLE,
                "net"),
    )
}  # fmt: skip
"""The signs by code, but for Xid errors. Heat, power brake and slowdown together weigh 0.31, less than
RISK_LIMIT: such a node is slow, and works. A failed remap is enough by itself."""


class XidRow(NamedTuple):
    """What an Xid weighs, by its number."""

    weight: float
    words: str
    advice: str


_RESTART = "restart the machine; if it comes back, have the device and its slot looked at"
_RESET_NOW = "drain the node and reset the device"
XIDS = {
    46: XidRow(0.2, "the device stopped processing", _RESET_NOW),
    48: XidRow(0.3, "double-bit ECC error", _RESET_NOW),
    62: XidRow(0.3, "its internal micro-controller halted", _RESET_NOW),
    63: XidRow(0.1, "a memory row is to be remapped", _RESET),
    64: XidRow(0.4, "the remap of a memory row could not be recorded", _RESET_NOW),
    74: XidRow(0.3, "NVLink error", _SEATS),
    79: XidRow(0.5, "it has fallen off the bus", _RESTART),
    92: XidRow(0.2, "high rate of single-bit ECC errors", "watch whether uncorrected ones follow"),
    94: XidRow(0.2, "contained memory error", _RESET),
    95: XidRow(0.3, "uncontained memory error", _RESET_NOW),
    119: XidRow(0.2, "its system processor (GSP) did not answer", _RESET_NOW),
    120: XidRow(0.2, "error of its system processor (GSP)", _RESET_NOW),
    140: XidRow(0.3, "unrecovered ECC error", _RESET_NOW),
}
"""Numbers that speak of the hardware. Others weigh nothing: 13, 31, 43 and 45 are mostly the program's."""
XID = "xid"


class WeighedSign(NamedTuple):
    """A sign that counts: its weight, what is said of it, and what to do."""

    weight: float
    words: str
    advice: str


def weighed(signs: Iterable[DeviceSign]) -> list[WeighedSign]:
    """The heaviest sign of each code, the heaviest code first. Its words name all devices that show the code;
    several Xid errors are one code, since one fault writes several of them."""
    of: dict[str, list[tuple[float, str, WeighedSign]]] = {}
    for sign in signs:
        found = _weigh(sign)
        if found is not None:
            of.setdefault(sign.code, []).append((-found.weight, sign.device, found))
    heaviest = []
    for each in of.values():
        (_, device, first), *others = sorted(each, key=lambda row: (row[0], row[1], row[2].words))
        more = f", and {len(others)} more such" if others else ""
        advice = f"{device}: {first.advice}"
        heaviest.append(WeighedSign(first.weight, f"{device}: {first.words}{more}", advice))
    return sorted(heaviest, key=lambda each: (-each.weight, each.words))


def unweighed(signs: Iterable[DeviceSign]) -> list[str]:
    """The codes of these signs that have no row: a newer agent knows them."""
    return sorted({each.code for each in signs} - ROWS.keys() - {XID})


def _weigh(sign: DeviceSign) -> WeighedSign | None:
    """What a sign weighs; None: nothing."""
    if sign.code == XID:
        found = XIDS.get(int(sign.value))
        words = "" if found is None else f"Xid {sign.value:.0f} within a day ({found.words})"
        return None if found is None else WeighedSign(found.weight, words, found.advice)
    row = ROWS.get(sign.code)
    if row is None or sign.value < row.least:
        return None
    return WeighedSign(row.weight, row.words.format(sign.value), row.advice)

"""Commands of the transcripts about networks, silent nodes and a cluster's health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controlplane.core.records import effects as fx
from controlplane.core.records import events as ev
from controlplane.core.records.model import PeerSight

if TYPE_CHECKING:
    from tests.transcripts.language import Play


def probed(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """Every node named answers the newest probe: NODE=yes, or NODE=REASON."""
    for node, word in named.items():
        answered = word == "yes"
        reason = "" if answered else word
        play.feed(ev.ProbeAnswered(node, play.hosts[node].incarnation, answered, reason))


def sees(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """One node tells what it found when it dialled its peers: PEER=0 (of 3 tries failed) to PEER=3."""
    order = play.last[fx.LookAtPeers]
    found = tuple(
        PeerSight(peer, 3, int(failed), "no answer within 1 s" if int(failed) else "")
        for peer, failed in named.items()
    )
    play.feed(ev.PeersLooked(plain[0], play.hosts[plain[0]].incarnation, order.round, found))


def dcs(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """etcd answers the leader's keepalives (back), or not (away REASON)."""
    play.feed(ev.DcsChanged(plain[0] == "back", " ".join(plain[1:])))


def release(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """A person releases a node from quarantine."""
    play.feed(ev.QuarantineReleased(plain[0], "by hand"))


def others_beat(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """Every node beats but those named."""
    for node in play.hosts:
        if node not in plain:
            play.beat([node], {})


def live(play: Play, plain: list[str], named: dict[str, str]) -> None:
    """Let seconds pass, in which every node except those named beats every second. A repeated order is shown
    once."""
    seconds, *silent = plain
    for _ in range(int(seconds)):
        play.wait(["1"], {})
        others_beat(play, silent, named)
    play.lines = list(dict.fromkeys(play.lines))


COMMANDS = {
    "probed": probed,
    "sees": sees,
    "dcs": dcs,
    "release": release,
    "beats": others_beat,
    "live": live,
}

"""Who sends heartbeats through whom."""

from __future__ import annotations

from collections import Counter

from controlplane.daemon.server.relay_table import GIVEN_PER_LOOK, QUIET_S, SENDERS_MAX, RelayTable


def table(nodes: int, from_nodes: int = 1) -> RelayTable:
    made = RelayTable(from_nodes)
    for number in range(nodes):
        made.add(f"n{number}", f"a{number}")
    return made


def settled(made: RelayTable, now: float = 0.0) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []
    while given := made.look(now):
        found += given
    return found


def test_a_small_cluster_has_no_relays() -> None:
    assert settled(table(99, from_nodes=100)) == [] and settled(table(99, from_nodes=0)) == []
    assert settled(table(100, from_nodes=100))


def test_every_node_is_a_relay_or_has_one_and_no_relay_has_too_many() -> None:
    made = table(1000)
    given = settled(made)
    assert len(made.relays) == 8 == -(-1000 // (SENDERS_MAX + 1))
    assert len(given) == 992 == len({node for node, _, _ in given})
    assert {relay: address for _, relay, address in given} == {r: f"a{r[1:]}" for r in made.relays}
    assert not {node for node, _, _ in given} & set(made.relays)
    assert max(Counter(relay for _, relay, _ in given).values()) <= SENDERS_MAX


def test_not_all_are_given_one_at_once() -> None:
    assert len(table(1000).look(0.0)) <= GIVEN_PER_LOOK


def test_those_of_a_relay_that_is_gone_are_given_another() -> None:
    made = table(300)
    settled(made)
    gone = next(iter(made.relays))
    orphans = {node for node, relay in made.relay_of.items() if relay == gone}
    made.remove(gone)
    again = settled(made)
    assert {node for node, _, _ in again} | set(made.relays) >= orphans
    assert gone not in {relay for _, relay, _ in again}


def test_a_node_that_comes_anew_is_given_a_relay_again() -> None:
    made = table(3)
    settled(made)
    sender = next(iter(made.relay_of))
    made.add(sender, "elsewhere")
    assert [node for node, _, _ in settled(made)] == [sender]


def test_agents_without_an_address_are_no_relays_and_one_that_could_be_is_made_one() -> None:
    made = RelayTable(1)
    made.add("r0", "a0")
    made.add("r1", "a1")
    settled(made)
    assert list(made.relays) == ["r0"] and made.relay_of == {"r1": "r0"}
    for number in range(200):
        made.add(f"n{number}", "")
    given = settled(made)
    assert ("r1", "", "") in given, "it is told to send directly"
    assert set(made.relays) == {"r0", "r1"} and len(made.relay_of) == 200
    lone = RelayTable(1)
    lone.add("n0", "")
    assert settled(lone) == []


def test_a_relay_through_which_nothing_comes_is_given_up_for_one_of_its_senders() -> None:
    made = table(3)
    settled(made)
    (relay,) = made.relays
    made.heard(50.0, relay)
    assert settled(made, 50.0 + QUIET_S) == [] and list(made.relays) == [relay]
    given = settled(made, 51.0 + QUIET_S)
    (other,) = made.relays
    assert other != relay and {(node, via) for node, via, _ in given} >= {(relay, other)}

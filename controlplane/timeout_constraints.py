"""Check the order of timeouts that race each other, by a table of which must be shorter, and why.

Each daemon checks its own settings when it starts; the leader checks those of an agent against its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Constraint:
    """`low` must be less than `high`. Both name settings in s; with `may_be_off`, a `high` of 0 means off."""

    low: str
    high: str
    why: str
    may_be_off: bool = False


COORDINATOR = (
    Constraint("retry_s", "stop_timeout_s", "an order is repeated before its member is killed"),
    Constraint("stop_timeout_s", "form_timeout_s", "a rendezvous restores state, a stop does not"),
    Constraint(
        "lease_ttl_s", "node_timeout_s", "a new leader must be there before nodes are given up for silence"
    ),
    Constraint("retry_s", "node_timeout_s", "nodes are not given up for one lost order"),
    Constraint("retry_s", "launch_timeout_s", "a launch is repeated before its launcher counts as silent"),
)
AGENT = (
    Constraint("beat_interval_s", "process_timeout_s", "one late heartbeat does not mean death"),
    Constraint("process_timeout_s", "device_timeout_s", "a dead process is judged before its device"),
    Constraint("process_timeout_s", "orphan_timeout_s", "a new agent must be able to adopt its ranks"),
    Constraint(
        "device_timeout_s",
        "fence_after_s",
        "devices are judged before ranks stop for lack of a coordinator",
        may_be_off=True,
    ),
)
BOTH = (
    Constraint("process_timeout_s", "node_timeout_s", "a dead process is judged before its node"),
    Constraint("process_timeout_s", "broken_grace_s", "a silent peer would be taken for a broken connection"),
    Constraint(
        "node_timeout_s", "orphan_timeout_s", "an agent that died and came back in time finds its ranks"
    ),
    Constraint(
        "node_timeout_s", "fence_after_s", "a node stops its ranks after it is given up", may_be_off=True
    ),
)
"""Constraints between the timeouts in an agent's hello and the coordinator's own."""


def violation(rules: Sequence[Constraint], *holders: Any) -> str:
    """Return a message about the first constraint that these settings violate, with both flags and the
    remedy; "" when there is none. A setting is taken from the first of `holders` that has it. An agent's
    hello has 0 for a setting that it does not send."""
    for rule in rules:
        low, high = (_value(name, holders) for name in (rule.low, rule.high))
        if low is None or high is None or (rule.may_be_off and high <= 0):
            continue
        if low >= high:
            return (
                f"{_flag(rule.low)} {low:g} must be less than {_flag(rule.high)} {high:g}: {rule.why}; lower "
                f"the first or raise the second"
            )
    return ""


def mismatch(hello: Any, settings: Any) -> str:
    """Return why an agent with these timeouts cannot work with this coordinator; "" when it can."""
    known = {
        name: getattr(hello, name) for name in ("process_timeout_s", "fence_after_s", "orphan_timeout_s")
    }
    known = {name: value for name, value in known.items() if value > 0}
    reason = violation([rule for rule in BOTH if {rule.low, rule.high} & known.keys()], known, settings)
    return f"the agent's timeouts contradict this coordinator's: {reason}" if reason else ""


def _value(name: str, holders: Sequence[Any]) -> float | None:
    for holder in holders:
        value = holder.get(name) if isinstance(holder, dict) else getattr(holder, name, None)
        if value is not None:
            return float(value)
    return None


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

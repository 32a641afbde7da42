"""What a rank tells its agent of itself, from the gate's thread: hello, beats, the script's numbers."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.reentry.agent_client import VERSION

if TYPE_CHECKING:
    from holdfast.ipc.frames import Message
    from holdfast.session import Session


def hello(session: Session) -> Message:
    """Who it is, where it stands, and what clean state it holds (-1: none)."""
    held = session._held if session._phase in ("ready", "finished") else -1
    return {
        "op": "hello",
        "version": VERSION,
        "member": session._environment.member,
        "pid": os.getpid(),
        "store": session._address,
        "phase": session._phase,
        "generation": session._generation,
        "step": session._completed,
        "held_step": held,
        "held_generation": session._held_in,
        "ended_step": ended(session),
    }


def ended(session: Session) -> int | None:
    """The newest step that a generation may begin at without leaving out what this rank has not run yet;
    None: no such limit, for the script lets the tails of steps be cut, or this process has trained
    nothing."""
    return None if session._guard.skippable or not session._held_in else session._ended


def beat(session: Session) -> Message:
    """That it lives, and where it stands; with it goes what the script has reported."""
    _send_report(session)
    return {
        "op": "beat",
        "phase": session._phase,
        "generation": session._generation,
        "step": session._completed,
    }


def _send_report(session: Session) -> None:
    shown = session._reports.read(session._numbers.reported)
    if shown and session._gate is not None:
        session._gate.say({"op": "report", "step": session._completed, "values": shown})

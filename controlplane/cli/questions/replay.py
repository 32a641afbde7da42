"""`holdfast replay`: repeat a coordinator's decisions from its recording, step by step.

The core is deterministic, so the recorded events give the recorded effects, or the code has changed or has a
bug."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from controlplane.cli.errors import OK, CliError
from controlplane.cli.flags.parser import CommandSpec, Parser, whole
from controlplane.cli.questions.outputs import WIDE, add_output, for_programs, part
from controlplane.daemon.journal import replay as replaying
from controlplane.daemon.journal.recording import folder_of
from controlplane.daemon.journal.replay import ReplayError, Step
from controlplane.reporting.event_text import headline, sentence_of

if TYPE_CHECKING:
    import argparse

DIFFERS = 1
"""The exit code when an invariant is broken, or when a decision differs from the recorded one."""


@dataclass(frozen=True, slots=True)
class _Wish:
    form: str
    all: bool
    last: int


ABOUT = (
    "Repeat the decisions of one leader term from its recording: each event, the decision, and the reason. "
    "It stops with exit code 1 where an invariant is broken, or where the decision differs from the "
    "recorded one."
)


def _flags(parser: Parser) -> None:
    parser.add_argument(
        "journal", help="the journal of a coordinator, or one recording, such as journal.reigns/7.jsonl"
    )
    parser.add_argument(
        "--term",
        type=whole(1, "terms begin at 1"),
        default=0,
        metavar="N",
        help="the number of the leader term (default: the newest)",
    )
    parser.add_argument("--all", action="store_true", help="show also events without a decision")
    parser.add_argument(
        "--last",
        type=whole(0, "a count of steps"),
        default=0,
        metavar="N",
        help="show only the last N steps; 0: all",
    )
    add_output(parser, "wide: the same as --all; json: one line for each step", former="text")


def replay(values: argparse.Namespace) -> int:
    """Run the recording of one leader term through the core. Exit code 1 where it stops before its end."""
    path = Path(values.journal)
    wish = _Wish(values.output, values.all or values.output == WIDE, values.last)
    try:
        path = recording(path, values.term)
        with path.open(encoding="utf-8") as file:
            return _replay_file(path, file, wish)
    except OSError as error:
        raise CliError(f"recording {path}: {error.strerror}") from error
    except (ReplayError, UnicodeDecodeError) as error:
        raise CliError(f"recording {path}: {error}") from error


def recording(path: Path, term: int) -> Path:
    """The recording of a leader term (0: the newest). Raises CliError."""
    folder = path if path.is_dir() else folder_of(path)
    if not folder.is_dir():
        if path.is_file() and path.parent.suffix == ".reigns":
            return path
        raise CliError(f"there are no recordings for {path}: the folder {folder} does not exist")
    found = sorted(folder.glob("*.jsonl"), key=lambda each: each.stat().st_mtime)
    wanted = [each for each in found if not term or each.stem == str(term)]
    if not wanted:
        known = ", ".join(each.stem for each in found) or "none"
        raise CliError(f"{folder} has no recording{f' of term {term}' if term else ''}; it has {known}")
    return wanted[-1]


def _replay_file(path: Path, file: TextIO, wish: _Wish) -> int:
    recording = replaying.header(file.readline())
    if not for_programs(wish.form):
        begun = f"{datetime.fromtimestamp(recording.wall_s):%Y-%m-%d %H:%M:%S}"
        print(f"{path}: term {recording.term}, started {begun}, recorded by holdfast {recording.version}")
    kept: deque[Step] = deque(maxlen=wish.last or 1)
    steps = effects = 0
    began = problem = None
    end = replaying.End()
    for step in replaying.replay(recording, file, end):
        began = step.now if began is None else began
        steps, effects, problem = step.index, effects + len(step.effects), step.problem
        kept.append(step)
        if not wish.last:
            _show(step, began, wish)
    for step in kept if wish.last else ():
        _show(step, began or 0.0, wish)
    summary = {"term": recording.term, "steps": steps, "effects": effects, "problem": problem or ""}
    summary |= {"full": end.full} if end.full else {}
    print(part(wish.form, {"summary": summary}) or _summary(steps, effects, problem, end))
    return DIFFERS if problem else OK


def _summary(steps: int, effects: int, problem: str | None, end: replaying.End) -> str:
    if problem:
        return f"stopped at step {steps}: {problem}"
    full = f"; the recording ends here, because it was full ({end.full} bytes)" if end.full else ""
    return f"{steps} steps, {effects} effects: every invariant held, every decision is as recorded{full}"


def _show(step: Step, began: float, wish: _Wish) -> None:
    """Show one step. Steps without a decision are shown only on request, or among the last ones."""
    if not (step.effects or step.problem or wish.all or wish.last):
        return
    if for_programs(wish.form):
        print(part(wish.form, replaying.as_json(step)))
        return
    print(f"{step.now - began:12.3f} s  {step.index:6}  {_text(*step.event)}")
    for kind, body in step.effects:
        print(f"{'':24}{_text(kind, body)}")


def _text(kind: str, body: object) -> str:
    """An event or effect in words, with its type in front when the words do not begin with it."""
    words = headline(sentence_of({"type": kind, "body": body}).text)
    return words if words.startswith(kind) else f"{kind}: {words}"


COMMANDS = {"replay": CommandSpec(ABOUT, replay, _flags)}

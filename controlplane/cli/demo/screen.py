"""Show the course of the demo: a live picture on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from controlplane.reporting.event_text import EventLevel, sentence_of
from controlplane.reporting.quantities import duration
from holdfast.ipc.progress_page import PHASES
from holdfast.neutral import neutral, raw

if TYPE_CHECKING:
    from types import TracebackType

    from controlplane.cli.demo.training import DemoTraining

_PLAIN_EVERY_S = 5.0
_REDRAW_PER_S = 8


class Screen:
    """Lines that stay, and on a terminal a picture below them that moves. Use as a context.

    `every_s`: between two lines of progress where no terminal is."""

    def __init__(self, steps: int, to_stderr: bool, every_s: float = _PLAIN_EVERY_S) -> None:
        stream = raw(sys.stderr if to_stderr else sys.stdout)
        self._console = Console(file=stream, highlight=False, soft_wrap=True)
        self._steps = steps
        self._live = Live(console=self._console, refresh_per_second=_REDRAW_PER_S, transient=True)
        self._phases: dict[int, int] = {}
        self._every_s = every_s
        self._printed_s = time.monotonic()
        self._told = ("", 0)  # the newest line of progress: whose, and its step

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def say(self, text: str, style: str = "") -> None:
        """Print a line that stays."""
        self._console.print(Text(neutral(text), style=style))

    def show(self, what: Any) -> None:
        """Print something of rich's that stays."""
        self._console.print(what)

    def event(self, line: dict[str, Any]) -> None:
        """Show a line of the journal, if a spectator would care."""
        if line["type"] == "IncidentChanged":
            self._incident(line["body"]["incident"])
        else:
            sentence = sentence_of(line)
            if sentence.level <= EventLevel.HEADLINE:
                self.say(f"  {sentence.text}", "yellow" if line["type"] == "Judged" else "")

    def _incident(self, incident: dict[str, Any]) -> None:
        """Show the incident's new phases, one line each; then how it ended."""
        known = self._phases.get(incident["id"], 0)
        for name, span_s in incident["phases_s"][known:]:
            self.say(
                f"  incident {incident['id']}: {name.replace('_', ' ').ljust(10)} {duration(span_s):>8}",
                "cyan",
            )
        self._phases[incident["id"]] = max(known, len(incident["phases_s"]))
        if incident["outcome"] != "open":
            total, lost = duration(sum(span_s for _, span_s in incident["phases_s"])), incident["lost_steps"]
            self.say(
                f"  incident {incident['id']} {incident['outcome']} after {total}, {lost} steps lost", "green"
            )

    def update(self, training: DemoTraining, title: str) -> None:
        """Show how far the ranks are: the picture on a terminal, a line every few seconds elsewhere."""
        steps = training.progress()
        done = min(steps.values(), default=0)
        if self._console.is_terminal:
            self._live.update(self._picture(training, title, max(done, 0)))
        elif time.monotonic() - self._printed_s > self._every_s:
            self._tell(title, max(done, 0))

    def _tell(self, title: str, done: int) -> None:
        """Say in a line how far the ranks are, unless the newest such line has said it.

        While a new process has no step yet, nothing is known of it: the job has not gone back to step 0."""
        if (title, done) == self._told or (title == self._told[0] and not done):
            return
        self._told, self._printed_s = (title, done), time.monotonic()
        self.say(f"{title}: step {done} of {self._steps}")

    def _picture(self, training: DemoTraining, title: str, done: int) -> Group:
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._steps, completed=done, width=40)
        head.add_row(Text(title, style="bold"), bar, f"step {done} of {self._steps}")
        ranks = Table(box=None, padding=(0, 2), header_style="dim")
        for name in ("rank", "node", "process", "generation", "step", "doing"):
            ranks.add_column(name, justify="left")
        for rank, seat in sorted(training.seats.items()):
            page = training.page(seat)
            words = (
                ("-", "-", "-")
                if page is None
                else (str(page.generation), str(page.step), _doing(page.phase))
            )
            ranks.add_row(str(rank), seat.node, str(seat.pid), *words)
        return Group(head, ranks)


def _doing(phase: int) -> str:
    return PHASES[phase] if 0 <= phase < len(PHASES) else "-"

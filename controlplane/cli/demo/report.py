"""Show the result of the demo to a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.table import Table

from controlplane.core.records.words import in_words
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    from controlplane.cli.demo.verdict import DemoOutcome


def verdict_table(outcome: DemoOutcome, result: dict[str, Any]) -> Table:
    """The result as a table: one question and its answer per row."""
    table = Table(title="Verdict", show_header=False, title_style="bold", padding=(0, 2))
    table.add_row("Same final weights as the undisturbed run", _weights(outcome, result))
    samples = result["samples"]
    table.add_row("Samples repeated or skipped", _mark(outcome.samples.clean, _samples(samples)))
    for incident in result["incidents"]:
        table.add_row(_title(incident), _incident(incident))
    kinds = [row["kind"] for row in result["checkpoints"]]
    table.add_row("Checkpoints committed", f"{len(kinds)} ({kinds.count('full')} full)")
    for problem in outcome.samples.problems[:5]:
        table.add_row("Problem", f"[red]{problem}[/red]")
    return table


def diagnosis_table(result: dict[str, Any]) -> Table:
    """What was planted, what was found, and who was accused although healthy."""
    table = Table(title="Diagnosis", show_header=False, title_style="bold", padding=(0, 2))
    for fault in result["planted"]:
        whom = "" if fault["rank"] is None else f" on rank {fault['rank']}"
        table.add_row("Planted", f"{fault['kind']}{whom} from step {fault['at']}")
    for row in result["findings"]:
        after = "" if row["first_found_s"] is None else f"after {duration(row['first_found_s'])}: "
        table.add_row(f"Found: {row['kind']}", f"{after}{row['reason']}")
    if not result["findings"]:
        table.add_row("Found", "nothing")
    for incident in result["incidents"]:
        table.add_row(_title(incident), _incident(incident))
    accused = ", ".join(f"rank {each['rank']} ({each['kind']})" for each in result["accused_healthy"])
    table.add_row("Accused although healthy", _mark(not accused, accused or "nobody"))
    return table


def _mark(good: bool, text: str) -> str:
    return f"[green]{text}[/green]" if good else f"[bold red]{text}[/bold red]"


def _weights(outcome: DemoOutcome, result: dict[str, Any]) -> str:
    if outcome.identical:
        return _mark(
            True, f"yes, bit for bit on all {outcome.world_size} ranks ({result['final_digest'][:12]})"
        )
    seen = f"{len(outcome.digests)} and {len(outcome.undisturbed)} of {outcome.world_size} ranks finished"
    return _mark(
        False, f"NO: {result['final_digest'][:12]}, undisturbed {result['undisturbed_digest'][:12]}; {seen}"
    )


def _samples(samples: dict[str, int]) -> str:
    return f"{samples['repeated']} repeated, {samples['skipped']} skipped, {samples['consumed']} consumed"


def _title(incident: dict[str, Any]) -> str:
    name = f"Incident {incident['id']}" if incident["id"] is not None else "All processes killed"
    whom = f"rank {incident['rank']} " if incident["rank"] is not None else ""
    return f"{name}: {whom}{in_words(incident['cause'])} in step {incident['step']}"


def _incident(incident: dict[str, Any]) -> str:
    parts = [f"{incident['lost_steps']} steps lost"]
    for key, words in (
        ("survivors_resumed_s", "survivors step again after"),
        ("full_world_s", "all ranks after"),
    ):
        if incident[key] is not None:
            parts.append(f"{words} {duration(incident[key])}")
    if incident["survivor_pids_unchanged"]:
        parts.append("survivors kept their processes")
    return ", ".join(parts)

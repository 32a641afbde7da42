"""Ask a coordinator what is wrong with a running job, or could be better; show it; mute one finding."""

from __future__ import annotations

import asyncio
import datetime
import textwrap
from typing import TYPE_CHECKING, Any

from controlplane.cli.client import AdminClient
from controlplane.cli.doctor import tuning
from controlplane.cli.doctor.shown import WIDTH
from controlplane.cli.errors import OK, CliError, UsageError, nearest
from controlplane.cli.flags.credentials import access_of
from controlplane.cli.local.finding import coordinator_for
from controlplane.cli.questions.colours import show
from controlplane.cli.questions.outputs import data
from controlplane.cli.questions.tables import NOTHING, plain
from controlplane.core.records.words import in_words
from controlplane.reporting.quantities import duration

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Iterable

SHARES = ("data", "forward", "backward", "communication", "optimizer", "snapshot", "other")
"""What a step's time is divided into, in the order of a step (`holdfast.ipc.step_times`)."""
HEADINGS = ("RANK", "NODE", "STEP", *(name.upper() for name in SHARES), "OWN WORK", "TO PEERS")
ROWS_SHOWN = 32
"""The most ranks that are shown to people: those that differ most from their peers."""


def ask(values: argparse.Namespace) -> int:
    """Show what is wrong with a job, or what to change of it, or mute one of its findings."""
    return asyncio.run(_ask(values))


async def _ask(values: argparse.Namespace) -> int:
    async with AdminClient(coordinator_for(values.coordinator), access=access_of(values)) as admin:
        if values.mute:
            reply = await admin.mute(values.job, values.mute, values.for_s, values.reason)
            print(f"{values.mute}: {reply.outcome}; {reply.reason}")
            return OK
        found = await admin.diagnose(values.job)
        if values.node:
            known = [row.node for row in (await admin.status()).nodes]
            found = about_node(found, values.node, known)
        if values.tune:
            rows = (await admin.status()).jobs
            failures = next((row.incidents for row in rows if row.job == values.job), None)
            print(tuning.shown(values.output, found, failures))
            return OK
    if written := data(values.output, found):
        print(written)
    else:
        show(text(found) if values.job else of_cluster(found))
    return OK


def text(found: dict[str, Any]) -> str:
    """For people: the level, where the time goes, and every finding."""
    head = [f"job {found['job']}: {found['level']}", *health(found.get("health", ()))]
    parts = ["\n".join(head), *worth(found), anatomy(found["anatomy"])]
    parts += [finding(each) for each in found["findings"]] or ["no finding: nobody is to blame"]
    parts += links(found.get("links", {}))  # a coordinator of the version before says nothing of links
    failed = found["failed_detectors"]
    if failed:
        parts.append(f"these detectors failed, what they look for is not known: {'; '.join(failed)}")
    return "\n\n".join(parts)


def worth(found: dict[str, Any]) -> list[str]:
    """What the job's time is worth: goodput with what was lost, and what its devices achieve. A coordinator
    of an older version tells neither."""
    lines = []
    if spent := found.get("time"):
        lines.append(_spent(spent, "in all"))
        if len(spent["lives"]) > 1:
            since = [datetime.datetime.fromtimestamp(each["since_s"]) for each in spent["lives"]]
            lines += [
                f"  {_spent(life, f'since {begun:%Y-%m-%d %H:%M:%S}')}"
                for life, begun in zip(spent["lives"], since, strict=True)
            ]
        if named := ", ".join(f"{name} {duration(lost_s)}" for name, lost_s in spent["badput_s"].items()):
            lines.append(f"  by the names of Google's library: {named}")
    if achieved := found.get("efficiency"):
        lines.append(_achieved(achieved))
    return ["\n".join(lines)] if lines else []


def _spent(spent: dict[str, Any], when: str) -> str:
    share = "not known" if spent["goodput"] is None else f"{spent['goodput']:.1%}"
    lost = sorted(spent["lost_s"].items(), key=lambda each: -each[1])
    parts = [f"{in_words(cause)} {duration(lost_s)}" for cause, lost_s in lost if lost_s > 0]
    if spent["unknown_s"] > 0:
        parts.append(f"unknown {duration(spent['unknown_s'])}")
    head = f"goodput {when}: {share} of {duration(spent['total_s'])}"
    return "; ".join([head, ", ".join(parts)] if parts else [head])


def _achieved(found: dict[str, Any]) -> str:
    rates = [
        f"{found[name]:.4g} {unit}"
        for name, unit in (("samples_per_s", "samples/s"), ("tokens_per_s", "tokens/s"))
        if found[name] is not None
    ]
    mfu = f"not known: {found['reason']}" if found["mfu"] is None else f"{found['mfu']:.1%}"
    return ", ".join([*rates, f"MFU {mfu}"])


def links(seen: dict[str, str]) -> list[str]:
    """Why links are suspected, and why nobody is named for it; [] while that is not so."""
    if not (seen.get("suspicion") and seen.get("unknown")):
        return []
    why = f"{seen['code']}: {seen['unknown']}" if seen.get("code") else seen["unknown"]
    return [f"links are suspected: {seen['suspicion']}; whose is not known: {why}"]


def about_node(found: dict[str, Any], node: str, known: Collection[str]) -> dict[str, Any]:
    """The cluster's report, with only the findings about one of its nodes. Raises CliError.

    The level stays that of the cluster; `node` says whose findings these are."""
    if node not in known:
        raise CliError(f"no node named {node:.80}{nearest(node, known)} (see `holdfast get nodes`)")
    if any("nodes" not in each for each in found["findings"]):
        raise UsageError(
            "this coordinator is of an older version and does not say which node a finding is about"
        )
    kept = [each for each in found["findings"] if node in each["nodes"]]
    return found | {"node": node, "findings": kept}


def of_cluster(found: dict[str, Any]) -> str:
    """The health of the cluster, for people: a line for each reason."""
    lines = [f"cluster {found['cluster']}: {found['level']}"]
    lines += health(found["findings"])
    if found.get("node") and not found["findings"]:
        lines.append(f"  nothing is known against node {found['node']}")
    if any(each["job"] for each in found["findings"]):
        lines.append("`holdfast doctor JOB` shows where the time of a job's steps goes")
    return "\n".join(lines)


def health(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Why a cluster or a job is not healthy: a line for each reason, and one for what to do."""
    lines = []
    for each in rows:
        about = f"{each['about']}: " if each["about"] else ""
        lines.append(f"  {each['severity']}: {each['kind']}: {about}{each['reason']}")
        if each.get("recommendation"):  # a coordinator of the version before recommends nothing
            lines.append(f"    do: {each['recommendation']}")
    return lines


def anatomy(seen: dict[str, Any]) -> str:
    """Where the time of a step goes, rank by rank."""
    if not seen["ranks"]:
        return f"where the time of a step goes is not known: {seen['reason']}"
    rows = sorted(seen["ranks"], key=lambda row: (-abs((row["ratio"] or 1.0) - 1.0), row["rank"]))
    shown = sorted(rows[:ROWS_SHOWN], key=lambda row: row["rank"])
    table = plain(HEADINGS, [_row(row) for row in shown])
    ended = datetime.datetime.fromtimestamp(seen["ended_s"]).strftime("%H:%M:%S")
    lines = [f"shares of a step in the {duration(seen['span_s'])} until {ended}:", table]
    more = len(seen["columns"]["ranks"]) - len(shown)
    if more > 0:
        lines.append(f"and {more} ranks more, nearer to their peers: see --json")
    if seen["slowdown"] is not None:
        lines.append(
            f"a step takes {seen['slowdown']:.2f} times as long as if every rank were as fast as usual"
        )
    lines += loss_shares(seen.get("loss") or {})  # a coordinator of the version before tells no shares
    lines += [f"rank {each['rank']} is not judged: {each['reason']}" for each in seen["unjudged"][:8]]
    return "\n".join(lines)


def loss_shares(loss: dict[str, Any]) -> list[str]:
    """Whose the lost time is; [] while nothing is lost."""
    if loss.get("worst_rank_share") is None:
        return []
    parts = [
        f"without rank {loss['worst_rank']} {loss['worst_rank_share']:.0%}",
        f"without node {loss['worst_node']} {loss['worst_node_share']:.0%}",
    ]
    if loss["last_stage_share"] is not None:
        parts.append(f"without the last stage {loss['last_stage_share']:.0%}")
    return [f"of what is lost by that, so much would not be: {', '.join(parts)}"]


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    shares = (f"{row['shares'][name]:.0%}" for name in SHARES)
    ratio = NOTHING if row["ratio"] is None else f"{row['ratio']:.2f}"
    return (str(row["rank"]), row["node"], duration(row["step_s"]), *shares, duration(row["own_s"]), ratio)


def line(each: dict[str, Any]) -> str:
    """One finding in a line: what, who, why, and what to do."""
    about = f", {each['about']}" if each["about"] else ""
    do = f"; do: {each['recommendation']}" if each.get("recommendation") else ""
    muted = ", muted" if each.get("muted") else ""
    return f"{each['severity']}: {each['kind']}{about}{muted}: {each['reason']}{do}"


def finding(each: dict[str, Any]) -> str:
    """One finding: what, who, since when, why, and what to do."""
    since = datetime.datetime.fromtimestamp(each["opened_s"]).strftime("%H:%M:%S")
    head = f"{each['severity']}: {each['kind']}, {each['about']}, since {since}"
    if each["confidence"] < 1:
        head += f", confidence {each['confidence']:.2f}"
    if each["muted"]:
        head += ", muted"
    lines = [f"why: {each['reason']}", f"do:  {each['recommendation']}", f"id:  {each['id']}"]
    body = [
        textwrap.fill(line, WIDTH, initial_indent="  ", subsequent_indent="       ", break_on_hyphens=False)
        for line in lines
        if not line.endswith(":  ")
    ]
    return "\n".join([head, *body])

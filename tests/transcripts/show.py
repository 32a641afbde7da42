"""Show effects, each as one readable line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from controlplane.core.records import effects as fx
from controlplane.core.records.model import WHOLE_STATE
from controlplane.core.records.words import NEVER_STEP

if TYPE_CHECKING:
    from collections.abc import Callable

    from controlplane.core.records.model import Generation, LemonRecord, Source


def show(effect: Any) -> str:
    """One effect as a line, without the fields that are the same in every transcript."""
    name = "Store" if isinstance(effect, fx.STORES) else type(effect).__name__
    return f"{name} {SHOW[type(effect)](effect)}"


def _generation(g: Generation | None) -> str:
    if g is None:
        return "-"
    seats = " ".join(f"{s.rank}:{s.member}@{s.node}" for s in g.seats)
    return f"#{g.number}[{seats}]"


def _store_job(e: fx.StoreJob) -> str:
    parts = [f"ticket={e.ticket}"]
    if e.spec is not None:
        parts.append("spec")
    if e.generation is not None:
        resume = e.generation.resume
        meet = e.generation.store or "nowhere"
        parts.append(f"generation={_generation(e.generation)} meet={meet}")
        parts.append(f"resume={resume.tier}:{resume.step} from rank {resume.rank} ({resume.reason})")
        parts += [f"source={_source(source)}" for source in resume.sources]
        parts += ["reshard"] if resume.reshard else []
        parts += [f"skip={window.first}-{window.end - 1}" for window in resume.skip]
    parts.append(f"state={e.state.phase}")
    parts += [f"seen={key}x{times}" for key, times in e.state.failures_seen]
    parts += [f"distrust={fault.step}@{fault.generation}" for fault in e.state.faults]
    return " ".join(parts)


def _store_checkpoint(e: fx.StoreCheckpoint) -> str:
    bad = f" bad={e.checkpoint.bad!r}" if e.checkpoint.bad else ""
    bad += f" suspect={e.checkpoint.suspect!r}" if e.checkpoint.suspect else ""
    return f"ticket={e.ticket} checkpoint={e.checkpoint.id} published={e.checkpoint.published}{bad}"


def _history(record: LemonRecord) -> str:
    return f"lemon={record.node} score={record.score:.2f} until={record.until_s:.0f}"


def _forget_node(e: fx.ForgetNode) -> str:
    history = f" {_history(e.history)}" if e.history is not None else ""
    return f"ticket={e.ticket}{history} node={e.node} gone"


def _source(s: Source) -> str:
    share = f" share {s.share} of {s.shares}" if s.shares > 1 else ""
    return f"[{s.shard}{share}: rank {s.rank} {s.tier}{' ' + s.member if s.member else ''}]"


def _load(e: fx.Load) -> str:
    shard = "" if e.shard == WHOLE_STATE else f" shard={e.shard}"
    share = f" share={e.share} of {e.shares}" if e.shares > 1 else ""
    return f"{e.node} {e.member} {e.record.id}{shard}{share}"


def _replicate(e: fx.Replicate) -> str:
    return f"{e.node} " + (" ".join(f"{p.member}->{p.node}({p.address})" for p in e.partners) or "none")


def _launch(e: fx.Launch) -> str:
    warm = " warm only" if e.warm_only else ""
    return f"{e.node} {e.member} {e.role} rank={e.rank}{warm} under {_generation(e.generation)}"


def _incident(e: fx.IncidentChanged) -> str:
    i = e.incident
    phases = " ".join(f"{name}={spent:.3f}" for name, spent in i.phases_s)
    numbers = f"{i.generation_before}->{i.generation_after}"
    return f"{i.id} {i.outcome} generations {numbers} lost={i.lost_steps} {phases}".rstrip()


def _judged(e: fx.Judged) -> str:
    v, p = e.verdict, e.plan
    drop, add = ",".join(p.drop) or "-", ",".join(p.add) or "-"
    evidence = " | ".join(v.evidence)
    plan = p.reason.replace("\n", " / ")
    return f"{v.scope}/{v.cause} ranks={v.ranks} {p.strategy} drop={drop} add={add}: {evidence} => {plan}"


def _judge_records(e: fx.JudgeRecords) -> str:
    first, again = (",".join(str(s.rank) for s in ranks if s.flight_record) for ranks in (e.ranks, e.again))
    words = f"generation={e.generation} round={e.round}{' broke' if e.broke else ''} records of {first}"
    return f"{words}, again of {again}" if again else words


def _persist(e: fx.Persist) -> str:
    share = "" if e.shares == 1 and e.shard == WHOLE_STATE else f" {e.shard} {e.share}/{e.shares}"
    return f"{e.node} {e.member} {e.checkpoint} {e.kind} base={e.base} {e.versions}{share}"


def _seal(e: fx.Seal) -> str:
    parts = " ".join(f"{part.shard}:{part.share}/{part.shares}@{part.member}" for part in e.parts)
    return f"{e.node} {e.checkpoint} {parts}"


def _collect(e: fx.Collect) -> str:
    remove, keep, busy = (",".join(ids) or "-" for ids in (e.remove, e.keep, e.busy))
    return f"{e.node} remove={remove} keep={keep} busy={busy}"


def _told(e: fx.CheckpointTold) -> str:
    return f"{e.node} {e.member} {e.request} {e.checkpoint} {e.outcome}: {e.reason}"


def _gently(e: fx.Interrupt) -> str:
    return (" gently" if e.gentle else "") + (" keep" if e.keep else "")


def _step(step: int) -> str:
    return str(step) if step < NEVER_STEP else "none"


def _text(text: str) -> str:
    return text.replace("\n", " / ")


SHOW: dict[type[Any], Callable[[Any], str]] = {
    fx.StoreJob: _store_job,
    fx.StoreCheckpoint: _store_checkpoint,
    fx.ForgetJob: lambda e: f"ticket={e.ticket} job={e.job} forget={','.join(e.checkpoints)}",
    fx.ForgetCheckpoints: lambda e: f"ticket={e.ticket} forget={','.join(e.forget)}",
    fx.StoreNode: lambda e: f"ticket={e.ticket} node={e.node} {e.state}",
    fx.ForgetNode: _forget_node,
    fx.StoreHistory: lambda e: f"ticket={e.ticket} {_history(e.history)}",
    fx.Admit: lambda e: f"{e.node} incarnation={e.incarnation}",
    fx.Refuse: lambda e: f"{e.node} incarnation={e.incarnation}: {e.reason}",
    fx.Launch: _launch,
    fx.Interrupt: lambda e: f"{e.node} generation={e.generation}{_gently(e)}: {e.reason}",
    fx.Form: lambda e: f"{e.node} {_generation(e.generation)}",
    fx.Kill: lambda e: f"{e.node} {e.member}: {e.reason}",
    fx.Return: lambda e: f"{e.node} generation={e.generation}",
    fx.Complete: lambda e: f"{e.node} ok={e.ok}: {_text(e.reason)}",
    fx.Release: lambda e: (
        f"{e.node} step={e.step}"
        + (f" void={e.void_step}" if e.void_step >= 0 else "")
        + (f" kept from {_step(e.kept_from)}" if e.kept_from else "")
    ),
    fx.Persist: _persist,
    fx.Seal: _seal,
    fx.Mirror: lambda e: f"{e.node} {e.record.id} to {e.spec.mirror}",
    fx.Collect: _collect,
    fx.Scrub: lambda e: f"{e.node} {e.record.id}",
    fx.CheckpointTold: _told,
    fx.CollectStacks: lambda e: (
        f"{e.node} generation={e.generation} round={e.round}{' records only' if e.records_only else ''}"
        f"{' at barrier' if e.at_barrier else ''}"
    ),
    fx.JudgeRecords: _judge_records,
    fx.StacksKept: lambda e: f"step={e.step} of {len(e.ranks)} ranks: {e.summary}",
    fx.Drained: lambda e: f"{e.node}: {e.reason}",
    fx.LookAtPeers: lambda e: f"{e.node} round={e.round}: {' '.join(p.node for p in e.peers)}",
    fx.CheckNode: lambda e: f"{e.node} round={e.round & 0xFFFFFFFF}{' fresh' if e.fresh_s else ''}",
    fx.JudgeNode: lambda e: f"{e.node} beside {','.join(p.node for p in e.peers) or 'nobody'}",
    fx.ReplaceNode: lambda e: f"{e.node} {'gone ' if e.gone else ''}({e.reason})",
    fx.Probe: lambda e: f"{e.node} at {e.address or 'nowhere'}",
    fx.Alert: lambda e: (
        " ".join(filter(None, (e.kind, e.subject, "resolved" if e.resolved else e.severity)))
        + f": {e.reason}"
    ),
    fx.Publish: lambda e: f"{e.node} {e.record.id}{' as suspect' if e.record.bad else ''}",
    fx.Load: _load,
    fx.Fetch: lambda e: f"{e.node} {e.member} step={e.step} of {e.source} from {e.address}",
    fx.Replicate: _replicate,
    fx.Discard: lambda e: f"{e.node} {' '.join(e.members)}",
    fx.Judged: _judged,
    fx.IncidentChanged: _incident,
    fx.JobChanged: lambda e: f"{e.state.phase}: {_text(e.state.reason)}",
    fx.CheckpointChanged: lambda e: f"{e.checkpoint} {e.outcome}: {e.reason}",
    fx.Note: lambda e: f"{e.kind} {e.subject}: {e.reason}",
}

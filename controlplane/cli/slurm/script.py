"""Write the batch script: plain bash that an administrator can read.

Theory of operation. The batch shell runs on the first node. It starts etcd and a coordinator there (unless
they are outside), one agent per node through srun, and `holdfast submit --wait`, whose exit code becomes the
job's. A second coordinator would gain nothing: when the first node is lost, so is the batch shell, and what
is left is a job without its end. Slurm keeps that until the time limit, so other nodes look after the first
one, and have the job requeued; it goes on from its newest checkpoint. What a requeued job must still know
(generations, checkpoints, which of them are bad) is in etcd, whose data are in the state folder.

Slurm sends USR1 to the batch shell some time before the limit. The shell has the job saved and stopped, ends
the agents, and puts the job back into the queue. A lost signal would lose that, so no wait of the shell is
without bound."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from controlplane.cli.slurm.plan import AGENT_S, ALWAYS, END_S, NEVER
from holdfast.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controlplane.cli.slurm.plan import SlurmPlan

_WIDTH = 100

_FUNCTIONS = r"""
say() { echo "holdfast: $*" >&2; }
fail() { say "$*"; exit 1; }
over() { ! kill -0 "$1" 2> /dev/null; }    # whether this background process has ended

# within SECONDS PID: wait for its end, so long at most. A signal does not end the wait.
within() {
    local waited=0
    until over "$2"; do
        [ "$((waited += 1))" -le "$1" ] || return 1
        sleep 1 & wait $!
    done
}

# end PID: end this background shell and what it runs.
end() {
    local children
    mapfile -t children < <(pgrep -P "$1")
    kill "$1" "${children[@]}" 2> /dev/null
}

# keep COMMAND...: run it again whenever it dies, until this shell gets TERM. A wrong setting (2) or a
# program that is not there (126, 127) stays wrong.
keep() {
    local code ending=
    trap 'ending=yes' TERM
    while true; do
        "$@"
        code=$?
        case $code in 0 | 2 | 126 | 127) return "$code" ;; esac
        [ -z "$ending" ] || return 0
        say "$1 ${2:-} on ${SLURMD_NODENAME:-} ended with code $code; again in 2 s"
        sleep 2
    done
}
"""

_CALL_TLS = r"""
# hf ROLE COMMAND...: run `holdfast COMMAND` with the certificate of ROLE.
hf() {
    HOLDFAST_TLS_CERT=$tls/$1.crt HOLDFAST_TLS_KEY=$tls/$1.key "$python" -P -m controlplane "${@:2}"
}
"""
_CALL_PLAIN = r"""
# hf ROLE COMMAND...: run `holdfast COMMAND`. Without TLS every role is the same.
hf() { "$python" -P -m controlplane "${@:2}"; }
"""

_EXIT = r"""
# However this shell ends, so do its daemons: not every Slurm finds those whose parent is gone.
daemons=()
end_all() {
    trap '' TERM
    for pid in "${daemons[@]}"; do end "$pid"; done
    for pid in "${daemons[@]}"; do within 10 "$pid"; done
    rm -rf "$scratch"
}
scratch=$(mktemp -d)
trap end_all EXIT
trap 'exit 143' TERM
limit=
trap 'limit=yes' USR1    # by Slurm, before the time limit

[ -x "$python" ] || fail "no $python on $(hostname): give a Python that is there on every node with --python"
say "job $SLURM_JOB_ID on $SLURM_JOB_NODELIST, start $((${SLURM_RESTART_COUNT:-0} + 1)); coordinator" \
    "$HOLDFAST_COORDINATOR"
"""

_STATE = r"""
# The state folder serves one job at a time.
(mkdir -p "$state" && chmod 700 "$state") ||
    fail "cannot create $state: name a shared folder with --state-dir"
[ ! -e "$state/lost" ] || say "$(cat "$state/lost")"
rm -f "$state/lost"
exec 9>> "$state/lock"
flock --timeout 60 9 || fail "another job uses $state: wait for its end, or give another --state-dir"
"""

_ETCD = r"""
# etcd, for this node only. Its data are in the state folder, so that they are there after a requeue.
command -v "$etcd" > /dev/null ||
    fail "no $etcd on $(hostname): install it, name it with --etcd-binary, or give --etcd HOST:PORT"
unset "${!ETCD_@}"    # etcd takes every such variable for a flag
endpoint=127.0.0.1:$((port + 1))
(
    cd "$scratch" || exit
    keep "$etcd" \
        {flags}
) 2>> "$state/etcd.log" 9>&- &
daemons+=($!)
"""

_COORDINATOR = r"""
# The coordinator, which decides.
keep hf coordinator coordinator \
    {flags} \
    2>> "$state/coordinator.log" 9>&- &
daemons+=($!)
"""

_LEADS = r"""
# Nobody can be asked before a coordinator leads.
tries=0
until hf operator status > "$scratch/status" 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 60 ] || fail "{lost}"
    sleep 1
done
"""

_AGENTS = r"""
# Slurm keeps the job when the first node is lost. But this shell is lost with it, and nobody would end or
# requeue the job. So the next three nodes look whether Slurm still counts the first one among the job's.
export first=$SLURMD_NODENAME
watch_first() {
    local nodes
    while sleep 30 && ! over $$; do
        nodes=$(squeue --noheader --job "$SLURM_JOB_ID" --format %N)
        [ -z "$nodes" ] || nodes=$(scontrol show hostnames "$nodes")
        [ -n "$nodes" ] || continue    # no answer from Slurm
        grep -qxF "$first" <<< "$nodes" && continue
        # The output of this job went through the first node, so the next start says it.
        echo "the first node, $first, was lost: $SLURMD_NODENAME {ends} the job" {tell}
        {end} "$SLURM_JOB_ID"
    done
}

# One agent on each node. It starts the ranks and watches them. Slurm's numbers of this task must not
# reach them: libraries would take them for ranks.
agent() {
    local code watcher=
    case $SLURM_NODEID in [123]) watch_first & watcher=$! ;; esac
    unset SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURM_NTASKS SLURM_NPROCS
    keep hf agent agent \
        {flags}
    code=$?
    [ -z "$watcher" ] || end "$watcher"
    return "$code"
}
export -f say over end keep hf watch_first agent
srun --no-kill --kill-on-bad-exit=0 --wait=0 --cpu-bind=none bash -c agent 9>&- &
agents=$!
"""

_SUBMIT = r"""
# The job. The same name goes on where it stopped. The exit code is 0 when it has finished.
hf operator submit \
    {flags} 9>&- &
submit=$!
daemons+=("$submit")
"""

_WAIT = r"""
# Until the job ends, or Slurm's signal comes.
until over "$submit" || over "$agents" || [ -n "$limit" ]; do
    sleep 2 & wait $!    # a signal ends the wait
done
if over "$agents" && ! over "$submit"; then
    fail "all agents have ended; srun says above why"
fi
"""

_SAVE = r"""
# The time limit is near: save, stop, and go back into the queue.
again=
if [ -n "$limit" ] && ! over "$submit"; then
    say "the time limit is near: saving the job"
    if hf operator checkpoint now "$job" --wait --timeout-s="$save_s" --reason='the time limit is near'; then
        again=yes
    elif over "$submit"; then
        say "the job has ended meanwhile"
    elif hf operator get checkpoints --job "$job" -o json | grep -q '"published": true'; then
        again=yes
        say "not saved now: the job will go on from its newest checkpoint"
    else
        {unsaved}
    fi
    over "$submit" || hf operator stop "$job" --reason='the time limit is near'
    within 5 "$submit" || end "$submit"
fi
"""

_UNSAVED = {
    ALWAYS: "again=yes\n        say 'not saved, and there is no checkpoint: it begins again'",
    "": "say 'not saved, and there is no checkpoint: it would begin again, so it is not requeued'",
}

_END = r"""
wait "$submit"
code=$?

# End the agents in order, so that they remove what they keep in memory.
scancel --signal=TERM "$SLURM_JOB_ID"
within {agents_s} "$agents"
"""

_REQUEUE = r"""
if [ -n "$again" ]; then
    say "back into the queue; it goes on from the newest checkpoint"
    scontrol requeue "$SLURM_JOB_ID" && exit 0
    fail "Slurm does not take it back: sbatch this script again, the job goes on from its checkpoint"
fi
"""


def text(plan: SlurmPlan) -> str:
    """The batch script of a plan."""
    parts = ["\n".join(["#!/bin/bash", *_directives(plan), *_settings(plan)]) + "\n", _FUNCTIONS]
    parts += [_CALL_TLS if plan.tls else _CALL_PLAIN, _EXIT, *_lead(plan)]
    parts.append(_agents(plan))
    parts.append(_SUBMIT.replace("{flags}", _words(_submit(plan), 4)))
    parts.append(_WAIT)
    if plan.requeue != NEVER:
        parts.append(_SAVE.replace("{unsaved}", _UNSAVED.get(plan.requeue, _UNSAVED[""])))
    parts.append(_END.replace("{agents_s}", str(AGENT_S)))
    parts.append(_REQUEUE if plan.requeue != NEVER else "")
    return "".join(parts) + 'exit "$code"\n'


def _directives(plan: SlurmPlan) -> Iterator[str]:
    waits = f", {plan.spare_nodes} for a failure" if plan.spare_nodes else ""
    options = [
        (f"--job-name={plan.job}", ""),
        (f"--nodes={plan.nodes_all}", f"{plan.nodes} to train{waits}"),
        ("--ntasks-per-node=1", "the agent, which starts the ranks of its node"),
        ("--exclusive", "other users of a node could reach its ports"),
        ("--mem=0", "all memory: snapshots are kept in it"),
        ("--no-kill", "a lost node does not end the job"),
        ("--dependency=singleton", "one job of this name at a time; the next goes on where it stopped"),
        ("--open-mode=append", "a requeued job goes on in the same output"),
        (f"--chdir={plan.chdir}", ""),
    ]
    if plan.requeue != NEVER:
        options += [("--requeue", "after the time limit, or when the first node is lost")]
        options += [(f"--signal=B:USR1@{plan.save_s}", f"{plan.save_s} s before the time limit")]
    else:
        options += [("--no-requeue", "")]
    options += [(f"--time={plan.time}", "")] if plan.time else []
    for option, why in [*options, *((each, "") for each in plan.sbatch)]:
        yield f"#SBATCH {option:<28}{f'    # {why}' if why else ''}".rstrip()


def _settings(plan: SlurmPlan) -> Iterator[str]:
    yield f"# Made by `holdfast slurm render` {__version__} (docs/slurm.md). Submit it: sbatch FILE"
    yield "# shellcheck disable=SC2317    # srun and traps call functions, too"
    yield "set -u"
    yield from plan.setup
    if plan.requeue != NEVER:
        yield f"job={plan.job}"
        yield f"save_s={plan.save_s - END_S}    # for the checkpoint at the end"
    yield f"export python={shlex.quote(plan.python)}"
    if plan.state:
        yield f"export state={plan.state}    # shared by all nodes; holds etcd's data, journal and logs"
        yield "port=$((20000 + SLURM_JOB_ID % 5000 * 2))"
    if plan.state and not plan.etcd:
        yield f"etcd={shlex.quote(plan.etcd_binary)}"
    lead = shlex.quote(plan.coordinator) if plan.coordinator else "$(hostname):$port"
    yield f"HOLDFAST_COORDINATOR={lead}"
    yield "export HOLDFAST_COORDINATOR"
    if plan.tls is None:
        yield "export HOLDFAST_INSECURE=1    # no TLS: whoever reaches these nodes can run programs on them"
        return
    yield f"export tls={shlex.quote(plan.tls.folder)}"
    yield f"export HOLDFAST_TLS_CA={shlex.quote(plan.tls.folder)}/ca.crt"
    yield f"export HOLDFAST_TLS_NAME={shlex.quote(plan.tls.coordinator_name)}"
    yield f"export HOLDFAST_TLS_PEER_NAME={shlex.quote(plan.tls.agents_name)}"


def _agents(plan: SlurmPlan) -> str:
    ends, end = ("ended", "scancel") if plan.requeue == NEVER else ("requeued", "scontrol requeue")
    tell = '> "$state/lost"' if plan.state else ">&2"
    found = _AGENTS.replace("{flags}", _words(_agent(plan), 8))
    return found.replace("{ends}", ends).replace("{end}", end).replace("{tell}", tell)


def _lead(plan: SlurmPlan) -> Iterator[str]:
    """What runs on the first node before the agents."""
    if plan.coordinator:
        yield _LEADS.replace("{lost}", '$HOLDFAST_COORDINATOR does not lead: $(tail -n 3 "$scratch/status")')
        return
    yield _STATE
    if not plan.etcd:
        yield _ETCD.replace("{flags}", _words(_etcd(plan), 8))
    yield _COORDINATOR.replace("{flags}", _words(_coordinator(plan), 4))
    yield _LEADS.replace(
        "{lost}", 'the coordinator does not lead: $(tail -n 5 "$state"/etcd.log "$state/coordinator.log")'
    )


def _etcd(plan: SlurmPlan) -> list[str]:
    pairs = zip(plan.etcd_flags[::2], plan.etcd_flags[1::2], strict=True)
    return [f"{flag}={value}" for flag, value in pairs]


def _coordinator(plan: SlurmPlan) -> list[str]:
    etcd = shlex.quote(plan.etcd) if plan.etcd else '"$endpoint"'
    return [
        f"--cluster={plan.cluster}",
        f"--etcd={etcd}",
        '--listen="0.0.0.0:$port"',
        '--advertise="$HOLDFAST_COORDINATOR"',
        '--journal="$state/journal.jsonl"',
        *map(shlex.quote, plan.coordinator_flags),
    ]


def _agent(plan: SlurmPlan) -> list[str]:
    return [
        f"--cluster={plan.cluster}",
        '--coordinator="$HOLDFAST_COORDINATOR"',
        '--node="$SLURMD_NODENAME"',
        f"--slots={plan.slots}",
        f"--jobs={plan.job}",
        *map(shlex.quote, plan.agent_flags),
    ]


def _submit(plan: SlurmPlan) -> list[str]:
    return list(map(shlex.quote, plan.submit_words))


def _words(words: list[str] | tuple[str, ...], indent: int) -> str:
    """These words, broken into lines of at most _WIDTH characters."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) + indent > _WIDTH:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return f" \\\n{' ' * indent}".join([*lines, line])

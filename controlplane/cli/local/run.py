"""`holdfast run`: run a job on this machine, from the first check until the last trace is removed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from controlplane.access.client_credentials import plain
from controlplane.cli.client import AdminClient, OtherSettings
from controlplane.cli.errors import FAILED, INTERRUPTED, OK, CliError
from controlplane.cli.local.cluster import ClusterPlan, LocalCluster
from controlplane.cli.local.layout import LocalPaths, Lock, prune, sweep
from controlplane.cli.local.lives import Beginning, current_life, passed_over, remember
from controlplane.cli.local.processes import become_subreaper
from controlplane.cli.orders.follow import (
    end_message,
    is_end,
    submitted,
    traceback_of,
    until_end,
    until_phase,
)
from controlplane.daemon.journal import rotation
from controlplane.reporting.event_text import EventLevel, sentence_of
from holdfast import removal
from holdfast.launch.errand import TERMINATED

if TYPE_CHECKING:
    from pathlib import Path

    from controlplane.core.records.model import JobSpec
    from controlplane.wire import control_pb2 as pb

SUBMIT_TIMEOUT_S = 60.0
_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED, signal.SIGHUP: TERMINATED}


def say(text: str) -> None:
    """Print a message of Holdfast's own to standard error. Standard output belongs to the ranks."""
    for line in text.splitlines():
        print(f"holdfast: {line}", file=sys.stderr, flush=True)


def run_locally(layout: LocalPaths, plan: ClusterPlan, spec: JobSpec, beginning: Beginning) -> int:
    """Run the job to its end and return the exit code. Nothing that was started is left. Raises CliError."""
    lock = Lock(layout)
    prune()
    code = FAILED
    try:
        become_subreaper()
        for thing in sweep(layout):
            say(f"removed what a killed run had left behind: {thing}")
        asked, spec = spec, current_life(layout, spec, beginning, knows_nothing=not plan.etcd)
        say("" if beginning.adopt else passed_over(layout, asked, spec, beginning))
        if beginning.fresh:
            forget(layout)
        code = asyncio.run(_run(layout, plan, spec, adopt=beginning.adopt))
        return code
    finally:
        _leave(layout, keep_logs=code == FAILED)
        lock.release()


def _leave(layout: LocalPaths, keep_logs: bool) -> None:
    """Remove the state of a job that no command will continue. After a failure the logs stay."""
    if layout.once and keep_logs:
        _remove(layout.state / "etcd")
        say(f"the daemons' logs and the journal are in {layout.state}")
    elif layout.once:
        _remove(layout.state)


def _remove(folder: Path) -> None:
    try:
        removal.tree(folder)
    except OSError as error:
        say(f"{folder} was not removed: {error}")


def forget(layout: LocalPaths) -> None:
    """Remove what earlier runs with this state folder left. Checkpoints on storage stay. Raises CliError."""
    try:
        removal.tree(layout.state / "etcd")
        for path in rotation.files(layout.state / "journal.jsonl"):
            removal.file(path)
    except OSError as error:
        raise CliError(f"--fresh: {error}; give another --state-dir") from error


async def _run(layout: LocalPaths, plan: ClusterPlan, spec: JobSpec, *, adopt: bool = False) -> int:
    cluster = LocalCluster(layout, plan)
    stop = _Signals(cluster)
    work = asyncio.create_task(_work(cluster, spec, adopt=adopt))
    stopping = asyncio.create_task(stop.wait())
    words = ""
    try:
        await asyncio.wait([work, stopping], return_when=asyncio.FIRST_COMPLETED)
        if stopping.done() and not work.done():
            say(f"{stop.name}: ending all processes of this run; {_promise(spec)}")
            return stop.code
        code, words = await work
        return code
    finally:
        for task in (work, stopping):
            task.cancel()
        await asyncio.gather(work, stopping, return_exceptions=True)
        left = await cluster.stop()
        if left:
            say(f"these processes cannot be killed (they wait in the kernel): {', '.join(map(str, left))}")
        say(words)  # after the ranks' own last lines, where people look


def _promise(spec: JobSpec) -> str:
    """The message that tells people what the same command will find. It promises only what is certain."""
    if not spec.storage:
        return "without --storage no state is kept: the same command starts again from step 0"
    return "the same command continues from the newest checkpoint, if one was committed"


async def _work(cluster: LocalCluster, spec: JobSpec, *, adopt: bool) -> tuple[int, str]:
    await cluster.start()
    return await cluster.guard(_follow(cluster, spec, adopt=adopt))


async def _follow(cluster: LocalCluster, spec: JobSpec, *, adopt: bool) -> tuple[int, str]:
    """Follow the job to its end. Returns the exit code, and the last message for people."""
    async with AdminClient(cluster.address, access=plain()) as admin:
        if adopt:
            await _adopt(admin, spec)
        reply, started = await _submit(admin, cluster.layout, spec)
        if reply.phase == "finished":
            return (
                OK,
                f"job {spec.job} has already finished; --fresh starts it again, --rdzv-id names another",
            )
        verb = "continues" if reply.resumed else "starts"
        say(f"job {reply.job} {verb}; see {cluster.page}, or ask with --coordinator {cluster.address}")
        ending = await until_end(admin, reply.job, started, _HeadlinePrinter().take)
    return ending.code, end_message(ending)


async def _adopt(admin: AdminClient, spec: JobSpec) -> None:
    """Make the checkpoints on the storage known to the coordinator.

    Only manifests are read here: a restore verifies every byte anyway, and falls back to an older
    checkpoint."""
    from controlplane.cli.checkpoint.adopting import on_storage

    records, refused = await asyncio.to_thread(on_storage, spec.storage, spec.mirror, spec.job)
    reply = await admin.adopt(spec.job, records) if records else None
    for why in (*refused, *(reply.refused if reply else ())):
        say(f"not adopted: {why}")
    adopted = ", ".join(reply.adopted) if reply else ""
    say(f"checkpoints adopted for job {spec.job}: {adopted or 'none, there were none to adopt'}")


async def _submit(admin: AdminClient, layout: LocalPaths, spec: JobSpec) -> tuple[pb.SubmitReply, float]:
    """Submit the job, and return the answer and the wall clock time of the submission (s).

    A running job keeps its settings; when the given ones differ, it is stopped and submitted again with the
    new ones. Lines of the journal before that time are not about this run."""
    started = time.time()
    try:
        reply = await submitted(admin, spec, SUBMIT_TIMEOUT_S)
    except OtherSettings:
        say(f"job {spec.job} was started with other settings: it continues with the new ones")
        await admin.stop(spec.job, "submitted again with other settings")
        await until_phase(admin, spec.job, "stopped")
        started = time.time()
        reply = await submitted(admin, spec, SUBMIT_TIMEOUT_S)
    remember(layout, spec)
    return reply, started


class _HeadlinePrinter:
    """Prints the journal's headlines, and each traceback once, unless it ends the job (then `end_message` has
    it)."""

    def __init__(self) -> None:
        self._traceback = ""
        self._shown: set[str] = set()

    def take(self, line: dict[str, Any]) -> None:
        """Take one line of the journal."""
        self._traceback = traceback_of(line) or self._traceback
        sentence = sentence_of(line)
        if sentence.level <= EventLevel.HEADLINE and not is_end(line):
            say(sentence.text)
        if line["type"] == "Judged" and line["body"]["verdict"]["cause"] == "raised":
            self._explain(line["body"]["plan"]["strategy"])

    def _explain(self, strategy: str) -> None:
        if strategy != "stop" and self._traceback not in self._shown:
            say(self._traceback.rstrip())
            self._shown.add(self._traceback)


class _Signals:
    """Ends the run in order at the first signal, and at once at the second."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.name, self.code = "", OK
        self._cluster = cluster
        self._asked = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _CODES:
            loop.add_signal_handler(number, self._on, number)

    async def wait(self) -> None:
        """Return after the first signal."""
        await self._asked.wait()

    def _on(self, number: signal.Signals) -> None:
        if self._asked.is_set():
            self._cluster.end()
            os._exit(_CODES[number])
        self.name, self.code = ("Ctrl-C" if number == signal.SIGINT else number.name), _CODES[number]
        self._asked.set()

"""What storages do while a job trains, and between its runs: rot, vanish, fill up; and etcd with them."""

from __future__ import annotations

import json
import shutil
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from controlplane.daemon.etcd.server import PrivateEtcd
from holdfast.checkpoint import load
from holdfast.checkpoint.storage.store import Store
from tests.e2e.checkpointing import Trained, checkpoint, spoil, trained, verified
from tests.e2e.holding import in_some_hold
from tests.e2e.test_bad_moments import small_memory
from tests.e2e.test_cli_by_hand import daemon, holdfast
from tests.soak.books import Journal

if TYPE_CHECKING:
    from pathlib import Path

EVERY_TEN = "--nproc-per-node 2 --snapshot-every 5 --checkpoint-every 10 --full-every 100".split()
TWO = [*EVERY_TEN, *"--keep-last 2 --scrub-every-s 1 --storage HERE/first --mirror HERE/second".split()]
TWO += ["--hang-factor", "0"]  # a job that is held is not hung
LET_GO = "is no longer in its arena"
"""Why a checkpoint fails on a crowded machine: ranks keep what they offered for `ANSWER_S`, and the answer or
the agent that reads it comes later."""
KEYS = {"step", "kind", "valid", "bytes", "errors"}


def a_chunk(storage: Path, of: str) -> Path:
    """A file that this checkpoint needs."""
    text = next(storage.glob(f"jobs/*/manifests/{of}.json")).read_text()
    base = json.loads(text)["manifest"]["base"]
    return next(path for path in sorted(storage.glob(f"jobs/*/bases/{base}/chunks/*/*")) if path.name in text)


def manifests(storage: Path) -> list[Path]:
    """Those of all checkpoints that are there."""
    return list(storage.glob("jobs/*/manifests/*.json"))


def on_their_way(job: Trained) -> set[str]:
    """The checkpoints that have begun and not ended."""
    ended = [*job.changes("committed"), *job.changes("failed"), *job.changes("skipped")]
    return {body["checkpoint"] for body in job.changes("started")} - {body["checkpoint"] for body in ended}


def alike(first: Path, second: Path) -> bool:
    """Whether all checkpoints on both storages are valid, and the same. While training is held that is so
    soon: one that had begun before comes to one storage after the other."""
    return verified(first) == verified(second)


def newest_scrubbed(job: Trained) -> str:
    """Hold training, and wait until no checkpoint is on its way and the newest has been read again; its id.

    Only the newest is read again. What is damaged in an older one, and not used by the newest, stays so."""
    (job.folder / "hold").touch()
    before = len(job.bodies("Scrubbed"))

    def found() -> str:
        if on_their_way(job):
            return ""
        later = [body["checkpoint"] for body in job.bodies("Scrubbed")[before:]]
        return later[-1] if later and later[-1] == job.committed()[-1] else ""

    return str(job.wait(found, "the newest is scrubbed"))


def test_rot_is_mended_and_either_storage_may_vanish() -> None:
    with trained("plain", *TWO, ask_every=15) as job:
        first, second = job.folder / "first", job.folder / "second"
        job.more(5)
        newest = newest_scrubbed(job)
        spoil(a_chunk(first, newest))
        mended = job.wait(lambda: job.changes("repaired"), "the rot is mended")
        (mended_in,) = [body["checkpoint"] for body in mended]
        assert mended_in == newest == job.committed()[-1]
        few = in_some_hold(
            job.folder / "hold",
            lambda: not on_their_way(job) and all(len(manifests(each)) <= 3 for each in (first, second)),
        )
        job.wait(few, "the others are removed")  # all but two, and their base
        job.wait(lambda: alike(first, second), "both have the same")
        (job.folder / "hold").unlink()
        job.more(1)
        told = [(line["type"], line["body"]) for line in job.look()]
        for name in job.committed():
            copied = next(
                i for i, (kind, body) in enumerate(told) if kind == "Mirrored" and body["checkpoint"] == name
            )
            assert ("committed", name) not in [
                (b.get("outcome"), b.get("checkpoint")) for _, b in told[:copied]
            ]
        asks = job.wait(lambda: answered(job), "a request is answered")
        late = [line for line in asks if line[1] == "failed" and line[3].endswith(LET_GO)]
        assert {line[1] for line in asks if line not in late} <= {"committed", "skipped"}, asks
        job.kill_all()  # what is being saved now fails, and its ranks may live to be told
        vanish_between_runs_and_in_one(job, first, second)


def answered(job: Trained) -> list[list[str]]:
    """What the script has been told of its requests; empty until one of them was committed."""
    asks = job.written("asks")
    return asks if "committed" in {line[1] for line in asks} else []


def vanish_between_runs_and_in_one(job: Trained, first: Path, second: Path) -> None:
    newest = load.listing(Store.open(str(first)), job.run.job)[0]
    spoil(a_chunk(first, newest.id))
    code, told = checkpoint("verify", str(first))
    assert code == 1 and told.keys() == {"checkpoints"} and told["checkpoints"][0].keys() >= KEYS
    assert not told["checkpoints"][0]["valid"] and newest.id in told["checkpoints"][0]["errors"][0]
    assert verified(second)[0] == newest.step
    shutil.rmtree(first)
    job.again(*TWO)
    resume = job.resumed()
    assert (resume["tier"], resume["step"]) == ("checkpoint", newest.step)
    job.more(1)
    first.rename(job.folder / "gone")
    job.wait(lambda: first.exists() and len(list(first.glob("jobs/*/manifests/*"))) > 1, "it saves again")
    job.finish()
    code, told = checkpoint("verify", str(first))
    newest_now = told["checkpoints"][0]
    assert code == 0 and newest_now["valid"] and newest_now["step"] == verified(second)[0] == job.step, told
    job.judge()


async def test_etcd_is_lost_and_the_job_goes_on_from_what_is_adopted() -> None:
    flags = [*EVERY_TEN, "--storage", "HERE/storage"]
    with trained("sharded", *flags) as job:
        job.more(2)
        job.kill_all()
        shutil.rmtree(job.run.layout.state / "etcd")
        newest = verified(job.folder / "storage")[0]
        before = set(job.folder.glob("*.steps"))
        async with PrivateEtcd(job.folder / "another") as etcd:
            with ExitStack() as stack:
                where = cluster_by_hand(job, etcd.endpoint, stack)
                code, told = checkpoint("adopt", str(job.folder / "storage"), *where)
                assert code == 0 and f"{newest}-1" in told["adopted"] and told["refused"] == []
                placed = [flag.replace("HERE", str(job.folder)) for flag in flags]
                (job.folder / "last").write_text(str(newest + 20))
                done = holdfast("submit", *where, "--wait", "--rdzv-id", job.run.job, *placed, *job.script)
                assert done.returncode == 0 and f"finished at step {newest + 20}" in done.stdout, done.stderr
        job.judge()
        books = [path.read_text().split() for path in set(job.folder.glob("*.steps")) - before]
        assert [words[0] for words in books] == [str(newest + 1)] * 2
        assert verified(job.folder / "storage")[0] == newest + 20


def cluster_by_hand(job: Trained, etcd: str, stack: ExitStack) -> tuple[str, str]:
    """A coordinator and an agent that know nothing; the flag that names the coordinator."""
    flags = ("--etcd", etcd, "--etcd-private", "--listen", "127.0.0.1:0", "--lease-ttl-s", "2")
    where = ("--coordinator", stack.enter_context(daemon(job.folder, "coordinator", "coordinator", *flags)))
    places = ("--run-dir", str(job.folder / "run"), "--shm-dir", str(job.folder))
    stack.enter_context(daemon(job.folder, "agent", "agent", *where, "--node", "n7", "--slots", "2", *places))
    return where


def test_a_storage_that_is_full_or_read_only_costs_checkpoints_only() -> None:
    with small_memory("24m") as place:
        flags = [*EVERY_TEN, "--storage", str(place / "storage"), "--codec", "none"]
        with trained("plain", *flags, ask_every=20) as job:
            job.more(1)
            ballast = place / "ballast"
            fill(ballast)
            full = failed(job, "full")
            ballast.unlink()
            job.more(1)
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
            read_only = failed(job, "ead-only")
            subprocess.run(["mount", "-o", "remount,rw", str(place)], check=True)
            job.more(1)
            job.finish()
            assert not job.bodies("IncidentChanged")
            assert verified(place / "storage")[0] == job.step
            job.judge()
            asks = {line[1]: line[3] for line in job.written("asks")}
            assert {"committed", "failed"} <= set(asks) <= {"committed", "failed", "skipped"}, asks
            assert asks["failed"] in (*full, *read_only)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError:
            return


def failed(job: Trained, word: str) -> list[str]:
    """Wait until two checkpoints have failed for this reason, one of them asked for; all such reasons."""

    def reasons() -> list[str]:
        return [body["reason"] for body in job.changes("failed") if word in body["reason"]]

    asks = len(job.written("asks"))
    job.wait(lambda: len(reasons()) > 1 and len(job.written("asks")) > asks + 1, f"failed: {word}")
    return reasons()


def test_without_a_storage_an_asked_checkpoint_is_skipped() -> None:
    with trained("plain", "--snapshot-every", "5", ask_every=5) as job:
        job.wait(lambda: job.step >= 15, "some steps")
        job.finish()
        asks: list[Any] = job.written("asks")
        assert {line[1] for line in asks} == {"skipped"} and all("--storage" in line[3] for line in asks)


def test_checkpoints_on_s3_and_a_folder_that_follows(s3: str) -> None:
    flags = [*EVERY_TEN, "--storage", s3, "--mirror", "HERE/second", "--commit-when", "first"]
    with trained("plain", *flags) as job:
        job.more(2)
        job.kill_all()
        job.again(*flags)
        resume = job.resumed()
        assert resume["tier"] == "checkpoint" and resume["step"] >= 10
        job.more(1)
        job.finish()
        told = [(body["outcome"], body["checkpoint"]) for body in job.bodies("CheckpointChanged")]
        for outcome, name in told:
            if outcome == "mirrored":
                assert told.index(("committed", name)) < told.index((outcome, name))
        assert verified(s3)[0] == verified(job.folder / "second")[0] == job.step
        job.judge()
        code, listed = checkpoint("list", s3)
        assert code == 0 and json.dumps(listed).count(job.run.job) == len(listed["checkpoints"])


def test_a_run_whose_state_folder_is_lost_says_so_and_adopts_when_told() -> None:
    """The machine is another one, the storage the same: nothing is overwritten, nothing goes on unasked."""
    flags = ("--storage", "HERE/storage", "--checkpoint-every", "6", "--snapshot-every", "3")
    with trained("plain", *flags) as job:
        job.more(2)
        newest = job.committed()[-1]
        job.interrupt()
        shutil.rmtree(job.run.layout.state)
        job.journal = Journal(job.run.layout.state / "journal.jsonl")
        job.again(*flags, "--adopt")
        job.wait(lambda: f"checkpoints adopted for job {job.run.job}:" in job.run.output, "it is adopted")
        assert newest in job.run.output.partition("checkpoints adopted for job")[2].splitlines()[0]
        resumed = job.wait(lambda: [each for each in job.resumes() if each["checkpoint"]], "it goes on")
        assert resumed[0]["step"] >= int(newest.partition("-")[0])
        job.finish()
        job.judge()

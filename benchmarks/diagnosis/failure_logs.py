"""Make logs of jobs that failed, one job per seed; each states which rank failed first, and why.

Ranks train in step and log in one of several formats, on nodes whose clocks differ. One rank ends by itself,
the others a moment to a minute later because of it. It imports nothing of what it tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING

from benchmarks.diagnosis.failure_texts import AT_START, CASCADES, ENDINGS, NOISE, Ending

if TYPE_CHECKING:
    from collections.abc import Callable

BEGIN = datetime(2026, 11, 23, 14, 31, 32, tzinfo=UTC)
QUIET = ("step", "iter", "[train]", "heartbeat", "building", "batch", "waiting", "===")
NOISE_HEADS = tuple(text.partition("{")[0] or "gpu-" for text in NOISE)
FUNCTIONS = ("collate", "forward", "load_batch", "train_step", "save_checkpoint", "__getitem__")


@dataclass(frozen=True, slots=True)
class LogCase:
    """Logs and the truth: `files` by path; `rank`: None when several failed alike at once; `place`: file and
    line of the source, where one is to be named."""

    plant: str
    seed: int
    files: dict[str, bytes]
    rank: int | None
    causes: tuple[str, ...]
    restart: bool
    place: tuple[str, int] | None


@dataclass(slots=True)
class _Job:
    random: Random
    world: int
    per_node: int
    write: Callable[[datetime, str], str]
    tag: Callable[[int], str]
    begin: datetime
    every_s: float
    clocks_s: list[float]
    all_log_steps: bool
    lines: dict[int, list[tuple[datetime | None, str]]] = field(default_factory=dict)

    def node(self, rank: int) -> int:
        return rank // self.per_node

    def local(self, rank: int, at: datetime) -> datetime:
        return at + timedelta(seconds=self.clocks_s[self.node(rank)])

    def log(self, rank: int, at: datetime | None, text: str) -> None:
        shown = None if at is None else self.local(rank, at)
        self.lines.setdefault(rank, []).append((shown, text))


def _level(text: str) -> str:
    """The level with which a logger writes this line: what training says is information."""
    return "INFO" if text.startswith((*QUIET, *NOISE_HEADS)) else "ERROR"


def _iso(at: datetime, text: str) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} - train - {_level(text)} - {text}"


def _glog(at: datetime, text: str) -> str:
    return f"{_level(text)[0]}{at:%m%d %H:%M:%S.%f} 4242 train.py:88] {text}"


def _docker(at: datetime, text: str) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%S.%f}Z {text}"


def _clock(at: datetime, text: str) -> str:
    return f"{at:%H:%M:%S},{at.microsecond // 1000:03d} {_level(text)} {text}"


def _detectron(at: datetime, text: str) -> str:
    return f"[{at:%m/%d %H:%M:%S} trainer]: {text}"


def _bracket(at: datetime, text: str) -> str:
    return f"[{at:%Y-%m-%d %H:%M:%S}.{at.microsecond // 1000:03d}] {text}"


def _syslog(at: datetime, text: str) -> str:
    return f"{at:%b %d %H:%M:%S} gpu-host train[4242]: {text}"


def _untimed(_: datetime, text: str) -> str:
    return text


FORMATS = (_iso, _glog, _docker, _clock, _detectron, _bracket, _syslog, _untimed)
STEPS = (
    "step {n} loss 2.{n} lr 3e-4",
    "iter: {n}  total_loss: 9.9  time: 0.28",
    "[train] global_step={n} tok/s=41k",
)
LAYOUTS: tuple[Callable[[int, int], str], ...] = (
    lambda rank, _: f"rank{rank}.log",
    lambda rank, _: f"{rank}.log",
    lambda rank, _: f"log_{rank}.txt",
    lambda rank, node: f"node{node}-rank{rank}.err",
    lambda rank, _: f"rank_{rank}/stderr",
    lambda rank, _: f"run_9f/attempt_0/{rank}/stderr.log",
    lambda rank, node: f"node{node}/rank-{rank}.out",
)


def _job(random: Random) -> _Job:
    world = random.choice((2, 3, 4, 8, 8, 16, 32, 64, 256))
    per_node = random.choice((1, 2, 4, 8))
    nodes = (world + per_node - 1) // per_node
    spread_s = random.choice((0.0, 0.05, 2.0, 30.0))
    tag = random.choice((lambda _: "", lambda _: "", lambda r: f"[rank{r}]: ", lambda r: f"[default{r}]:",
                         lambda r: f"(Worker pid={4000 + r}) "))  # fmt: skip
    return _Job(
        random, world, per_node, random.choice(FORMATS), tag,
        BEGIN + timedelta(seconds=random.uniform(0, 3600)), random.uniform(0.3, 4.0),
        [random.uniform(-spread_s, spread_s) for _ in range(nodes)], random.random() < 0.8,
    )  # fmt: skip


def _train(job: _Job, first: int, steps: int, begin: datetime) -> datetime:
    """All ranks train; the time of the last step."""
    form = job.random.choice(STEPS)
    at = begin
    for step in range(first, first + steps):
        at += timedelta(seconds=job.every_s)
        for rank in range(job.world):
            moment = at + timedelta(seconds=job.random.uniform(0, 0.01))
            if job.all_log_steps or rank == 0:
                job.log(rank, moment, form.format(n=step))
            elif job.random.random() < 0.3:
                job.log(rank, moment, "heartbeat, queue 12")
            if job.random.random() < 0.03:
                job.log(rank, moment, _filled(job, rank, job.random.choice(NOISE), moment, {}))
    return at


def _filled(job: _Job, rank: int, text: str, at: datetime, more: dict[str, object]) -> str:
    at = job.local(rank, at)
    return text.format(**{
        "n": job.random.randint(10, 99), "pid": 4000 + rank, "rank": rank,
        "host": f"gpu-{job.node(rank):03d}", "site": "/usr/local/lib/python3.10/dist-packages",
        "syslog": f"{at:%b %d %H:%M:%S}",
        "glog": f"{at.month}{at:%d %H:%M:%S.%f}", "uptime": f"{(at - BEGIN).total_seconds() + 91063:12.6f}",
        "step": 512, "script": "train.py", "line": 1, "function": "f", "code": "pass", **more,
    })  # fmt: skip


def _end(job: _Job, rank: int, ending: Ending, at: datetime, place: tuple[str, int]) -> None:
    code = "raise" if "aise" in ending.lines[-1:] else "return self.inner(x)"
    more: dict[str, object] = {
        "script": place[0], "line": place[1], "function": FUNCTIONS[place[1] % len(FUNCTIONS)], "code": code,
    }  # fmt: skip
    for line in ending.lines:
        own_time = line.startswith(("{syslog}", "[{uptime}]", "W{glog}", "[rank{rank}]"))
        job.log(rank, None if own_time else at, _filled(job, rank, line, at, more))


def _follow(job: _Job, ranks: list[int], at: datetime) -> None:
    """These ranks end because of another one."""
    kinds = job.random.sample(CASCADES, job.random.choice((1, 1, 2, 3)))
    for rank in ranks:
        later = at + timedelta(seconds=job.random.uniform(0.05, 0.4) + job.random.choice((0.0, 5.0, 60.0)))
        lines = job.random.choice(kinds)
        _end(job, rank, Ending((), lines, True), later, ("/app/repo/train.py", 77))


def _place(random: Random) -> tuple[str, int]:
    file = random.choice(("/app/repo/train.py", "/data/proj/data/loader.py", "src/model.py", "/app/loop.py"))
    return file, random.randint(2, 900)


def _files(job: _Job) -> dict[str, bytes]:
    layout = job.random.choice(LAYOUTS)
    every_line = job.write is _docker
    ends = job.random.choice(("\n", "\n", "\n", "\r\n"))
    files: dict[str, bytes] = {}
    for rank in range(job.world):
        shown = []
        in_block = False
        for at, text in job.lines.get(rank, []):
            starts = text.startswith(("Traceback", "  File", "Fatal Python", "[rank", "W1", "E1"))
            in_block = in_block or starts
            stamped = at is not None and (every_line or not in_block)
            line = job.write(at, text) if stamped and at is not None else text
            shown.append(line if text.startswith("[rank") else job.tag(rank) + line)
        if job.random.random() < 0.05:
            shown.insert(0, "\x1b[32mstarted\x1b[0m \x00\x00 caf\udce9")
        body = ends.join([*shown, ""])
        files[layout(rank, job.node(rank))] = body.encode("utf-8", errors="surrogateescape")
    return files


def one_ends(kind: str, random: Random) -> tuple[_Job, int | None, Ending, tuple[str, int]]:
    """One rank ends by itself in the middle of the training."""
    job = _job(random)
    ending, place, rank = random.choice(ENDINGS[kind]), _place(random), random.randrange(job.world)
    at = _train(job, random.choice((0, 400)), random.randint(14, 40), job.begin)
    at += timedelta(seconds=random.uniform(0.1, 0.9) * job.every_s)
    if ending.spoken:
        _end(job, rank, ending, at, place)
    _follow(job, [each for each in range(job.world) if each != rank], at)
    return job, rank, ending, place


def all_end(kind: str, random: Random) -> tuple[_Job, int | None, Ending, tuple[str, int]]:
    """All ranks end alike, before the first step or soon after it."""
    job = _job(random)
    ending, place = random.choice(AT_START[kind]), _place(random)
    at = job.begin
    for rank in range(job.world):
        job.log(rank, at, "building the model, 1.3 B parameters")
    if kind.endswith("_at_start"):
        at = _train(job, 0, random.randint(1, 3), at)
    for rank in range(job.world):
        _end(job, rank, ending, at + timedelta(seconds=random.uniform(0.0, 0.2)), place)
    return job, None, ending, place


def survived(_: str, random: Random) -> tuple[_Job, int | None, Ending, tuple[str, int]]:
    """Ranks get over failures, train on, and later one ends by another one."""
    job = _job(random)
    job.all_log_steps = True
    at = _train(job, 0, 12, job.begin)
    for rank in random.sample(range(job.world), min(3, job.world)):
        _end(
            job,
            rank,
            random.choice(ENDINGS[random.choice(("cuda_oom", "storage", "exception"))]),
            at,
            _place(random),
        )
    at = _train(job, 12, 20, at)
    kind = random.choice(("exception", "gpu", "killed", "assertion"))
    ending, place, rank = random.choice(ENDINGS[kind]), _place(random), random.randrange(job.world)
    at += timedelta(seconds=0.2)
    _end(job, rank, ending, at, place)
    _follow(job, [each for each in range(job.world) if each != rank], at)
    return job, rank, ending, place


def restarted(_: str, random: Random) -> tuple[_Job, int | None, Ending, tuple[str, int]]:
    """The same files hold an earlier attempt that ended in another way on another rank."""
    job = _job(random)
    job.all_log_steps = True
    at = _train(job, 0, 20, job.begin)
    before = random.randrange(job.world)
    _end(job, before, random.choice(ENDINGS["gpu"]), at, _place(random))
    _follow(job, [each for each in range(job.world) if each != before], at)
    at += timedelta(seconds=120)
    if random.random() < 0.5:
        for rank in range(job.world):
            job.log(rank, at, "=== starting attempt 2 ===")
    at = _train(job, 10, 20, at)
    ending, place, rank = random.choice(ENDINGS["exception"]), _place(random), random.randrange(job.world)
    _end(job, rank, ending, at, place)
    _follow(job, [each for each in range(job.world) if each != rank], at)
    return job, rank, ending, place


def two_roots(_: str, random: Random) -> tuple[_Job, int | None, Ending, tuple[str, int]]:
    """A second rank fails by itself too, long enough after the first for its log to show it."""
    job = _job(random)
    while job.write is _untimed:
        job = _job(random)
    job.all_log_steps = True
    at = _train(job, 0, random.randint(14, 30), job.begin)
    rank, other = random.sample(range(job.world), 2)
    ending, place = (
        random.choice(ENDINGS[random.choice(("exception", "assertion", "storage"))]),
        _place(random),
    )
    job.log(rank, at + timedelta(seconds=0.1), "batch taken")
    _end(job, rank, ending, at + timedelta(seconds=0.2), place)
    late = at + timedelta(seconds=random.uniform(8, 90))
    job.log(other, late, "waiting for the other ranks")
    _end(
        job,
        other,
        random.choice(ENDINGS[random.choice(("crash", "cuda_oom", "exception"))]),
        late,
        _place(random),
    )
    _follow(job, [each for each in range(job.world) if each not in (rank, other)], at)
    return job, rank, ending, place


Plant = tuple["Callable[[str, Random], tuple[_Job, int | None, Ending, tuple[str, int]]]", str]
PLANTS: dict[str, Plant] = {
    **{f"one rank: {kind}": (one_ends, kind) for kind in ENDINGS},
    **{f"all ranks: {kind}": (all_end, kind) for kind in AT_START},
    "survived errors, then one rank": (survived, ""),
    "a second attempt in one file": (restarted, ""),
    "two ranks, one after the other": (two_roots, ""),
}
"""Every kind of planted case: who makes it, of which ending."""


def planted_logs(plant: str, seed: int) -> LogCase:
    """The case of this seed. The same seed always gives the same case."""
    random = Random(f"{plant} {seed}")
    make, kind = PLANTS[plant]
    job, rank, ending, place = make(kind, random)
    restart = ending.restart and rank is not None
    return LogCase(plant, seed, _files(job), rank, ending.causes, restart, place if ending.source else None)

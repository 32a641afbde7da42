"""Which rank failed first, by its log and those of the others, and whether to restart."""

from __future__ import annotations

import pytest

from benchmarks.diagnosis.failure_logs import PLANTS, planted_logs
from controlplane.analysis.failure_logs.causes import CAUSES, CausalRole, Recurrence
from controlplane.analysis.failure_logs.classify import of_exception, of_line
from controlplane.analysis.failure_logs.wordings import SOURCES, WORDINGS, XIDS
from controlplane.core.failures.hardware_words import HARDWARE_WORDS
from tests.analysis.logs import LOST, RAISED, failure, of, steps, text


def test_the_only_root_is_first_and_the_others_follow() -> None:
    found = of(steps(0, 9) + text(LOST), steps(0, 9) + text(RAISED), steps(0, 9) + text(LOST))
    assert found.first is not None and found.first.rank == 1
    assert [(rank, each.cause if each else "") for rank, each in found.cascade] == [
        (0, "connection_lost"),
        (2, "connection_lost"),
    ]
    first = found.first.failure
    assert first is not None and (first.cause, first.exception) == ("exception", "ValueError")
    assert (first.file, first.line, first.step) == ("/app/data.py", 12, 8)
    assert (first.log_file, first.log_line) == ("rank1.log", 17)
    assert not found.advice.restart and "/app/data.py:12" in found.advice.reason


@pytest.mark.parametrize(
    ("chain", "exception", "line"),
    [
        ("During handling of the above exception, another exception occurred:", "ValueError", 12),
        ("The above exception was the direct cause of the following exception:", "ValueError", 12),
        ("something else", "ValueError", 12),
    ],
)
def test_of_a_chain_the_exception_that_was_raised_first_counts(chain: str, exception: str, line: int) -> None:
    second = 'Traceback (most recent call last):\n  File "/app/report.py", line 4, in send\nTypeError: no\n'
    found = failure(text(RAISED) + f"\n{chain}\n\n" + second)
    assert (found.exception, found.line) == (exception, line)


def test_an_exception_of_a_loader_s_worker_counts_before_the_one_that_passes_it_on() -> None:
    outer = (
        'Traceback (most recent call last):\n  File "/app/train.py", line 3, in main\n'
        "ValueError: Caught ValueError in DataLoader worker process 2.\nOriginal "
    )
    assert failure(outer + text(RAISED)).file == "/app/data.py"


def test_the_first_exception_of_a_group_counts() -> None:
    found = failure("""
          + Exception Group Traceback (most recent call last):
          |   File "/app/train.py", line 3, in <module>
          |     raise ExceptionGroup("two", errors)
          | ExceptionGroup: two (2 sub-exceptions)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "/app/data.py", line 8, in read
            |     return table[key]
            | KeyError: 'x'
            +---------------- 2 ----------------
            | Traceback (most recent call last):
            |   File "/app/data.py", line 9, in read
            | TypeError: y
            +------------------------------------
        """)
    assert (found.exception, found.file, found.line) == ("KeyError", "/app/data.py", 8)


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank0]: ",
        "[default0]:",
        "(Worker pid=77) ",
        "2026-11-23T14:31:32.123Z ",
        "\x1b[31m[rank0]:\x1b[0m ",
        "[1,0]<stderr>:",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_prefixes_times_and_colours_do_not_hide_a_traceback(prefix: str, end: str) -> None:
    body = end.join(prefix + line for line in text(RAISED).splitlines())
    assert (failure(body).file, failure(body).line) == ("/app/data.py", 12)


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ('  File "/app/t.py", line 7\n    def f(:\n          ^\nSyntaxError: invalid syntax', "syntax_error"),
        ("usage: t.py [-h]\nt.py: error: unrecognized arguments: --lrr 3", "bad_arguments"),
        ("ValueError: the head of this traceback was cut off", "exception"),
        ('Traceback (most recent call last):\n  File "/app/t.py", line 7, in f\n', "exception"),
        ('Fatal Python error: Segmentation fault\n\nCurrent thread 0x0 (most recent call first):\n'
         '  File "/app/t.py", line 7 in f\n', "segfault"),
    ],
)  # fmt: skip
def test_other_forms_of_an_end(body: str, cause: str) -> None:
    found = failure(body)
    assert found.cause == cause and (not found.file or found.line == 7)


def test_failures_after_which_a_rank_trains_on_do_not_count() -> None:
    found = of(steps(0, 5) + text(RAISED) + steps(5, 9), steps(0, 9))
    assert found.first is None and found.got_over == 1 and found.advice.restart


def test_only_the_last_attempt_of_a_file_counts() -> None:
    again = (
        steps(2, 9) + 'Traceback (most recent call last):\n  File "/app/x.py", line 3, in f\nTypeError: n\n'
    )
    found = of(steps(0, 5) + text(RAISED) + again, steps(0, 9) + text(LOST))
    assert found.first is not None and found.first.failure is not None
    assert found.first.failure.file == "/app/x.py" and len(found.ranks[0].attempts) == 2


def test_the_same_failure_at_the_same_step_in_two_attempts_is_not_to_be_restarted() -> None:
    body = "CUDA error: uncorrectable ECC error encountered"
    raised = f'Traceback (most recent call last):\n  File "/w/x.py", line 3, in f\nRuntimeError: {body}\n'
    twice = steps(0, 30) + raised + "=== starting attempt 2 ===\n" + steps(10, 30) + raised
    assert not of(twice).advice.restart and "earlier attempt" in of(twice).advice.reason
    assert of(steps(0, 30) + raised).advice.restart


def test_a_rank_without_a_word_among_ranks_that_lost_one_was_killed() -> None:
    found = of(steps(0, 9) + text(LOST), steps(0, 9), steps(0, 9) + text(LOST))
    assert found.first is not None and (found.first.rank, found.advice.restart) == (1, True)
    assert found.first.failure is not None and found.first.failure.cause == "killed"


def test_a_rank_without_a_log_is_named() -> None:
    found = of(steps(0, 9) + text(LOST), steps(0, 9) + text(LOST))
    assert found.first is not None and found.first.rank is None
    assert "follows from another one" in found.first.reason


def test_times_decide_between_two_roots_when_clocks_are_known() -> None:
    slow = "2026-11-23 14:31:{n:02d},000 step {n} loss 1"
    fast = "2026-11-23 15:01:{n:02d},000 step {n} loss 1"  # a clock half an hour ahead
    late = text(RAISED).replace("Traceback", "2026-11-23 14:31:50,000 Traceback")
    early = text(RAISED).replace("Traceback", "2026-11-23 15:01:31,000 Traceback")
    found = of(steps(10, 30, form=slow) + late, steps(10, 30, form=fast) + early)
    assert found.first is not None and found.first.rank == 1
    assert {rank: round(each.offset_s) for rank, each in found.offsets} == {0: -900, 1: 900}
    assert "clocks_differ" in [each.kind for each in found.findings]


def test_what_cannot_be_decided_is_not_guessed() -> None:
    other = text(RAISED).replace("ValueError", "KeyError")
    found = of(steps(0, 40) + text(RAISED), steps(0, 40) + other, steps(0, 40) + text(LOST))
    assert found.first is not None and (found.first.rank, found.first.candidates) == (None, (0, 1))
    assert found.first.failure is None and "cannot be told" in found.first.reason


def test_a_failure_of_all_ranks_alike_is_not_to_be_restarted() -> None:
    head = 'Traceback (most recent call last):\n  File "/w/x.py", line 3, in f\n'
    oom = head + "torch.OutOfMemoryError: CUDA out of memory.\n"
    assert not of(*[steps(0, 2) + oom] * 4).advice.restart
    assert of(steps(0, 90) + oom, *[steps(0, 90) + text(LOST)] * 3).advice.restart


def test_file_times_decide_only_as_the_last_resort_and_say_so() -> None:
    bodies = steps(0, 40) + text(RAISED), steps(0, 40) + text(RAISED)
    same, apart = of(*bodies).first, of(*bodies, apart_s=60.0).first
    assert same is not None and (same.rank, same.candidates) == (None, (0, 1))
    assert same.failure is not None and same.failure.exception == "ValueError"
    assert apart is not None and (apart.rank, apart.confidence) == (1, 0.4)
    assert "only file times tell" in apart.reason


def test_nothing_recognised_says_so() -> None:
    found = of(steps(0, 4), "hello\n", "")
    assert found.first is None and found.advice.restart
    assert found.advice.reason == "nothing here says that it would fail again"
    assert [each.kind for each in found.findings] == ["nothing_recognised"]


@pytest.mark.parametrize("plant", PLANTS)
def test_planted_failures_are_named(plant: str) -> None:
    case = next(case for seed in range(70, 99) if len((case := planted_logs(plant, seed)).files) <= 8)
    bodies = [body.decode(errors="replace") for _, body in sorted(case.files.items(), key=_rank)]
    found = of(*bodies).first
    assert found is not None and (case.rank is None or found.rank == case.rank)


def _rank(item: tuple[str, bytes]) -> int:
    parts = item[0].replace("/", "-").replace("_", "-").replace(".", "-").replace("rank", "").split("-")
    return int([part for part in parts if part.isdigit()][-1])


def test_every_row_of_the_table_can_be_reached_and_names_its_source() -> None:
    for row in WORDINGS:
        assert row.source in SOURCES and row.cause in CAUSES
        assert all(word == word.lower() for word in row.words)
    assert all(cause in CAUSES for cause in XIDS.values())
    for code, cause in CAUSES.items():
        assert code == cause.code and cause.means and cause.advice
        assert cause.role is not CausalRole.CASCADE or cause.recurs is Recurrence.PASSES


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("NVRM: Xid (PCI:0000:ae:00): 79, GPU has fallen off the bus.", "gpu_lost"),
        ("NVRM: Xid (PCI:0000:dc:00): 45, pid=18, Ch 00000001 caused by previous Xid 149", "terminated"),
        ("Out of memory: Killed process 4242 (python) total-vm:1kB", "oom_killed"),
        ("Killed", "killed"),
        ("[E P.cpp:457] Watchdog caught collective operation timeout: WorkNCCL(", "collective_timeout"),
        ("Sending process 77 closing signal SIGTERM", "terminated"),
        ("mlx5_core 0000:ab:00.0 eth2: Link down", "link_down"),
    ],
)  # fmt: skip
def test_lines_that_name_a_cause(line: str, cause: str) -> None:
    named = of_line(line)
    assert named is not None and named[0] == cause


@pytest.mark.parametrize(
    "line",
    [
        "validation: 0 errors, error=0", "Retrying after timeout", "loss: nan (skipped by scaler)",
        "WARNING: CUDA out of memory in autotuning, falling back",
        "connection reset by peer, retrying in 2 s",
        "host:1:2 [0] NCCL INFO Connection closed by remote peer", "INFO SIGTERM handler installed",
        "UserWarning: [Errno 28] No space left on device. joblib will operate in serial mode",
        "oomph killed it",
    ],
)  # fmt: skip
def test_lines_that_mean_no_harm(line: str) -> None:
    assert of_line(line) is None


@pytest.mark.parametrize("words", HARDWARE_WORDS)
def test_what_the_live_side_takes_for_hardware_is_no_fault_of_the_script_here(words: str) -> None:
    cause, _ = of_exception("RuntimeError", f"{words} failed")
    assert CAUSES[cause].recurs in (Recurrence.PASSES, Recurrence.ALIKE)


def test_a_finance_shard_is_no_nan() -> None:
    assert of_exception("ValueError", "shard finance-3 is short")[0] == "exception"
    assert of_exception("ValueError", "loss is nan")[0] == "nan"

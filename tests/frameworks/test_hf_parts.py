"""The parts of the Trainer integration that need no transformers: events once, seeds, progress, refusals."""

from __future__ import annotations

import copy
import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast.errors import SessionError
from holdfast.integrations.hf import refusals
from holdfast.integrations.hf.callbacks import CallbackStates
from holdfast.integrations.hf.data import SeededSamples, set_epoch
from holdfast.integrations.hf.ledger import FILE_BYTES_MAX, KEPT_STEPS, EventLedger
from holdfast.integrations.hf.progress import LogHistory, plain
from holdfast.integrations.hf.rates import rates, set_rates, settings_stay
from holdfast.integrations.hf.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SAVED = ("on_save", 4, 0)
LEFT = {"control": {"should_save": False}, "callbacks": [{"patience": 1}]}


def ledger(folder: Path, rank: int, training: int = 7, until: tuple[int, int] | None = None) -> EventLedger:
    made = EventLedger(folder)
    made.take_place(rank, training, until)
    return made


def test_a_replacement_knows_the_events_of_the_dead_rank(tmp_path: Path) -> None:
    dead = ledger(tmp_path, 0)
    dead.note(SAVED, LEFT)
    assert ledger(tmp_path, 0).found(SAVED) == LEFT
    assert ledger(tmp_path, 1).found(SAVED) is None


def test_a_survivor_that_gets_another_rank_does_not_take_its_own_events_for_that_ranks(
    tmp_path: Path,
) -> None:
    survivor = ledger(tmp_path, 1)
    survivor.note(SAVED, LEFT)
    survivor.take_place(0, 7)
    assert survivor.found(SAVED) is None


def test_a_job_that_begins_anew_forgets_the_events_of_an_older_one(tmp_path: Path) -> None:
    ledger(tmp_path, 0).note(SAVED, LEFT)
    assert ledger(tmp_path, 0, training=8).found(SAVED) is None
    assert ledger(tmp_path, 0, training=7).found(SAVED) is None, "the file is of the newer one"


def test_a_rank_that_stays_does_not_need_its_file(tmp_path: Path) -> None:
    made, later = ledger(tmp_path, 0), ("on_log", 5, 0)
    made.note(SAVED, LEFT)
    (tmp_path / "rank-0.jsonl").unlink()
    made.take_place(0, 7)
    made.note(later, LEFT)
    assert made.found(SAVED) == made.found(later) == LEFT


def test_a_second_training_of_a_process_forgets_the_events_of_the_first(tmp_path: Path) -> None:
    made = ledger(tmp_path, 0)
    made.note(SAVED, LEFT)
    made.take_place(0, 8)
    assert made.found(SAVED) is None and ledger(tmp_path, 0, training=8).found(SAVED) is None


def test_new_processes_know_the_events_up_to_the_step_that_they_go_on_from(tmp_path: Path) -> None:
    dead, later = ledger(tmp_path, 0), ("on_log", 5, 0)
    epochs = [("on_epoch_begin", epoch, 0) for epoch in range(3)]
    for key in (SAVED, later, *epochs):
        dead.note(key, LEFT)
    for again in (ledger(tmp_path, 0, until=(4, 1)), ledger(tmp_path, 0)):
        found = [key for key in (SAVED, later, *epochs) if again.found(key) is not None]
        assert found == [SAVED, *epochs[:2]], "what is made again takes effect again, also for replacements"


def test_a_line_that_a_kill_cut_off_counts_as_not_called(tmp_path: Path) -> None:
    ledger(tmp_path, 0).note(SAVED, LEFT)
    path = tmp_path / "rank-0.jsonl"
    path.write_text(path.read_text() + path.read_text()[:20].replace("on_save", "on_log"))
    again = ledger(tmp_path, 0)
    assert again.found(SAVED) == LEFT
    assert again.found(("on_log", 4, 0)) is None
    again.note(("on_log", 4, 0), LEFT)
    assert ledger(tmp_path, 0).found(("on_log", 4, 0)) == LEFT


def test_events_that_take_all_ranks_are_known_and_can_be_forgotten(tmp_path: Path) -> None:
    told = ledger(tmp_path, 0)
    for step in (3, 4):
        told.note(("on_step_end", step, 0), {**LEFT, "together": step == 4})
    told.note(("on_epoch_begin", 1, 0), {**LEFT, "together": True})
    assert told.together(3) == [("on_step_end", 4, 0), ("on_epoch_begin", 1, 0)]
    assert told.together(5) == [("on_epoch_begin", 1, 0)]
    told.forget([("on_step_end", 4, 0)])
    assert told.found(("on_step_end", 4, 0)) is None
    assert told.found(("on_step_end", 3, 0)) is not None


def test_a_full_file_keeps_the_newest_steps(tmp_path: Path) -> None:
    long = {"control": {}, "callbacks": [{"text": "x" * (FILE_BYTES_MAX // 4)}]}
    made = ledger(tmp_path, 0)
    for step in (0, KEPT_STEPS + 1, KEPT_STEPS + 2, KEPT_STEPS + 3, KEPT_STEPS + 4):
        made.note(("on_log", step, 0), long)
    again = ledger(tmp_path, 0)
    assert again.found(("on_log", 0, 0)) is None
    assert again.found(("on_log", KEPT_STEPS + 1, 0)) == long
    assert again.found(("on_log", KEPT_STEPS + 4, 0)) == long


class Noisy(torch.utils.data.Dataset[float]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return random.random()


def test_a_sample_has_the_same_random_numbers_whatever_was_fetched_before_and_others_in_another_epoch() -> (
    None
):
    samples = SeededSamples(Noisy(), 7)
    first, second = samples[3], samples[4]
    assert first != second
    assert samples.__getitems__([4, 3]) == [second, first]
    samples.set_epoch(1)
    assert samples[3] != first


def test_an_epoch_reaches_the_sampler_behind_other_samplers() -> None:
    told: list[int] = []
    inner = SimpleNamespace(set_epoch=told.append)
    batches = SimpleNamespace(batch_sampler=SimpleNamespace(sampler=inner))
    set_epoch(SimpleNamespace(batch_sampler=batches, sampler=inner, dataset=None), 5)
    assert told == [5]


def test_only_entries_that_were_agreed_on_are_kept() -> None:
    history = LogHistory()
    entries: list[dict[str, Any]] = [{"loss": 0.1 + 0.2}]
    assert history.text(entries) == "[]"
    history.agreed = 1
    restored = LogHistory()
    assert restored.load(history.text([*entries, {"mine": 1.0}])) == entries
    assert restored.agreed == 1


def test_numbers_of_other_types_become_pythons_own() -> None:
    found = plain({"best": torch.tensor(0.5), "kinds": (1, True, "a"), "f": len, 3: float("inf")}, "state")
    assert found == {"best": 0.5, "kinds": [1, True, "a"], "f": None, 3: float("inf")}
    with pytest.raises(SessionError, match=r"state\.x: a object cannot be kept"):
        plain({"x": object()}, "state")

    with pytest.raises(SessionError, match=r"state\.x: a Tensor cannot be kept"):
        plain({"x": torch.zeros(2)}, "state")


class Average:
    """Averages in place, by `.data`, which no version of a tensor counts."""

    def __init__(self, weights: torch.nn.Module) -> None:
        self.average = copy.deepcopy(weights)

    def update(self, weights: torch.nn.Module) -> None:
        for own, other in zip(self.average.parameters(), weights.parameters(), strict=True):
            own.data.mul_(0.5).add_(other.data, alpha=0.5)


class KeptAverage(Average):
    def state_dict(self) -> dict[str, Any]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.average.load_state_dict(state)


def states(callback: Any, weights: torch.nn.Module) -> CallbackStates:
    return CallbackStates(SimpleNamespace(callbacks=[object, callback]), SimpleNamespace(model=weights))


def moved(weights: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for each in weights.parameters():
            each.add_(1)
    return weights


def test_an_average_that_is_not_kept_is_refused_in_the_first_steps_and_told_of_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    weights = torch.nn.Linear(2, 3)
    average = Average(weights)
    found = states(average, weights)
    found.look("on_step_end")
    found.look("on_step_end")
    average.update(moved(weights))
    with pytest.raises(SessionError, match="the callback Average, which changes a copy of the weights, is"):
        found.look("on_step_end")
    found.look("on_step_end")
    for _ in range(3):
        average.update(moved(weights))
        found.look("on_log")
    assert [record.getMessage().partition(", ")[0] for record in caplog.records] == [
        "Trainer under Holdfast: the callback Average"
    ]


def test_a_copy_of_the_weights_that_stays_as_it_is_and_the_weights_themselves_are_not_refused() -> None:
    weights = torch.nn.Linear(2, 3)
    teacher = SimpleNamespace(model=weights, all=[weights], teacher=copy.deepcopy(weights), step=0)
    found = states(teacher, weights)
    for step in range(3):
        found.look("on_step_end")
        moved(weights)
        teacher.step = step


class Changing(KeptAverage):
    """Does this in its events."""

    def __init__(self, weights: torch.nn.Module, change: Callable[[], Any]) -> None:
        super().__init__(weights)
        self.change = change

    def on_step_end(self) -> None:
        self.change()

    on_log = on_step_end


def tail_of(
    weights: torch.nn.Module, change: Callable[[Any, torch.optim.Optimizer], Any]
) -> Callable[..., None]:
    """Calls events of a tail whose callback makes this change of itself and the optimizer."""
    optimizer = torch.optim.AdamW(weights.parameters(), lr=0.1)
    callback = Changing(weights, lambda: change(callback, optimizer))
    handler = SimpleNamespace(callbacks=[callback])
    assert CallbackStates(handler, None).kept() == {"Changing_0": callback}
    tail = Tail(handler, SimpleNamespace(model=weights, optimizer=optimizer))

    def call(event: str) -> None:
        before = tail.look(event)
        getattr(callback, event, int)()
        tail.refuse_changes(event, before)

    return call


def grown(weights: torch.nn.Module) -> None:
    """Written through `.data`, which no version counts."""
    for each in weights.parameters():
        each.data.add_(1)


def set_decay(optimizer: torch.optim.Optimizer) -> None:
    optimizer.param_groups[0]["weight_decay"] = 0.5


WEIGHTS = torch.nn.Linear(2, 3)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda own, _: own.update(moved(WEIGHTS)), "the weights"),
        (lambda *_: moved(WEIGHTS), "the weights"),
        (lambda *_: grown(WEIGHTS), "the weights or a tracked state"),
        (lambda *_: WEIGHTS.requires_grad_(not WEIGHTS.weight.requires_grad), "the weights"),
        (lambda _, optimizer: set_decay(optimizer), "the optimizer"),
        (lambda own, _: own.average.weight.data.add_(1), "the weights or a tracked state"),
        (lambda own, _: moved(own.average), "the state_dict of Changing"),
    ],
)
def test_what_is_tracked_may_not_change_in_a_tail(change: Any, what: str) -> None:
    call = tail_of(WEIGHTS, change)
    call("on_save")
    with pytest.raises(
        SessionError, match=f"the callback Changing, which changes {what} in on_step_end, is not"
    ):
        call("on_step_end")


def test_a_callback_that_reads_in_a_tail_is_not_refused() -> None:
    call = tail_of(WEIGHTS, lambda own, optimizer: (own.state_dict(), optimizer.state_dict()))
    for event in ("on_step_end", "on_log") * 5:
        call(event)


def test_later_than_the_first_steps_values_are_compared_in_logs_only() -> None:
    late: list[int] = []
    call = tail_of(WEIGHTS, lambda *_: grown(WEIGHTS) if late else None)
    for _ in range(4):
        call("on_step_end")
    late.append(1)
    call("on_step_end")
    with pytest.raises(SessionError, match="which changes the weights or a tracked state in on_log"):
        call("on_log")


def test_rates_come_back_to_every_group() -> None:
    weights = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD([{"params": [weights[0]], "lr": 0.1}, {"params": [weights[1]], "lr": 0.2}])
    before = rates(optimizer)
    set_rates(optimizer, [0.3, 0.4])
    assert rates(optimizer) == [0.3, 0.4]
    set_rates(optimizer, before)
    assert rates(optimizer) == [0.1, 0.2]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_scheduler_that_is_made_anew_leaves_the_betas_of_a_training_that_goes_on(goes_on: bool) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    optimizer.step()
    schedule.step()
    there = optimizer.param_groups[0]["betas"]
    with settings_stay(optimizer, goes_on=goes_on):
        torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10)
    assert (optimizer.param_groups[0]["betas"] == there) is goes_on


def trainer(**given: Any) -> Any:
    config = {"use_seedable_sampler": True, "dispatch_batches": None} | given.pop("config", {})
    args: dict[str, Any] = {"fsdp": "", "parallelism_config": None, "auto_find_batch_size": False}
    args |= {"batch_eval_metrics": False}
    args |= {"train_sampling_strategy": "random", "accelerator_config": SimpleNamespace(**config)}
    args |= given.pop("args", {})
    own: dict[str, Any] = {
        "is_deepspeed_enabled": False,
        "is_fsdp_enabled": False,
        "is_model_parallel": False,
        "model": None,
        "compute_metrics": None,
        "accelerator": accelerator(regional=False),
    }
    own |= {"is_distributed_loading_by_transformers": False, "train_dataset": Noisy()} | given
    return SimpleNamespace(args=SimpleNamespace(**args), **own)


def accelerator(*, regional: bool) -> Any:
    plugin = SimpleNamespace(use_regional_compilation=regional)
    return SimpleNamespace(state=SimpleNamespace(dynamo_plugin=plugin))


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(4))


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"is_deepspeed_enabled": True}, "deepspeed"),
        ({"args": {"fsdp": "full_shard"}}, "fsdp"),
        ({"args": {"auto_find_batch_size": True}}, "auto_find_batch_size"),
        (
            {"args": {"train_sampling_strategy": "group_by_length"}},
            "train_sampling_strategy='group_by_length'",
        ),
        ({"train_dataset": Stream()}, "a train_dataset without positions"),
        ({"config": {"use_seedable_sampler": False}}, "use_seedable_sampler=False"),
        ({"config": {"dispatch_batches": True}}, "dispatch_batches"),
        ({"is_model_parallel": True}, "a model sharded at load time"),
        ({"args": {"batch_eval_metrics": True}, "compute_metrics": print}, "batch_eval_metrics"),
        ({"accelerator": accelerator(regional=True)}, "use_regional_compilation"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_name(given: dict[str, Any], name: str) -> None:
    with pytest.raises(SessionError) as refused:
        refusals.check(trainer(**given))
    assert f"{name} is not supported" in str(refused.value)


def test_what_can_be_kept_is_not_refused() -> None:
    refusals.check(trainer())
    refusals.check(trainer(args={"batch_eval_metrics": True}))
    refusals.check_world(2, 2)


def test_another_number_of_ranks_is_refused() -> None:
    with pytest.raises(SessionError, match="2 ranks trained the state, and there are 3"):
        refusals.check_world(2, 3)

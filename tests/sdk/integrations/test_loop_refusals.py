"""What loops with accelerate and Fabric refuse, each by name. Skipped where these are not installed."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    Sampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from holdfast.errors import SessionError
from holdfast.integrations.own_attributes import OwnAttributes
from holdfast.integrations.placed import (
    called_values,
    counting_samplers,
    data_values,
    order_of,
    own_data,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("ignore")
ONES: Any = torch.ones(8, 2)
NUMBERS: Any = torch.arange(64.0)
OTHERS: Any = None
WEIGHTED = WeightedRandomSampler([1.0] * 8, 8)


class Endless(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(8, 2))


class Buckets(BatchSampler):
    """Orders the batches itself."""


LOADERS = [
    (
        DataLoader(ONES, batch_sampler=Buckets(SequentialSampler(ONES), 2, drop_last=False)),
        "a training loader with a Buckets is not supported",
    ),
    (DataLoader(Endless()), "a training loader without positions is not supported"),
    (DataLoader(ONES, sampler=WEIGHTED), "a training loader with a WeightedRandomSampler is not supported"),
    (
        DataLoader(ONES, batch_sampler=BatchSampler(WEIGHTED, 2, drop_last=False)),
        "a training loader with a WeightedRandomSampler is not supported",
    ),
]


@pytest.mark.parametrize(("loader", "words"), LOADERS)
def test_accelerate_refuses_training_loaders_without_an_order(loader: Any, words: str) -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import refusals

    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True, dispatch_batches=False)
    prepared = accelerate.Accelerator(cpu=True, dataloader_config=config).prepare(loader)
    with pytest.raises(SessionError, match=words):
        refusals.check_training(prepared)


def test_accelerate_takes_a_static_graph_and_refuses_a_communication_hook() -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    from holdfast.integrations.accelerate import refusals

    static = DistributedDataParallelKwargs(static_graph=True)
    refusals.check_accelerator(_on_cpu(accelerate, static), on_cpu=True)
    hooked = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16)
    with pytest.raises(SessionError, match=r"comm_hook=\.\.\.\) is not supported"):
        refusals.check_accelerator(_on_cpu(accelerate, hooked), on_cpu=True)


def _on_cpu(accelerate: Any, options: Any) -> Any:
    config = accelerate.DataLoaderConfiguration(dispatch_batches=False)
    return accelerate.Accelerator(cpu=True, dataloader_config=config, kwargs_handlers=[options])


def test_accelerate_names_an_iterable_data_set_whose_batches_rank_0_would_give_out() -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import refusals

    with pytest.raises(SessionError, match="an iterable data set for training is not supported"):
        refusals.check_prepared(accelerate.Accelerator(cpu=True).prepare(DataLoader(Endless())))
    refusals.check_prepared(accelerate.Accelerator(cpu=True).prepare(DataLoader(ONES)))


def test_batches_that_are_skipped_have_the_order_of_their_epoch_in_a_process_that_begins_there() -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate.loader import LedShard
    from holdfast.integrations.led_loader import told

    def skipped(epochs: list[int]) -> list[list[float]]:
        """What is read in the last one of these epochs, after the first batch of it."""
        config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7)
        accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
        prepared = accelerator.prepare(DataLoader(NUMBERS, batch_size=2, shuffle=True))
        led = LedShard.instead_of(prepared, OTHERS)
        found: list[list[float]] = []
        for _ in told(iter(epochs), led):
            found = [batch.tolist() for batch in accelerate.skip_first_batches(led, 1)]
        return found

    assert skipped([0, 1]) == skipped([1]) != skipped([0])


def test_accelerate_refuses_steps_whose_gradients_no_rank_has_averaged() -> None:
    pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import refusals

    with pytest.raises(SessionError, match=r"within no_sync \(LocalSGD\) is not supported"):
        refusals.check_synchronised([SimpleNamespace(require_backward_grad_sync=False)])
    refusals.check_synchronised([torch.nn.Linear(1, 1), SimpleNamespace(require_backward_grad_sync=True)])


def test_an_order_is_found_behind_the_shard_of_a_rank() -> None:
    accelerate: Any = pytest.importorskip("accelerate")

    loader = DataLoader(ONES, batch_size=2)
    shard = accelerate.data_loader.prepare_data_loader(loader, num_processes=2, process_index=1)
    assert isinstance(order_of(shard), SequentialSampler)


@pytest.mark.parametrize(("loader", "words"), [LOADERS[0], *LOADERS[2:]])
def test_trainer_refuses_training_loaders_without_an_order(loader: Any, words: str) -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.hf import refusals

    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
    with pytest.raises(SessionError, match=words):
        refusals.check_loader(accelerator.prepare(loader))
    refusals.check_loader(accelerator.prepare(DataLoader(ONES, shuffle=True)))


def test_accelerate_takes_training_loaders_with_an_order() -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import refusals

    config = accelerate.DataLoaderConfiguration(use_seedable_sampler=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=config)
    for loader in (DataLoader(ONES), DataLoader(ONES, shuffle=True)):
        refusals.check_training(accelerator.prepare(loader))


@pytest.mark.parametrize(("loader", "words"), LOADERS)
def test_fabric_refuses_training_loaders_without_an_order(loader: Any, words: str) -> None:
    pytest.importorskip("lightning")
    from holdfast.integrations.fabric import refusals

    with pytest.raises(SessionError, match=words):
        refusals.check_training(loader)


def test_fabric_takes_training_loaders_with_an_order() -> None:
    pytest.importorskip("lightning")
    from holdfast.integrations.fabric import refusals

    refusals.check_training(DataLoader(ONES, sampler=SequentialSampler(ONES)))
    refusals.check_strategy("ddp")


class Counting(Sampler[int]):
    """Another order in each epoch, by a count of its own."""

    def __init__(self) -> None:
        self.epochs = 0

    def __len__(self) -> int:
        return len(ONES)

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        return iter([(self.epochs + each) % len(ONES) for each in range(len(ONES))])


class Told(Counting):
    def set_epoch(self, epoch: int) -> None:
        self.epochs = epoch


def test_a_samplers_own_count_is_found_behind_wrappers() -> None:
    wrapped = SimpleNamespace(dataset=SimpleNamespace(_sampler=Counting()), set_epoch=len)
    for found in (Counting(), wrapped):
        (own,) = counting_samplers(SimpleNamespace(batch_sampler=None, sampler=found))
        assert type(own) is Counting
    (own,) = counting_samplers(DataLoader(ONES, batch_size=2, sampler=Counting()))
    assert type(own) is Counting
    for sampler in (WEIGHTED, Told(), [1, 0]):
        assert not counting_samplers(DataLoader(ONES, batch_size=2, sampler=sampler))


class Sized(Dataset[int]):
    """Samples of a size that somebody sets."""

    def __init__(self) -> None:
        self.size = 1

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index * self.size


class Collate:
    def __call__(self, samples: list[Any]) -> list[Any]:
        return samples


def test_own_data_sets_and_what_collates_are_found_behind_those_of_torch() -> None:
    sized, collate = Sized(), Collate()
    behind: Any = ConcatDataset([Subset(sized, [0]), Subset(TensorDataset(ONES), [0])])
    assert own_data(behind, collate) == [collate, sized]
    assert own_data(ONES, len) == own_data(TensorDataset(ONES), None) == []


def test_what_data_sets_are_made_of_has_names() -> None:
    behind: Any = ConcatDataset([Subset(Sized(), [0, 3]), TensorDataset(ONES)])
    found = dict(data_values(behind))
    assert found["data set Sized.size"] == 1 and found["data set Subset.indices"] == [0, 3]
    assert found["data set TensorDataset.tensors[0]"] is ONES
    sizes = {name: each for name, each in found.items() if name.startswith("len(")}
    assert sizes == {
        **{"len(data set ConcatDataset)": 2 + len(ONES), "len(data set Subset)": 2},
        **{"len(data set Sized)": 4, "len(data set TensorDataset)": len(ONES)},
    }
    assert list(data_values(None)) == list(data_values(iter([1]))) == []
    of_one_class: Any = ConcatDataset([TensorDataset(ONES), TensorDataset(torch.zeros(4))])
    found = dict(data_values(of_one_class))
    assert found["data set TensorDataset.tensors[0]"] is ONES
    assert (found["data set TensorDataset (2).tensors[0]"] == 0).all()


def test_what_a_framework_calls_has_names_and_so_have_its_settings() -> None:
    collate = Collate()
    collate.length = 8  # type: ignore[attr-defined]
    assert dict(called_values("collate", collate)) == {"collate": collate, "collate.length": 8}
    assert dict(called_values("collate", partial(len))).keys() >= {"collate", "collate.func"}
    found = dict(called_values("loss", torch.nn.CrossEntropyLoss(label_smoothing=0.1)))
    assert found["loss.label_smoothing"] == 0.1
    assert dict(called_values("collate", None)) == {"collate": None}


def test_a_data_set_that_an_epoch_changes_is_named(caplog: pytest.LogCaptureFixture) -> None:
    sized, seen = Sized(), OwnAttributes("Lightning", "Keep it")
    for epoch in range(3):
        sized.size = epoch
        seen.look(own_data(Subset(sized, [0]), None))
    (record,) = caplog.records
    assert "Lightning: Sized.size changes in the training and is not kept" in record.getMessage()


def test_fabric_refuses_a_sampler_that_counts_epochs_itself() -> None:
    fabric: Any = pytest.importorskip("lightning.fabric.utilities.distributed")
    from holdfast.integrations.fabric import refusals

    def loader(sampler: Any) -> Any:
        divided = fabric.DistributedSamplerWrapper(sampler, num_replicas=2, rank=0)
        return DataLoader(ONES, batch_size=2, sampler=divided)

    with pytest.raises(SessionError, match="a training loader with a Counting without set_epoch is not"):
        refusals.check_training(loader(Counting()))
    for sampler in (WEIGHTED, Told()):
        refusals.check_training(loader(sampler))


@pytest.mark.parametrize("strategy", ["fsdp", "deepspeed", "ddp_spawn", object()])
def test_fabric_refuses_other_strategies(strategy: Any) -> None:
    pytest.importorskip("lightning")
    from holdfast.integrations.fabric import refusals

    name = repr(strategy) if isinstance(strategy, str) else "object"
    with pytest.raises(SessionError, match=f"Fabric under Holdfast: strategy={name} is not supported"):
        refusals.check_strategy(strategy)


def test_without_an_agent_both_are_the_frameworks_own() -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("lightning")
    from holdfast.integrations.accelerate import Accelerator
    from holdfast.integrations.fabric import Fabric

    assert list(Accelerator(cpu=True).epochs(3, None)) == [0, 1, 2]
    fabric = Fabric(accelerator="cpu", devices=1)
    fabric.track(anything=object())
    assert (list(fabric.epochs(2, None)), fabric.session) == ([0, 1], None)

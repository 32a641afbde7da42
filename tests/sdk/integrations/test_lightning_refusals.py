"""What the Lightning integration refuses, each by name. Skipped where Lightning is not installed."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, IterableDataset

from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

lightning: Any = pytest.importorskip("lightning.pytorch")
ONES: Any = torch.ones(8, 2)
pytestmark = pytest.mark.filterwarnings("ignore")


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self, manual: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.automatic_optimization = not manual

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch).square().mean()
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def in_place() -> Model:
    model = Model()
    model.compile(backend="eager")
    return model


class Clearing(Model):
    """Clears its gradients itself: `every` step, or every other one."""

    def __init__(self, every: bool) -> None:
        super().__init__()
        self.every = every

    def optimizer_zero_grad(self, _epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        if self.every or batch_idx % 2:
            optimizer.zero_grad(set_to_none=False)


class Endless(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter(torch.ones(8, 2))


class OddLoader(DataLoader[Any]):
    def __iter__(self) -> Any:
        return super().__iter__()


def _trainer(folder: Path, **options: Any) -> Any:
    from holdfast.integrations.lightning import HoldfastStrategy

    return lightning.Trainer(
        strategy=HoldfastStrategy(),
        accelerator="cpu",
        devices=1,
        max_epochs=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        **options,
    )


@pytest.mark.parametrize("option", ["ddp_comm_state", "ddp_comm_hook", "timeout", "start_method"])
def test_options_of_ddp_that_cannot_be_kept(option: str) -> None:
    from holdfast.integrations.lightning import HoldfastStrategy

    options: dict[str, Any] = {option: object()}
    with pytest.raises(SessionError, match=rf"HoldfastStrategy\({option}=...\): .*: leave it out"):
        HoldfastStrategy(**options)


def test_options_that_are_left_at_their_defaults_are_not_given() -> None:
    """As LightningCLI does: it gives a strategy every option that its signature, or one above it, names."""
    from lightning.pytorch.strategies import DDPStrategy

    from holdfast.integrations.lightning import HoldfastStrategy

    kinds = (DDPStrategy, torch.nn.parallel.DistributedDataParallel)
    named = [each for kind in kinds for each in inspect.signature(kind).parameters.values()]
    options: dict[str, Any] = {each.name: each.default for each in named if each.default is not each.empty}
    assert {"static_graph", "timeout", "parallel_devices"} <= options.keys()
    made = HoldfastStrategy(**options | {"find_unused_parameters": True, "static_graph": True})
    assert made._ddp_kwargs == {"find_unused_parameters": True, "static_graph": True}


def test_the_strategy_has_a_name(tmp_path: Path) -> None:
    from lightning.pytorch import Trainer

    from holdfast.integrations.lightning import HoldfastStrategy

    trainer = Trainer(
        strategy="holdfast", accelerator="cpu", devices=1, logger=False, default_root_dir=tmp_path
    )
    assert type(trainer.strategy) is HoldfastStrategy


@pytest.mark.parametrize("option", ["sharding_strategy", "auto_wrap_policy", "stage"])
def test_options_of_strategies_that_shard(option: str) -> None:
    from holdfast.integrations.lightning import HoldfastStrategy

    options: dict[str, Any] = {option: object()}
    with pytest.raises(SessionError, match=rf"Strategy\({option}=...\): .*FSDPStrategy.*not supported"):
        HoldfastStrategy(**options)


def test_sharded_parameters(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        model = Model()
        fully_shard(model.layer, mesh=init_device_mesh("cpu", (1,)))
    finally:
        torch.distributed.destroy_process_group()
    with pytest.raises(SessionError, match=r"the parameter layer.weight is a DTensor .* not supported"):
        _trainer(tmp_path).fit(model, DataLoader(ONES))


@pytest.mark.parametrize(
    ("model", "loader", "words"),
    [
        (Model(manual=True), DataLoader(ONES), "automatic_optimization=False is not supported"),
        (Model(), DataLoader(Endless()), "the train loader has no length"),
        (Model(), OddLoader(ONES), "a OddLoader for training is not supported"),
        (Model(), [DataLoader(ONES)] * 2, "several train loaders are not supported"),
        (torch.compile(Model(), backend="eager"), DataLoader(ONES), "compiled as a whole is not supported"),
        (in_place(), DataLoader(ONES), "compiled as a whole is not supported"),
    ],
    ids=["manual", "no length", "other loader", "several", "compiled", "compiled in place"],
)
def test_trainings_that_cannot_be_kept(tmp_path: Path, model: Model, loader: Any, words: str) -> None:
    with pytest.raises(SessionError, match=words):
        _trainer(tmp_path).fit(model, loader)


def test_a_checkpoint_to_resume_from(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path)
    trainer.fit(Model(), DataLoader(ONES))
    assert trainer.global_step == 8
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    plain = lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False)
    plain.fit(Model(), DataLoader(ONES), ckpt_path=tmp_path / "one.ckpt")
    assert plain.global_step == 16, "a checkpoint of Lightning's own is read without Holdfast"
    with pytest.raises(SessionError, match=r"fit\(ckpt_path=...\) is not supported"):
        _trainer(tmp_path).fit(Model(), DataLoader(ONES), ckpt_path=tmp_path / "one.ckpt")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("StochasticWeightAveraging", {"swa_lrs": 0.1}),
        ("EMAWeightAveraging", {}),
        ("LearningRateFinder", {}),
        ("ModelPruning", {"pruning_fn": "l1_unstructured"}),
    ],
)
def test_callbacks_that_cannot_be_kept(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    callback = getattr(lightning.callbacks, name)(**options)
    with pytest.raises(SessionError, match=f"the callback {name} is not supported"):
        _trainer(tmp_path, callbacks=[callback]).fit(Model(), DataLoader(ONES))


def test_gradients_that_a_hook_leaves_for_the_next_step(tmp_path: Path) -> None:
    trainer = _trainer(tmp_path)
    trainer.fit(Clearing(every=True), DataLoader(ONES))
    assert trainer.global_step == 8
    with pytest.raises(SessionError, match=r"Clearing.optimizer_zero_grad leaves gradients of the step bef"):
        _trainer(tmp_path).fit(Clearing(every=False), DataLoader(ONES))


def test_reloading_and_times(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="reload_dataloaders_every_n_epochs is not supported"):
        _trainer(tmp_path, reload_dataloaders_every_n_epochs=1).fit(Model(), DataLoader(ONES))

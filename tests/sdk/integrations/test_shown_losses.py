"""Where each framework says what its loss is: that of each step reaches what is shown."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from holdfast import Session
from tests.sdk.integrations.test_step_loss import loss, offered

if TYPE_CHECKING:
    from holdfast.telemetry.step_loss import StepLoss

pytestmark = pytest.mark.filterwarnings("ignore")  # what Lightning finds to say of the machine and the data


def ends(session: Session, step: StepLoss) -> float | None:
    """What is shown when the step has ended."""
    step.end()
    return offered(session)


def of_two_batches(trainer: Any) -> float | None:
    """What is shown after a step of two batches, with losses of 1 and 3."""
    session = Session()
    trainer._loop = SimpleNamespace(loss=session.runtime.step_loss, session=session)
    for value in (1.0, 3.0):
        trainer._loop.loss.batch()
        trainer.backward(loss(value))
    return ends(session, trainer._loop.loss)


@pytest.mark.parametrize(("micro_batches", "shown"), [(2, 2.0), (1, 4.0)])
def test_accelerate_divides_the_losses_of_micro_batches_itself(micro_batches: int, shown: float) -> None:
    pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=micro_batches)
    assert of_two_batches(accelerator) == shown


def test_fabric_adds_up_what_it_is_given() -> None:
    pytest.importorskip("lightning")
    from holdfast.integrations.fabric import Fabric

    assert of_two_batches(Fabric(accelerator="cpu", devices=1)) == 4.0


@pytest.mark.parametrize("as_mapping", [False, True])
def test_lightnings_is_what_training_step_returns(as_mapping: bool) -> None:
    lightning: Any = pytest.importorskip("lightning")
    from holdfast.integrations.lightning import HoldfastStrategy

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))

        def training_step(self, batch: Any, _index: int) -> Any:
            found = (batch + self.weight * 0).sum()
            had.append(float(found.detach()))
            return {"loss": found, "other": 9.0} if as_mapping else found

        def validation_step(self, batch: Any, _index: int) -> None:
            pass

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1.0)

    session, shown, had = Session(), list[float | None](), list[float]()
    session.after_step(lambda _step: shown.append(offered(session)))
    trainer = lightning.Trainer(
        strategy=HoldfastStrategy(session), accelerator="cpu", devices=1, max_epochs=1,
        accumulate_grad_batches=2, val_check_interval=4, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
    )  # fmt: skip
    batches: Any = (2.0 ** torch.arange(5)).reshape(5, 1)
    trainer.fit(Module(), torch.utils.data.DataLoader(batches), torch.utils.data.DataLoader(batches))
    assert [each for each in shown if each is not None] == [
        (had[0] + had[1]) / 2,
        (had[2] + had[3]) / 2,
        had[4],
    ]

"""A compiled model is kept as the module in it, and is compiled in every generation, whoever compiles it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from holdfast import Session
from holdfast.integrations import compiled

pytestmark = pytest.mark.filterwarnings("ignore")
GENERATIONS = 3


@pytest.fixture
def session() -> Session:
    return Session()


def test_what_is_kept_of_a_compiled_model_is_the_module_in_it() -> None:
    model, in_place = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    in_place.compile(backend="eager")
    assert compiled.bare(model) is compiled.bare(torch.compile(model, backend="eager")) is model
    assert compiled.bare(in_place) is in_place


@pytest.mark.parametrize("by_script", [False, True], ids=["by accelerate", "by the script"])
def test_a_model_that_outlives_generations_of_accelerate_is_compiled_in_each(
    session: Session, by_script: bool
) -> None:
    accelerate: Any = pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import Accelerator

    model, given_to, outputs = torch.nn.Linear(8, 8), torch.randn(4, 8), list[torch.Tensor]()
    exact, options = model(given_to), {} if by_script else {"dynamo_backend": "eager"}
    for _ in range(GENERATIONS):
        accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
        accelerator: Any = Accelerator(cpu=True, mixed_precision="bf16", **options)
        accelerator._loop = SimpleNamespace(session=session)  # as if an agent looked after it
        accelerator._names, accelerator._wrapped = {"model": 0}, []
        given = torch.compile(model, backend="eager") if by_script else model
        prepared = accelerator.prepare_model(given)
        assert compiled.bare(prepared) is model is not prepared
        outputs.append(prepared(given_to))
        assert session.runtime.state.tracked.named_modules() == {"model": model}
    assert all(each.equal(outputs[0]) for each in outputs), "each computes in bfloat16"
    assert not exact.equal(outputs[0])


def test_accelerate_unwraps_a_compiled_model_in_its_wrapper() -> None:
    pytest.importorskip("accelerate")
    from holdfast.integrations.accelerate import Accelerator

    model, accelerator = torch.nn.Linear(2, 2), Accelerator(cpu=True)
    called = torch.compile(model, backend="eager")
    torch.distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        wrapped = DistributedDataParallel(called)
        assert accelerator.unwrap_model(wrapped) is called
        assert accelerator.unwrap_model(wrapped, keep_torch_compile=False) is model
        assert accelerator.unwrap_model(model, keep_torch_compile=False) is model
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("method", ["setup", "setup_module"])
def test_fabric_wraps_the_compiled_model_and_keeps_the_module_in_it(session: Session, method: str) -> None:
    pytest.importorskip("lightning")
    from holdfast.integrations.fabric.strategy import LoopStrategy
    from holdfast.integrations.fabric.wrapper import Fabric

    for _ in range(GENERATIONS):
        fabric: Any = Fabric(accelerator="cpu", devices=1)
        fabric._loop, fabric._optimizers = SimpleNamespace(session=session), 0
        fabric._strategy, fabric._launched = LoopStrategy(fabric._loop), True
        model = torch.nn.Linear(2, 2)
        called = torch.compile(model, backend="eager")
        found = getattr(fabric, method)(called, move_to_device=False)
        assert (found.module, found._forward_module) == (model, called)
        assert list(found.state_dict()) == ["weight", "bias"]
        assert session.runtime.state.tracked.named_modules() == {"model": model}

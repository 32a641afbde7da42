"""What the wrapper of a model refuses, in a process group of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from holdfast.agreement import differing
from holdfast.ddp import wrap
from holdfast.errors import SessionError

if TYPE_CHECKING:
    from collections.abc import Iterator

ONES = torch.ones(2, 4)


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _half_frozen() -> torch.nn.Sequential:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    model[0].requires_grad_(False)
    return model


def test_a_parameter_that_is_unfrozen_behind_the_wrapper_is_refused_by_name() -> None:
    model = _half_frozen()
    wrapped = wrap(model, torch.device("cpu"), {})
    wrapped(ONES).sum().backward()
    model[0].requires_grad_(True)
    with torch.no_grad():
        wrapped(ONES)
    with pytest.raises(SessionError, match=r"ddp: 0\.weight needs gradients now, and did not when"):
        wrapped(ONES)
    wrap(model, torch.device("cpu"), {})(ONES).sum().backward()
    assert model[0].weight.grad is not None


def test_a_parameter_that_the_model_keeps_from_averaging_is_not_refused() -> None:
    model = _half_frozen()
    vars(model)["_ddp_params_and_buffers_to_ignore"] = ["0.weight", "0.bias"]
    wrapped = wrap(model, torch.device("cpu"), {})
    model[0].requires_grad_(True)
    wrapped(ONES).sum().backward()
    assert model[1].weight.grad is not None


def test_a_communication_hook_that_keeps_a_state_is_named(caplog: pytest.LogCaptureFixture) -> None:
    kept = powerSGD_hook.PowerSGDState(None)
    for state, hook in ((None, default_hooks.fp16_compress_hook), (kept, powerSGD_hook.powerSGD_hook)):
        wrapped = wrap(torch.nn.Linear(4, 1), torch.device("cpu"), {})
        wrapped.register_comm_hook(state, hook)  # type: ignore[operator]
    said = [each.getMessage() for each in caplog.records if each.name == "holdfast.sdk"]
    assert [text.partition(", which")[0] for text in said] == [
        "the communication hook powerSGD_hook keeps a PowerSGDState"
    ]


def test_ranks_that_differ_after_their_first_step_are_told_of_unused_parameters() -> None:
    every = [{"1": {"m.weight": ["(4,) float32", digest]}} for digest in ("a", "b")]
    assert "find_unused_parameters=True" in differing.text(every, "after step 0")
    assert "find_unused_parameters=True" not in differing.text(every, "as the script built it")

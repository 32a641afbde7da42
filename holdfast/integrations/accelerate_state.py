"""Give accelerate's singletons this rank's place, so that accelerate forms no process group of its own.

accelerate keeps the place in two dictionaries, which every PartialState and AcceleratorState share. They are
filled before a place is known, as if one process trained alone, and changed in place in every generation."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils import DistributedType, DynamoBackend, is_compiled_module

from holdfast.environment import Environment
from holdfast.errors import SessionError
from holdfast.integrations import compiled
from holdfast.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

_connected: list[Session] = []
"""The session of this process; empty before the first `connect`, and without an agent."""


def agent_looks_after() -> bool:
    """Whether this process has an agent."""
    return bool(Environment.read(os.environ).agent_socket)


def connect(*, cpu: bool = False) -> Session | None:
    """The session of this process, with accelerate's state prepared for it; None without an agent: then
    everything is as without Holdfast.

    `cpu`: train on the CPU, whatever devices there are. Raises SessionError if a process group exists."""
    if not agent_looks_after():
        return None
    if _connected:
        return _connected[0]
    if dist.is_initialized():
        raise SessionError(
            "a process group exists before the training begins: import TrainingArguments from "
            "holdfast.integrations.hf, and remove init_process_group() from the script"
        )
    session = Session(backend="gloo" if cpu else None)
    _fill(torch.device("cpu") if cpu else session.device, cpu=cpu)
    session.on_form(lambda: take_place(session))
    session.on_leave(_leave)
    _connected.append(session)
    return session


def refill(session: Session, *, cpu: bool = False) -> None:
    """Prepare accelerate's state again, after something has reset it."""
    if not PartialState._shared_state:
        _fill(torch.device("cpu") if cpu else session.device, cpu=cpu)


def _fill(device: torch.device, *, cpu: bool) -> None:
    AcceleratorState._shared_state.clear()
    PartialState._shared_state.clear()
    on_cpu = device.type == "cpu"
    PartialState._shared_state.update(
        _cpu=cpu,
        backend="gloo" if on_cpu else "nccl",
        device=device,
        debug=False,
        distributed_type=DistributedType.MULTI_CPU if on_cpu else DistributedType.MULTI_GPU,
        num_processes=1,
        process_index=0,
        local_process_index=0,
        fork_launched=False,
    )


def take_place(session: Session) -> None:
    """Tell accelerate this process's rank: in each generation, and in a process that joined late."""
    place = {
        "num_processes": session.world_size,
        "process_index": session.rank,
        "local_process_index": int(os.environ.get("LOCAL_RANK", "0")),
    }
    for shared in (PartialState._shared_state, AcceleratorState._shared_state):
        if shared:
            shared.update(place)


def _leave() -> None:
    """Forget the loaders that were being read: their iterators were broken off."""
    shared: dict[str, Any] = GradientState._shared_state
    if shared:
        shared.update(sync_gradients=True, _dataloader_references_ref=[None])


def wrapping(session: Session, accelerator: Any) -> Callable[..., Any]:
    """A `prepare_model` for this accelerator that wraps by `session.ddp` what accelerate would wrap in DDP.

    Mixed precision and compilation are prepared once: they change the model, which outlives generations."""
    done: dict[int, Any] = {}

    def prepare_model(model: Any, device_placement: Any = None, evaluation_mode: bool = False) -> Any:
        if id(model) not in done:
            prepare = type(accelerator).prepare_model
            done[id(model)] = prepare(
                accelerator, model, device_placement=device_placement, evaluation_mode=True
            )
        elif model not in accelerator._models:
            accelerator._models.append(model)
        if evaluation_mode:
            return done[id(model)]
        return wrapped(session, accelerator, done[id(model)])

    return prepare_model


def unwrap(trainer: Any) -> None:
    """Have a Trainer hold its model without this generation's wrapper. So do modules that it holds: the
    losses of sentence-transformers keep what they were called with first."""
    wrapper, trainer.model_wrapped = trainer.model_wrapped, trainer.model
    if wrapper is trainer.model:
        return
    for held in list(vars(trainer).values()):
        for each in held.values() if isinstance(held, dict) else (held,):
            parts = each.modules() if isinstance(each, torch.nn.Module) and each is not trainer.model else ()
            for modules in [part._modules for part in parts]:
                modules.update({name: trainer.model for name, part in modules.items() if part is wrapper})


def compiled_again(accelerator: Any, model: Any) -> Any:
    """A model that was prepared before for an accelerator of this process, compiled as this one asks for.

    The code of the time before is found again."""
    plugin = accelerator.state.dynamo_plugin
    if plugin.backend == DynamoBackend.NO or is_compiled_module(model):
        return model
    return torch.compile(model, **plugin.to_kwargs())


def unmark(model: Any) -> None:
    """Take accelerate's mark off the module in a compiled model: a mark on what is compiled lands there, and
    accelerate would give the bare module back, uncompiled, when it is prepared again."""
    if is_compiled_module(model):
        vars(compiled.bare(model)).pop("_is_accelerate_prepared", None)


def wrapped(session: Session, accelerator: Any, model: Any) -> Any:
    """A model that this accelerator has prepared, wrapped by the session with the accelerator's options."""
    options = accelerator.ddp_handler.to_kwargs() if accelerator.ddp_handler is not None else {}
    return session.ddp(model, weighted=False, **options)

"""Make TrainingArguments that form no process group: a spare has no rank yet when they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import transformers

from holdfast.errors import SessionError
from holdfast.integrations import accelerate_state, versions
from holdfast.integrations.hf import refusals
from holdfast.integrations.hf.meetings import wait_elastically

if TYPE_CHECKING:
    from holdfast.session import Session

CONFIGURED = {"use_configured_state": True}
"""What TrainingArguments need as `accelerator_config`, after `prepare()`."""


def prepare(*, cpu: bool = False) -> Session | None:
    """Prepare this process for TrainingArguments of another class (TRL's, your own): call it before they are
    made, and give them `accelerator_config={"use_configured_state": True}`.

    `cpu`: as their `use_cpu`. Returns the session; None without an agent: then nothing is prepared, and they
    must not get that argument. Raises SessionError if a process group exists."""
    session = accelerate_state.connect(cpu=cpu)
    if session is not None:
        versions.check("transformers", "accelerate")
        accelerate_state.refill(session, cpu=cpu)
        wait_elastically(session)
    return session


def prepare_like(given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The session for a Trainer with these arguments. Raises SessionError if its TrainingArguments were made
    without it."""
    args = named.get("args", given[1] if len(given) > 1 else None)
    session = prepare(cpu=bool(args is not None and args.use_cpu))
    if session is not None and session.runtime.state.groups.foreign:
        raise SessionError(
            f"TrainingArguments has formed a process group: give it accelerator_config={CONFIGURED}"
        )
    return session


def samples_seed(args: Any) -> int:
    """The seed that the samples' random numbers follow from."""
    return int(args.seed if args.data_seed is None else args.data_seed)


class TrainingArguments(transformers.TrainingArguments):
    """transformers' own, in a process that Holdfast looks after."""

    accelerator_config: Any
    deepspeed: Any
    fsdp: Any

    def __post_init__(self) -> None:
        if prepare(cpu=self.use_cpu) is not None:
            refusals.check_arguments(self)
            self.accelerator_config = _configured(self.accelerator_config)
        super().__post_init__()


def _configured(given: Any) -> Any:
    if isinstance(given, dict):
        return {**given, **CONFIGURED}
    if given is None:
        return dict(CONFIGURED)
    if isinstance(given, str):
        given = transformers.trainer_pt_utils.AcceleratorConfig.from_json_file(given)
    given.use_configured_state = True
    return given

"""Refuse mistakes of a script that would go wrong silently or be reported badly, and name the fix.

Each is a SessionError and ends the job: it would be raised again however often the script was started."""

from __future__ import annotations

import gc
import logging
import os
import sys
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import torch.distributed as dist
from torch.nn import Module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import optimizer as torch_optimizer

from holdfast.clean import optimizer_states
from holdfast.clean.looks.reach import is_scripts
from holdfast.errors import SessionError
from holdfast.groups import torch_texts
from holdfast.state import modes
from holdfast.state.optimizers import parameters_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from holdfast.agreement.collectives import CollectiveProof
    from holdfast.groups.groups import Groups
    from holdfast.rank_state import RankState

P = ParamSpec("P")
R = TypeVar("R")
_NO_GROUP = (
    "the script made a default process group: remove torch.distributed.init_process_group(...) from it; "
    "session.elastic makes one in each generation"
)
_DEALT = (
    "the job goes on with %d ranks, it had %d, and the script takes no samples from the session. If it deals "
    "them out by rank and number of ranks, some come again and others never: use session.sample_indices, "
    "session.loader or session.sampler"
)
_STALE = (
    "the job goes on with %d ranks, it had %d, and %s reads WORLD_SIZE. A number that was read before the "
    "elastic function is called is that of an earlier generation, in a process that stays: ask "
    "session.world_size, in the function"
)
_PLAIN = (
    "the gradients of the tracked %r are averaged by a plain DistributedDataParallel. In its first step that "
    "sums in another order than in later ones. So with three ranks or more training comes out differently "
    "when a rank dies, in the last bits: the model is wrapped again then. Wrap it with session.ddp(model), "
    "which takes the same arguments"
)
_LOOKED_FOR_PLAIN = 2
"""The step of a process after which plain wrappers are looked for: not its first, which others wait for."""
_EARLY_MAX = 2
"""How often tracked optimizers may step in a function before it uses steps or restore."""
log = logging.getLogger("holdfast.sdk")
_begun: list[bool] = []  # not empty once this process has called an elastic function
_connected: weakref.WeakSet[RankState] = weakref.WeakSet()
"""The states of the sessions that have had an agent."""


class MisuseChecks:
    """Watches the script of one session."""

    def __init__(self, state: RankState, collectives: CollectiveProof) -> None:
        self._state, self._collectives = state, collectives
        self._hook: Any = None
        # Optimizers that step no parameter of a tracked module.
        self._strangers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self.used = False  # the running function has used steps or restore
        self._steps = 0  # that this process has completed
        self._name, self._early = "", 0  # of the running function; steps of tracked optimizers before that
        if state.environment.agent_socket:
            _connected.add(state)

    def watched(self, function: Callable[[], R], name: str) -> Callable[[], R]:
        """Wrap the function of one call of an elastic function.

        Raises SessionError if the function never trains, or if the script has made a process group of its
        own."""
        state = self._state
        _begun.append(True)
        if state.agent is not None and state.groups.foreign:
            raise SessionError(_NO_GROUP)
        self._listen()

        def run() -> R:
            self.used, self._name, self._early = False, name, 0
            self._strangers.clear()
            result = function()
            if not self.used:
                raise SessionError(
                    f"{name}: it has returned without using session.steps(...): loop over "
                    "`for step in session.steps(total):`, or call session.restore() if it does not train"
                )
            return result

        return run

    def step_ended(self) -> None:
        """A step has ended: tell of a plain wrapper, once. Going through all objects takes a tenth of a
        second, and is left out where the session has wrapped the model."""
        self._steps += 1
        state = self._state
        if self._steps == _LOOKED_FOR_PLAIN and state.world_size > 2 and not state.entry.wrapped:
            for name in _plainly_wrapped(state):
                log.warning(_PLAIN, name)

    def close(self) -> None:
        """Remove the hook from all optimizers."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _check_used(self) -> None:
        """Raise SessionError if the function trains without steps: it would be told at its end, hours later.

        A step or two may only make the optimizer's state, as torch.distributed.checkpoint does."""
        self._early += not self.used
        if self._early > _EARLY_MAX:
            raise SessionError(
                f"{self._name}: it trains without session.steps(...), so nothing of that would survive: loop "
                "over `for step in session.steps(total):`, or over epochs, as in docs/porting.md"
            )

    def _listen(self) -> None:
        """Hook into the steps of all optimizers of this process. The hook holds only a weak reference."""
        if self._hook is None:
            itself = weakref.ref(self)

            def hook(optimizer: torch.optim.Optimizer, *_: Any) -> None:
                mistakes = itself()
                if mistakes is not None:
                    mistakes._before(optimizer)

            self._hook = torch_optimizer.register_optimizer_step_pre_hook(hook)

    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        """Check any optimizer of this process that is about to step.

        A tracked one may step only if the collectives so far have succeeded. One that is not tracked must not
        step parameters of tracked modules."""
        state = self._state
        if not state.entry.inside or optimizer in self._strangers:
            return
        tracked = state.tracked.optimizers
        if any(optimizer is known for known in tracked):
            self._check_used()
            self._collectives.check("the step")
            return
        name = _stepped_by(optimizer, state)
        if not name:
            self._strangers.add(optimizer)
        elif not _within(optimizer, state):
            kind = type(optimizer).__name__
            raise SessionError(
                f"step {state.completed}: {kind}, an optimizer that is not tracked, updates parameters of "
                f"the tracked {name!r}: its state would be lost when a rank dies; {_cure(optimizer, state)}"
            )


def _plainly_wrapped(state: RankState) -> Iterator[str]:
    """The names of tracked modules whose parameters a plain DistributedDataParallel has."""
    wrappers = [each for each in gc.get_objects() if issubclass(type(each), DistributedDataParallel)]
    within = {id(parameter) for wrapper in wrappers for parameter in wrapper.parameters()}
    for name, thing in state.tracked.objects.items():
        if isinstance(thing, Module) and any(id(each) in within for each in thing.parameters()):
            yield name


def _stepped_by(optimizer: torch.optim.Optimizer, state: RankState) -> str:
    """The name of the tracked module whose parameters this optimizer steps; "" for none."""
    own = set(map(id, parameters_of(optimizer)))
    for name, thing in state.tracked.objects.items():
        if thing in state.tracked.modules and any(id(each) in own for each in thing.parameters()):
            return name
    return ""


def _cure(optimizer: torch.optim.Optimizer, state: RankState) -> str:
    """How its state is kept: of one that another optimizer steps (Lookahead, SAM), both are tracked."""
    for name, thing in state.tracked.objects.items():
        for key, each in vars(thing).items() if thing in state.tracked.optimizers else ():
            if each is optimizer:
                return f"track it beside the one that holds it: session.track(..., inner={name}.{key})"
    return "add it to session.track(optimizer=...)"


def _within(optimizer: torch.optim.Optimizer, state: RankState) -> bool:
    """Whether a tracked optimizer steps now, and this one is a part of it (ZeroRedundancyOptimizer): what it
    keeps is in the state of that one."""
    own = optimizer_states.tensors([optimizer])
    if not (state.guard.stepping and own):
        return state.guard.stepping
    kept = {modes.storage(tensor) for tensor in state.tracked.flatten().tensors}
    return all(modes.storage(tensor) in kept for tensor in own)


def check_named(unnamed: Iterable[Any]) -> None:
    """Raise SessionError for objects that were given without a name."""
    kinds = [type(thing).__name__ for thing in unnamed]
    if kinds:
        name = "optimizer" if "optim" in type(next(iter(unnamed))).__module__ else "model"
        raise SessionError(f"track(<{kinds[0]}>): give it a name, as in session.track({name}=...)")


def check_inside(state: RankState, what: str) -> None:
    """Raise SessionError outside the elastic function."""
    if not state.entry.inside:
        raise SessionError(
            f"{what}: call it in the function under @session.elastic: outside of it there is no process "
            "group, and no state would be kept"
        )


def check_steps(total: object, seed: object, tail: object) -> None:
    """Raise SessionError if `session.steps` does not support these arguments."""
    if type(total) is not int or total < 0:
        raise SessionError(f"steps: total must be an integer of 0 or more, not {total!r:.80}")
    if tail not in ("required", "skippable"):
        raise SessionError(f'steps: tail must be "required" or "skippable", not {tail!r:.80}')
    if seed is not None and seed != "session" and type(seed) is not int:
        raise SessionError(f'steps: seed must be "session", an integer or None, not {seed!r:.80}')


def check_kept(state: RankState) -> None:
    """Raise SessionError if a tracked optimizer steps a parameter that no tracked object holds."""
    name, parameter = state.tracked.homeless()
    if parameter is not None:
        raise SessionError(
            f"the tracked {name!r} updates a parameter of shape {tuple(parameter.shape)} that no tracked "
            "object has: it would be lost when a rank dies. Track its module, as in session.track(model=...)"
        )


def check_wraps(state: RankState) -> None:
    """Raise SessionError if session.ddp would return a bare module to a rank that has peers."""
    under_agent = state.agent is not None
    if not state.entry.inside and (under_agent or (state.world_size > 1 and not dist.is_initialized())):
        raise SessionError(
            "ddp: call it in the function under @session.elastic, which makes a new process group in each "
            "generation: here each rank would train on its own"
        )


def check_no_group(made: Iterable[Groups]) -> None:
    """Raise SessionError if the script has made the default process group itself."""
    if dist.is_initialized() and all(groups.foreign for groups in made):
        raise SessionError(_NO_GROUP)


def check_begun() -> None:
    """At the script's end, raise SessionError if a session had an agent and no elastic function was
    called."""
    owners = [state.agent.owner for state in _connected if state.agent is not None]
    if os.getpid() in owners and not _begun:
        raise SessionError(
            "the script has ended, but no function under @session.elastic was called: call it, as in train()"
        )


def explain(error: BaseException) -> None:
    """Raise SessionError in place of torch's error if the script makes the default group in the function."""
    if torch_texts.is_second_group(error):
        raise SessionError(_NO_GROUP).with_traceback(error.__traceback__) from None


def tell_resized(state: RankState, before: int, *, dealt: bool) -> None:
    """Tell on rank 0 what the script may do by the number of ranks that was, `before` (0: not known).

    `dealt`: the session deals out its samples."""
    if state.rank or before in (0, state.world_size) or state.entry.fresh:
        return
    if not dealt:
        log.warning(_DEALT, state.world_size, before)
    files = (str(sys.modules[name].__file__) for name in list(sys.modules) if is_scripts(name))
    if reading := next(filter(_reads_world_size, files), ""):
        log.warning(_STALE, state.world_size, before, os.path.basename(reading))


def _reads_world_size(file: str) -> bool:
    """Whether the text of a module has the variable's name."""
    try:
        return b"WORLD_SIZE" in Path(file).read_bytes()
    except OSError:  # torch.classes says that it has a file
        return False

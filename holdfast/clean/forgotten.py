"""Find what the steps of a script change and nothing keeps, and name it.

A process that replaces a dead rank would begin with it anew, and a survivor that runs a step again would
change it twice: the training would go on and come out differently.

Theory of operation. After some steps a few bytes of each value that the script can reach are noted (`reach`):
numbers and strings, how long containers are, some values of tensors and arrays, the state of random
generators. What differs at the next look was changed by the steps between. Looks come after the first three
steps, and then after twice as many each time: they cost next to nothing. A function that is called again
changes things, too: the look after its next step is compared with none. What a tracked object has is kept
and not looked at. Of the variables of the functions that run, a look sees those that the loop gives no value:
lists, arrays, generators, what functions within them close over; and, given or not, modules and objects of
the script's classes that have stayed the same since the last look: an average of the weights. What a loop
gives values is found in the text, where it is carried on (`loop_locals`).
What a step fills and empties again is the same at each of these looks: where a step breaks off and will run
again, another look is compared with the newest one."""

from __future__ import annotations

import inspect
import logging
import weakref
from typing import TYPE_CHECKING, Any

import torch

from holdfast.clean import loop_locals, running
from holdfast.clean.looks import words
from holdfast.clean.looks.bits import (
    ChosenObjects,
    FirstLooks,
    bits_of,
    changed,
    clocks,
    is_time,
    root_of,
    switches,
    variable_of,
    which_items,
)
from holdfast.clean.looks.guarded import guarded_look, tell_unreadable
from holdfast.clean.looks.naming import shown
from holdfast.clean.looks.others import metric_states
from holdfast.clean.looks.reach import (
    around,
    hooks_of,
    is_chosen,
    modules_of,
    reached,
    variables_of,
    with_held,
)
from holdfast.clean.read_loaders import ReadLoaders
from holdfast.clean.samples import own_part
from holdfast.state import modes, randomness

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from holdfast.state.tracked import TrackedState

_FIRST = 3
"""A look comes after each of the first steps, and then after twice as many steps each time."""
log = logging.getLogger("holdfast.sdk")


class ForgottenState:
    """What a script changes in its steps and does not track. Only rank 0 tells of it; of what a broken step
    has left, each process that has it.

    `placed`: gives objects that are kept otherwise: what loaders read. `copied`: by name, what the workers of
    loaders have copies of, which are not kept even if it is tracked."""

    def __init__(
        self,
        tracked: TrackedState,
        placed: Callable[[], list[Any]] = list,
        copied: Callable[[], dict[str, Any]] = dict,
    ) -> None:
        self._tracked, self._placed, self._copied = tracked, placed, copied
        self.functions: list[Callable[..., Any]] = []
        """The elastic function that was called last, and what the script has called after its steps."""
        self.keep = "track that"
        """In words, how an object is kept."""
        self.things: Callable[[], list[Any]] | None = None
        """Under a framework, the script's objects that it calls in the steps: models, callbacks, data. Others
        tell what they hold themselves; here their modules and classes are looked at."""
        self._loaders = ReadLoaders()
        self._first, self._chosen = FirstLooks(), ChosenObjects()
        self._clocks = clocks()
        self._before_steps: set[str] = set()  # the function's own variables where its steps first began
        self._steps = 0
        self._newest: dict[str, Hashable] | None = None  # the newest look; None: there was none
        self._no_comparison = False  # the function was called again: the next look is compared with none
        self._told: set[str] = set()
        self._texts_read: set[tuple[Hashable, int]] = set()  # functions, and where they were
        self._tensors: dict[str, torch.Size] = {}  # what the tracked modules have: shapes by name
        self._local: dict[str, weakref.ref[Any]] = {}  # the function's own variables at the newest look
        self._own: dict[str, weakref.ref[Any] | None] = {}  # all of them that it has seen
        self._parts_of: set[str] = set()  # what names of parts of tracked modules begin with
        self.over = False
        """Whether a look has failed: there are no more."""

    def entered(self, function: Callable[..., Any], callbacks: Iterable[Callable[..., Any]]) -> None:
        """An elastic function is called."""
        self.functions, self._newest, self._no_comparison = (
            [inspect.unwrap(function), *callbacks],
            None,
            False,
        )
        self._tensors = _tensors(self._tracked)

    @property
    def entered_function(self) -> Callable[..., Any]:
        """The elastic function that was called last."""
        return self.functions[0]

    def begin(self, *, joins: bool = False) -> None:
        """Its loop over steps begins: tell of its variables. `joins`: this process takes a dead rank's place,
        and the others wait for it."""
        now = _tensors(self._tracked)
        if self._tensors:
            self._tell_grown(now)
        self._tensors = now
        if self._newest is None:
            look = self._look_guarded(beyond=not joins)
            if not joins:
                self._first.begin(look)
            self._before_steps = set(self._own)
        with self.guarded():
            for where, each in self._unkept():
                if each.name not in self._told:
                    self._told.add(each.name)
                    text, more = (words.ANEW, ()) if each.again else (words.LOCAL, (self.keep,))
                    log.warning(text, where, each.line, each.name, *more)

    def _unkept(self) -> Iterator[tuple[str, loop_locals.UnkeptLocal]]:
        """What the functions that lead to the loop keep in their variables: each with its function's name.

        A text is read once: that takes milliseconds, for which a recovery should not wait."""
        if not self.functions:
            return
        frames = running.frames_to(self.functions[0])
        if not frames and self._unread(self.functions[0], 0):
            yield from ((self.functions[0].__name__, each) for each in loop_locals.unkept(self.functions[0]))
        for frame in frames:
            code, line = frame.f_code, frame.f_lineno
            if self._unread(code, line):
                values = frame.f_globals | variables_of(frame)
                yield from ((code.co_name, each) for each in loop_locals.unkept(code, line, values))

    def _unread(self, function: Hashable, line: int) -> bool:
        """Whether the text of a function that is at this line was not read yet."""
        new = (function, line) not in self._texts_read
        self._texts_read.add((function, line))
        return new

    def step_ended(self, *, tells: bool = True) -> None:
        """A step has ended: look, if it is time."""
        self._steps += 1
        due = self._steps <= _FIRST or not self._steps & (self._steps - 1)
        if not (due or self._no_comparison) or self.over:
            return
        before, self._no_comparison = None if self._no_comparison else self._newest, False
        with self.guarded():
            self._newest = self._look()
        if self.over or self._newest is None:
            return
        new = self._own.keys() - self._before_steps  # variables that no look before the steps has seen
        known = {k: v for k, v in self._newest.items() if variable_of(k) not in new}
        early, once = self._first.after(known) if due else ([], [])
        names = changed(before or {}, self._newest)
        since, self._clocks = self._clocks, clocks()
        moved = [name for name in (*early, *names) if not is_time(self._newest.get(name), since)]
        self._tell(moved, words.CHANGED if tells else "")
        self._tell(once, words.ONCE if tells else "")
        if tells:
            self._tell_grown(_tensors(self._tracked))

    def broken_off(self) -> None:
        """A step has broken off and runs again in this process: tell what it has left."""
        if self.over or self._newest is None or self._no_comparison or self.things is not None:
            return
        own = {name: thing for name, held in self._own.items() if held and (thing := held()) is not None}
        with self.guarded():
            look = self._look(own, beyond=False)
            left = [name for name in changed(self._newest, look) if not is_time(look[name], self._clocks)]
            self._tell(
                [name for name in left if variable_of(name) not in self._own.keys() - own], words.BROKEN
            )

    def lasting(self) -> dict[str, Hashable]:
        """A look at what lasts from one call of the function to the next."""
        return self._look_guarded({}, beyond=False)

    def _look_guarded(self, own: dict[str, Any] | None = None, *, beyond: bool) -> dict[str, Hashable]:
        found: dict[str, Hashable] = {}
        if not self.over:
            with self.guarded():
                found = self._look(own, beyond=beyond)
        return found

    def called_again(self, *, first: bool) -> None:
        """The function was called again: its own variables are others. `first`: its first loop begins, and so
        is what it has changed before. The next look is compared with none, after a step: now all wait."""
        if first:
            self._no_comparison = True
        elif self._newest is not None:
            self._newest = {k: v for k, v in self._newest.items() if variable_of(k) not in self._own}

    def reachable(self) -> list[Any]:
        """Every object that lasts from one call of the function to the next, or is kept otherwise."""
        held = with_held([*self._tracked.objects.values(), *self._placed()])
        return [*held, *randomness.seeded(), *(each for _, each in reached(self.functions, set()))]

    def made(self) -> Iterator[tuple[FrameType, dict[str, Any]]]:
        """The functions that lead to the loop that begins, from the elastic one inwards, and their variables:
        but for those that this loop gives values, and wrappers of tracked modules."""
        kept = _memory(self._tracked)
        for frame in running.frames_to(self.functions[0]) if self.functions else ():
            given = loop_locals.given(frame.f_code, frame.f_lineno, asking=True)
            values = variables_of(frame) if given is not None else {}
            yield (
                frame,
                {
                    name: each
                    for name, each in values.items()
                    if name not in (given or ()) and not _is_kept(each, kept)
                },
            )

    def guarded(self) -> AbstractContextManager[None]:
        """Look at objects of the script: what they raise is told and ends all looks, but no step."""
        return guarded_look(words.UNSEEN, self._end)

    def _end(self) -> None:
        self.over = True

    def _tell_grown(self, now: dict[str, torch.Size]) -> None:
        if grown := sorted(now.keys() - self._tensors.keys()):
            log.warning(words.GROWN, *shown(grown))
        other = {name for name, shape in self._tensors.items() if now.get(name, shape) != shape}
        if new := sorted(other - self._told):
            self._told.update(new)
            log.warning(words.RESHAPED, *shown(new))
        self._tensors |= now

    def values(self) -> list[tuple[str, Any]]:
        """What the script's functions can reach before they run, with names, and nothing keeps."""
        found: list[tuple[str, Any]] = []
        if not self.over:
            with self.guarded():
                kept = _memory(self._tracked)
                every = self._reached(kept, {}, True)
                found = [(name, each) for name, each in every if not _is_within(each, kept)]
        return found

    def _look(self, own: dict[str, Any] | None = None, *, beyond: bool = True) -> dict[str, Hashable]:
        """`own`: the variables of the functions that lead to the loop; None: they run. `beyond`: enter the
        modules that functions and classes come from; in a recovery nobody waits for that."""
        kept, found = _memory(self._tracked), switches()
        for name, thing in self._tracked.objects.items():
            found |= hooks_of(name, thing) if isinstance(thing, torch.nn.Module) else {}
        if self.things is not None:
            found |= self._loaders.positions()
        self._chosen.look()
        tracked = {id(each) for each in self._tracked.modules}
        for name, value in self._reached(kept, own, beyond):
            if id(value) in tracked:
                self._parts_of.add(f"{name}.")
            try:
                bits = bits_of(value, kept)
            except Exception as error:  # it has run code of its own
                tell_unreadable(name, error, self._told)
                continue
            if bits is None and is_chosen(type(value)):
                bits = self._chosen.bits_of(value)
            if bits is not None:
                found.setdefault(name, (bits, items) if (items := which_items(value)) else bits)
        return found

    def _reached(
        self, kept: Container[int], own: dict[str, Any] | None, beyond: bool
    ) -> Iterator[tuple[str, Any]]:
        things = self.things() if self.things is not None else []
        held = [*with_held([*self._tracked.small.values(), *self._placed()]), *_options(self._tracked)]
        parts = (part for module in self._tracked.modules for part in module.modules())
        held += (value for part in parts for _, value, is_kept in metric_states(part) if is_kept)
        skipped = {id(each) for each in (*randomness.seeded(), *held, *things)}
        shared: dict[str, Any] = {}
        if self.things is not None:
            shared = around(things)
            skipped |= {id(vars(each)) for each in modules_of(things)}
        variables = shared | (self._steady_variables(kept) if own is None else own)
        copied = self._copied()
        yield from reached((), {id(each) for each in randomness.seeded()}, copied)
        skipped |= {id(each) for each in copied.values()}
        yield from reached(self.functions, skipped, variables, modules=beyond)

    def _steady_variables(self, kept: Container[int]) -> dict[str, Any]:
        """Variables of the functions that run, which are the same as at the last look. Wrappers of tracked
        modules are left out."""
        tracked = {id(each) for each in self._tracked.objects.values()}
        steady, local = running.variables_around(self.functions[0]) if self.functions else ({}, {})
        before, self._local = self._local, {name: weakref.ref(each) for name, each in local.items()}
        steady |= {name: each for name, each in local.items() if name not in before or before[name]() is each}
        self._own = {name: running.reference(each) for name, each in steady.items()}
        return {
            name: each
            for name, each in steady.items()
            if id(each) not in tracked and not _is_kept(each, kept)
        }

    def _tell(self, names: list[str], text: str) -> None:
        new = list({root_of(name): name for name in names if root_of(name) not in self._told}.values())
        self._told.update(map(root_of, new))
        copied = [name for name in new if variable_of(name) in self._copied()]
        left_out = [name for name in new if text == words.CHANGED and name.startswith((*self._parts_of,))]
        rest = [name for name in new if name not in (*copied, *left_out)]
        for which, said in ((copied, text and words.COPIED), (left_out, words.LEFT_OUT), (rest, text)):
            if which and said:
                log.warning(said, *shown(which))


def _is_within(value: Any, kept: Container[int]) -> bool:
    """Whether it is a tensor in memory that is tracked."""
    part = own_part(value) if isinstance(value, torch.Tensor) else None
    return part is not None and modes.storage(part) in kept


def _is_kept(thing: Any, kept: Container[int]) -> bool:
    """Whether it is a module with tensors, which are all tracked."""
    held = modes.storages(thing) if isinstance(thing, torch.nn.Module) else set()
    return bool(held) and all(each in kept for each in held)


def _tensors(tracked: TrackedState) -> dict[str, torch.Size]:
    """The shapes of the tensors that tracked modules keep, by name. No code of theirs is run: it may be
    collective."""
    modules = ((name, each) for name, each in tracked.objects.items() if isinstance(each, torch.nn.Module))
    parts = (part for name, module in modules for part in module.named_modules(prefix=name))
    return {f"{path}.{key}": each.shape for path, part in parts for key, each in _kept_by(part)}


def _kept_by(module: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    held = module._parameters | module._buffers
    for key in held.keys() - module._non_persistent_buffers_set:
        if (tensor := held[key]) is not None:
            yield key, tensor


def _options(tracked: TrackedState) -> Iterator[Any]:
    """Groups and states of tracked optimizers, and tensors in them (a rate): a script may have them in
    variables of its own."""
    for optimizer in tracked.optimizers:
        states = (each for each in optimizer.state.values() if isinstance(each, dict))
        for each in (*optimizer.param_groups, *states):
            yield each
            yield from (value for value in each.values() if isinstance(value, torch.Tensor))


def _memory(tracked: TrackedState) -> set[int]:
    """The addresses of the memory that tracked objects hold, with their gradients."""
    found = {storage for module in tracked.modules for storage in modes.storages(module)}
    grads = (each.grad for module in tracked.modules for each in module.parameters())
    return found | {modes.storage(each) for each in grads if each is not None}

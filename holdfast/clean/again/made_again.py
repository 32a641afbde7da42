"""Tell what a function makes before its steps that comes out differently when it is called again.

After a failure an elastic function is called again, with the state that training has come to. What it makes
before its steps from that state is then another thing: a copy of the weights that was a reference, the first
rate of an optimizer, the loss at the start. What it changes of lasting objects (`config.batch //= n`) is
changed twice in a process that lives, and once in one that replaces a dead one.

Theory of operation. Where the steps begin for the first time, a few bytes of each variable of the running
functions are noted; a process that lives compares them with those of each later time, and one that takes a
dead rank's place begins with its second time. Lasting objects are looked at where the function is called
again, and where its steps begin. Copies of tracked weights are found at the first time already, by their
values. Numbers that follow the session (`session.step`) or a clock are left out, by the text, and so is all
where this process has got another rank."""

from __future__ import annotations

import ast
import functools
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import torch

from holdfast.clean import loop_locals, restarting
from holdfast.clean.again.registered import Registered
from holdfast.clean.looks.bits import bits_of, changed, clocks, is_time, root_of, variable_of
from holdfast.clean.looks.naming import shown
from holdfast.clean.looks.reach import PLAIN, reached
from holdfast.clean.samples import VALUES, loose_part, own_part
from holdfast.state import modes
from holdfast.state.randomness import GeneratorsAtStart

if TYPE_CHECKING:
    from collections.abc import Container, Hashable, Iterator
    from types import CodeType

    from holdfast.clean.forgotten import ForgottenState
    from holdfast.state.tracked import TrackedState

_PLACES = frozenset({"step", "data_step", "generation", "rank", "world_size", "layout"})
"""Attributes of the session that differ from one call to the next."""
_FIRST, _APART, _KEPT = 2, 16, 4
"""The first loops over steps of a function are looked at; later ones, if so many steps lie between; and so
many of them are remembered."""
_OTHER = (
    "%s was called again after a failure, and what it makes before its steps is not what it was: %s%s. If "
    "the steps depend on it, the training comes out differently. Make it before the function is called, "
    "where the weights are those of the beginning; or keep it in what is tracked (a module, a buffer, an "
    "object with state_dict and load_state_dict)"
)
_TWICE = (
    "%s was called again after a failure, and has changed once more before its steps: %s%s. A process that "
    "replaces a dead rank changes it once. If the steps depend on it, the training comes out differently. "
    "Change it before the function is called, or set it to the same value each time"
)
_COPIED = (
    "%s makes copies of tracked weights before its steps: %s%s. After a failure it is called again, with the "
    "weights that training has come to, and copies those. Make such copies before the function is called; "
    "those that the steps change, track"
)
_HELD = (
    "copies of the weights with which the training begins are kept, and not tracked: %s%s. A process that "
    "takes a dead rank's place makes them of the weights that training has come to. Make them before the "
    "training (in __init__), where the weights are those of the beginning"
)
Made = Callable[[str, Iterable[tuple[str, Any]]], None]
"""Takes the name of a function, and values by their names, which it need not ask for."""
Weights = dict[Any, set[bytes]]
"""Some values of the tensors of each shape and type."""
log = logging.getLogger("holdfast.sdk")


class CalledRank(Protocol):
    """What is asked of this process's state."""

    rank: int
    world_size: int
    completed: int
    seed: int | None
    tracked: TrackedState
    agent: Any
    entry: Any
    functions: Any


class CalledAgain:
    """What the elastic function that is running does before its steps, in each of its generations."""

    def __init__(self, state: CalledRank, forgotten: ForgottenState, made: Made | None = None) -> None:
        """`made`: is told what a function has made where its steps begin first, in a process that does not
        join others."""
        self._state, self._forgotten, self._on_made = state, forgotten, made
        self._registered = Registered(state.tracked)
        self._random: GeneratorsAtStart | None = None  # with what it draws before its steps
        # With what its steps go on, if they are not seeded and not its first ones.
        self._random_after: GeneratorsAtStart | None = None
        self._times = 0  # that its steps have begun in this process
        self._loop = 0  # the number of the next loop over steps in this generation
        self._looked = 0  # the steps that were complete at the newest look
        # By rank, world size and where a loop ends (its number differs if a script leaves out epochs that
        # are over): what there was where it began first.
        self._first: dict[tuple[int, int, int], dict[str, Hashable]] = {}
        self._lasting: dict[str, Hashable] | None = None
        self._clocks: list[float] = []  # where it was called last
        self._there: list[Any] = []  # what a framework's script held before the training
        self._weights: Weights = {}  # with which it began, until its first step is over
        self._told: set[tuple[str, str]] = set()  # texts, and what they named

    def entered(self) -> None:
        """An elastic function is entered: its generations follow."""
        self._registered.forget()
        self._random, self._times, self._first = GeneratorsAtStart(), 0, {}

    def called(self) -> None:
        """A generation calls the function. What it draws before its steps are the same numbers each time."""
        if self._random is not None:
            self._random_after = GeneratorsAtStart()
            if self._begins and not self._times:  # with what it was given for that, if anything
                self._random = self._random_after
            self._random.restore()
        self._registered.called()
        self._clocks = clocks()
        self._lasting = self._forgotten.lasting() if self._times and self._looks and self._compares else None
        if not self._looks and not self._times:
            with self._forgotten.guarded():
                self._there = [each for _, each in self._held()]
        self._loop = 0

    def release(self) -> None:
        """Objects are tracked no more, and are to be freed."""
        self._registered.release()

    @property
    def _looks(self) -> bool:
        return self._forgotten.things is None and not self._forgotten.over

    def steps_begin(self, total: int | None, *, seeded: bool, tells: bool) -> None:
        """A loop over steps begins, up to this one; None: there are none left. A function that is called
        again comes through the loops that are over. `seeded`: each step is. `tells`: this rank tells of the
        script's mistakes."""
        loop, self._loop = self._loop, self._loop + 1
        if loop == 0:
            self._registered.steps_begin()
            self._times += 1
        if not self._looks and self._times == 1 and loop == 0 and not self._joins:
            with self._forgotten.guarded():
                self._weights = _weights(self._state.tracked.modules)
                self._tell_held(tells=tells)
        if total is None:
            return
        after, self._random_after = self._random_after, None
        drawn_inside = self._inside and self._state.seed is None
        if after is not None and not (seeded or drawn_inside or self._begins):
            after.restore()
        if self._looks and self._state.agent is not None and not self._joins and self._is_due(loop):
            if self._times > 1:
                self._forgotten.called_again(first=loop == 0)
            with self._forgotten.guarded():
                self._look(loop, total, tells=tells)
        elif self._on_made is not None and not (
            self._forgotten.over or self._joins or self._times > 1 or loop
        ):
            with self._forgotten.guarded():  # where a framework's loop leads through the steps
                self._on_made(self._forgotten.entered_function.__name__, self._own())

    def step_ended(self, *, tells: bool) -> None:
        """A step has ended."""
        if self._weights:
            with self._forgotten.guarded():
                self._tell_held(tells=tells)
            self._weights, self._there = {}, []

    def _held(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tensors that a script's objects hold which a framework calls, but for those of tracked objects."""
        things = self._forgotten.things() if self._forgotten.things is not None else []
        kept = self._kept()
        held = {type(each).__name__: each for each in things if not isinstance(each, torch.nn.Module)}
        for name, each in reached((), set(), held):
            if isinstance(each, torch.Tensor) and loose_part(each, kept) is not None:
                yield name, each

    def _kept(self) -> set[int]:
        """The addresses of the memory of tracked modules."""
        return {each for module in self._state.tracked.modules for each in modes.storages(module)}

    def _tell_held(self, *, tells: bool) -> None:
        """Tell of copies of the weights with which the training began that were not there before."""
        there = set(map(id, self._there))
        own = {name: each for name, each in self._held() if id(each) not in there}
        names = self._new(_HELD, _copies(own, self._weights, ()))
        if tells and names:
            log.warning(_HELD, *shown(names))

    @property
    def _begins(self) -> bool:
        """Whether no step of the function is complete: what it has drawn or seeded is what its steps begin
        with."""
        return bool(self._state.completed == self._state.functions.base)

    @property
    def _joins(self) -> bool:
        """Whether this process takes a dead rank's place just now. Then the others wait for it, and know what
        was there at the beginning; reading the function's text takes it tens of milliseconds."""
        return self._times == 1 and self._state.entry.first >= 0

    @property
    def _compares(self) -> bool:
        """Whether this rank is the first of those that have been here before: it alone compares what it finds
        with what there was, and tells. The others do not look, because everybody waits for each of them."""
        return bool(self._state.entry.first == self._state.rank)

    @property
    def _inside(self) -> bool:
        return bool(self._state.entry.tracks_inside)

    def _is_due(self, loop: int) -> bool:
        """Whether to look: not at each of many short loops."""
        before, done = self._looked, self._state.completed
        if loop >= _FIRST and 0 <= done - before < _APART:
            return False
        self._looked = done
        return True

    def _look(self, loop: int, total: int, *, tells: bool) -> None:
        at = (self._state.rank, self._state.world_size, total)
        if at in self._first and not self._compares:
            return
        own, kept = dict(self._own()), self._kept()
        if tells and self._times == 1 and loop < _FIRST and not self._inside:
            self._tell(_COPIED, list(_copies(own, _weights(self._state.tracked.modules), kept)))
        before, self._lasting = self._lasting or {}, None
        after = self._forgotten.lasting() if before else {}
        twice = [name for name in changed(before, after) if not is_time(after[name], self._clocks)]
        now = {name: bits for name, each in own.items() if (bits := _bits(each, kept)) is not None}
        if self._on_made is not None and self._times == 1 and loop == 0:
            again = self._made_by_loops()
            places = {name: f", up to step {total}" if variable_of(name) in again else "" for name in now}
            made = [(name + places[name], own[name]) for name in now]
            self._on_made(self._forgotten.entered_function.__name__, made)
        if self._compares and at in self._first:
            self._tell(_OTHER, changed(self._first[at], now))
            self._tell(_TWICE, twice)
        self._first.setdefault(at, now)
        for old in list(self._first)[:-_KEPT]:
            del self._first[old]

    def _made_by_loops(self) -> set[str]:
        """The variables that are made for each of several loops over steps (a loop over epochs does): in
        another epoch they are others."""
        inside, found = False, set[str]()
        for frame, values in self._forgotten.made():
            given = loop_locals.given(frame.f_code, frame.f_lineno) or frozenset()
            found |= values.keys() if inside else given
            inside = inside or bool(given)
        return found

    def _own(self) -> Iterator[tuple[str, Any]]:
        """What the running functions have made, and no longer what has lasted."""
        lasting = self._forgotten.reachable()  # held, so that no id is another object's meanwhile
        variables: dict[str, Any] = {}
        for at, (frame, values) in enumerate(self._forgotten.made()):
            following = _following(frame.f_code)
            own = {*frame.f_code.co_varnames, *frame.f_code.co_cellvars} - following
            if at == 0:
                count = frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount
                given = {name: values.get(name) for name in frame.f_code.co_varnames[:count]}
                lasting += [each for _, each in reached((), (), given)]
            variables |= {name: each for name, each in values.items() if name in own}
        known = {id(each) for each in lasting if type(each) not in PLAIN}
        for name, each in reached((), known, {k: v for k, v in variables.items() if id(v) not in known}):
            if id(each) not in known and type(each) not in (str, bytes):
                yield name, each

    def _tell(self, text: str, names: list[str]) -> None:
        if new := self._new(text, names):
            log.warning(text, self._forgotten.entered_function.__name__, *shown(new))

    def _new(self, text: str, names: Iterable[str]) -> list[str]:
        """Those that this text has not named yet. They count as named from now on."""
        new = [name for name in names if (text, root_of(name)) not in self._told]
        self._told.update((text, root_of(name)) for name in new)
        return new


@functools.lru_cache(maxsize=256)
def _following(code: CodeType) -> frozenset[str]:
    """Variables of a function that follow from the session or from a clock, by its text. They are kept: each
    generation asks for them."""
    tree, _ = loop_locals.text_of(code)
    found: set[str] = set()
    if tree is None:
        return frozenset()
    assigned = [each for each in ast.walk(tree) if isinstance(each, ast.Assign | ast.AnnAssign)]
    while True:
        before = len(found)
        for each in assigned:
            if each.value is not None and _follows(each.value, found):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                found |= {
                    name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)
                }
        if len(found) == before:
            return frozenset(found)


def _follows(value: ast.expr, known: Container[str]) -> bool:
    for each in ast.walk(value):
        if isinstance(each, ast.Attribute) and each.attr in _PLACES:
            return True
        if isinstance(each, ast.Name) and each.id in known:
            return True
        called = restarting.called_name(each) if isinstance(each, ast.Call) else ""
        if called.removesuffix("_ns") in loop_locals.CLOCKS:
            return True
    return False


def _bits(value: Any, kept: Container[int]) -> Hashable:
    if not isinstance(value, torch.Tensor):
        return bits_of(value, kept)
    part = loose_part(value, kept)
    return None if part is None else (tuple(part.shape), _some(part))


def _some(tensor: torch.Tensor) -> bytes:
    """Some values of a tensor, wherever it is."""
    flat = tensor.detach().reshape(-1)
    some = flat[:: max(flat.numel() // VALUES, 1)][:VALUES].cpu().contiguous()
    return bytes(some.view(torch.uint8).tolist())


def _weights(tracked: list[torch.nn.Module]) -> Weights:
    found: Weights = {}
    for module in tracked:
        for each in module.parameters():
            part = own_part(each)
            if part is not None and part.numel() > 1:
                found.setdefault((part.shape, part.dtype), set()).add(_some(part))
    return found


def _copies(own: dict[str, Any], weights: Weights, kept: Container[int]) -> Iterator[str]:
    """The names of tensors that have the values of a tracked one and are another one. Those that are the same
    everywhere say nothing."""
    for name, value in own.items():
        part = loose_part(value, kept) if isinstance(value, torch.Tensor) else None
        if part is not None and (alike := weights.get((part.shape, part.dtype))):
            some = _some(part)
            if some in alike and len({*_words(some, part.element_size())}) > 1:
                yield name


def _words(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))

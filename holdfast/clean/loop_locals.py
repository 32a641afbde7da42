"""Find local variables that a training loop adds up and nothing keeps: they begin anew in a new generation.

Theory of operation. Only the text of the function is read. A name counts as kept from step to step if it is
carried (`carried`: `total += loss`, `losses.append(loss)`, `best = loss` where a step compares with `best`
first), or follows the weights (`average.update(model)`, `average.step(model.parameters())`), in the loop over
`epochs(...)` or `steps(...)`, or one that calls `begin_step`, or in the loop over the training's loader
within an epoch; or by a function that is defined there and that such a loop uses. A clock's time does not
count, nor what comes from the session or is read ahead: `batch = next(batches)`, where `batches` is what is
judged. The number of `enumerate(loader)` counts too, if it is used, and an iterator that is made before the
steps and read with `next` in them, what reads the loader by `zip` or `islice`, and a random generator that is
made before the batches and used in their loop without being seeded there.
Where a function runs, the loop that is at its line counts as well, whatever its text: `for step in steps`,
and the loops around it. What such loops read from its beginning is found, too (`restarting`).
What a script hides from such a reading (other functions, attributes) is not found: see `forgotten`."""

from __future__ import annotations

import ast
import functools
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.clean import restarting
from holdfast.clean.carried import Carried, held, read_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

_FOLLOWING = frozenset({"update", "update_parameters", "step"})
_WEIGHTS = frozenset({"parameters", "named_parameters", "state_dict"})
_GENERATORS = frozenset({"Generator", "default_rng", "RandomState", "Random"})
_COUNTING = frozenset({"zip", "zip_longest", "islice", "chain", "cycle", "takewhile", "pairwise", "batched"})
CLOCKS = frozenset({"time", "perf_counter", "monotonic", "process_time", "thread_time", "now", "utcnow"})
"""Calls that give the time, also with `_ns` behind them."""
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SEEDING = frozenset({"manual_seed", "seed"})
_PLACED = ("loader", "sampler", "steps")
"""What the session makes, and that keeps its place when it is made again; so does what is made of it."""
_KEEPING = frozenset({"register_for_checkpointing", "track", "prepare", "setup"})


class UnkeptLocal(NamedTuple):
    """A name, and the line of the script's file where it is added up. `again`: it is what a loop reads beside
    the steps, and begins anew."""

    name: str
    line: int
    again: bool = False


def unkept(
    function: Callable[..., Any] | CodeType, at: int = 0, values: Mapping[str, Any] | None = None
) -> list[UnkeptLocal]:
    """What this function's loop over epochs or steps adds up and nothing keeps; [] if there is no text.

    `at`: the line of the file where the function is, if it runs; `values`: its variables then."""
    tree, first = text_of(function)
    if tree is None:
        return []
    found: dict[str, UnkeptLocal] = {}
    kept = _kept(tree)
    for loop in _loops(tree, lambda each: bool(_loader(each.iter))):
        added = *_carried_over(tree, loop), *_carried_within(tree, loop), *_numbers(loop)
        added += *_following(loop, kept), *_counting(loop), *_carried_by(tree, loop)
        for name, line in (*added, *_drawing_over(tree, loop)):
            if name not in kept:
                found.setdefault(name, UnkeptLocal(name, first + line - 1))
    line = at - first + 1 if at else 0
    counting = [*_loops(tree, lambda each: _calls(each.iter, "steps")), *_beginning(tree)]
    running = [each for each in restarting.around(tree, line) if each not in counting]
    for steps in (*counting, *running):
        places = *_carried_over(tree, steps), *_read_on(tree, steps), *_drawing(tree, steps)
        places += tuple(_carried_by(tree, steps))
        for name, where in places:
            if name not in kept:
                found.setdefault(name, UnkeptLocal(name, first + where - 1))
    for each in (*counting, *(each for each in running if restarting.asks(each, line))):
        for name, where in restarting.anew(each, values or {}):
            found.setdefault(name, UnkeptLocal(name, first + where - 1, again=True))
    return list(found.values())


@functools.lru_cache(maxsize=256)
def given(code: CodeType, at: int, *, asking: bool = False) -> frozenset[str] | None:
    """The names that the loops of a running function give values, those that it is in at this line of its
    file; None if there is no text. `asking`: only those that ask for their next item there.

    It is kept: each generation asks again, and everybody waits for it then."""
    tree, first = _parsed(code)
    if tree is None:
        return None
    line = at - first + 1
    around = [each for each in restarting.around(tree, line) if not asking or restarting.asks(each, line)]
    defined = (each.name for loop in around for each in ast.walk(loop) if isinstance(each, _DEFINING))
    return frozenset({*defined, *(name for loop in around for name in Carried(loop).given)})


def text_of(function: Callable[..., Any] | CodeType) -> tuple[ast.AST | None, int]:
    """What a function's text says, and the line of its file where that begins; None if there is none."""
    unwrapped = inspect.unwrap(function) if callable(function) else function
    return _parsed(getattr(unwrapped, "__code__", unwrapped))


@functools.lru_cache(maxsize=64)
def _parsed(code: Any) -> tuple[ast.AST | None, int]:
    """The same for its code; kept, because each generation asks again."""
    try:
        lines, first = inspect.getsourcelines(code)
        return ast.parse(textwrap.dedent("".join(lines))), first
    except (OSError, SyntaxError, TypeError):
        return None, 0


def _calls(tree: ast.AST, name: str) -> bool:
    """Whether this is `anything.steps(...)` for the name "steps", alone or within `zip` or another call."""
    calls = (each.func for each in ast.walk(tree) if isinstance(each, ast.Call))
    return any(isinstance(called, ast.Attribute) and called.attr == name for called in calls)


def _beginning(tree: ast.AST) -> Iterator[ast.For | ast.While]:
    """Loops that begin steps themselves, by `begin_step` or `next(steps)`: in each of them, variables of its
    function count on."""
    made = (pair for each in ast.walk(tree) if isinstance(each, ast.Assign) for pair in _pairs(each))
    steps = {name for target, value in made if _calls(value, "steps") for name in _names(target, ast.Store)}
    loops = (each for each in ast.walk(tree) if isinstance(each, ast.For | ast.While))
    return (each for each in loops if _calls(each, "begin_step") or steps & {*_nexts(each)})


def _nexts(tree: ast.AST) -> Iterator[str]:
    """The names in `next(name)`."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and restarting.called_name(each) == "next" and each.args:
            yield from _names(each.args[0], ast.Load)


def _loader(iterated: ast.expr) -> str:
    """The name of the loader in `anything.epochs(total, loader)`; "" for another expression."""
    if not (isinstance(iterated, ast.Call) and isinstance(iterated.func, ast.Attribute)):
        return ""
    given = [*iterated.args[1:], *(each.value for each in iterated.keywords if each.arg == "loader")]
    if iterated.func.attr != "epochs" or not given or not isinstance(given[0], ast.Name):
        return ""
    return given[0].id


def _loops(tree: ast.AST, wanted: Callable[[ast.For], bool]) -> Iterator[ast.For]:
    return (each for each in ast.walk(tree) if isinstance(each, ast.For) and wanted(each))


def _reads(loop: ast.For, name: str) -> bool:
    return name in _names(loop.iter, ast.Load)


def _names(tree: ast.AST, context: type[ast.expr_context]) -> set[str]:
    names = (each for each in ast.walk(tree) if isinstance(each, ast.Name))
    return {each.id for each in names if isinstance(each.ctx, context)}


def _kept(tree: ast.AST) -> set[str]:
    """Names that are given to something that keeps them."""
    found: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute) and each.func.attr in _KEEPING:
            for given in (*each.args, *(word.value for word in each.keywords)):
                found |= _names(given, ast.Load)
    return found


def _carried_over(tree: ast.AST, loop: ast.For | ast.While) -> Iterator[tuple[str, int]]:
    """What this loop carries from one iteration to the next and its function begins with anew."""
    carried, own = Carried(loop, _made_before(tree, loop)), _own(tree)
    for name, line in carried.names(read_after(tree, loop)):
        if name in own and not _comes_again(tree, carried, name):
            yield name, line


def _made_before(tree: ast.AST, loop: ast.For | ast.While) -> set[str]:
    """Names that have a value where the loop begins."""
    stored = (each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.lineno < loop.lineno)
    made = {each.id for each in stored if isinstance(each.ctx, ast.Store)}
    return made | {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}


def _own(tree: ast.AST) -> set[str]:
    """Names of the function's own variables. What is in others is looked at while it runs."""
    own = _names(tree, ast.Store) | {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    declared = (each for each in ast.walk(tree) if isinstance(each, ast.Global | ast.Nonlocal))
    return (own | {name for name, _ in held(tree)}).difference(*(each.names for each in declared))


def _comes_again(tree: ast.AST, carried: Carried, name: str) -> bool:
    """Whether the function that is called again gives this variable what it had: a clock's time, a batch that
    is read ahead in each iteration, or the session's wrapper of a model, which holds nothing of its own."""
    if name in carried.changed:
        return False
    return all(
        value is not None
        and (
            _is_time(value, carried)
            or restarting.called_name(value) == "ddp"
            or _is_read_ahead(tree, carried, name, value)
        )
        for value in carried.given[name]
    )


def _is_time(value: ast.expr, carried: Carried) -> bool:
    given = carried.given.get(value.id, [None]) if isinstance(value, ast.Name) else [value]
    return all(
        each is not None and restarting.called_name(each).removesuffix("_ns") in CLOCKS for each in given
    )


def _is_read_ahead(tree: ast.AST, carried: Carried, name: str, value: ast.expr) -> bool:
    read = _names(value, ast.Load)
    if name in read:
        return False
    calls = (each for each in ast.walk(value) if isinstance(each, ast.Call))
    if any(restarting.called_name(each) == "next" for each in calls):
        return name in carried.always
    return _calls(value, "loader") or _calls(value, "begin_step") or bool(read & _of_session(tree))


def _carried_by(tree: ast.AST, loop: ast.For | ast.While) -> Iterator[tuple[str, int]]:
    """What the loop's function makes before it, and functions carry from call to call that are defined there
    and that the loop uses, itself or by another of them."""
    within = {id(each) for each in ast.walk(loop)}
    inner = [each for each in _defined(tree) if id(each) not in within]
    nested = {id(node) for each in inner for part in each.body for node in ast.walk(part)}
    outside = [each for each in ast.walk(tree) if id(each) not in within | nested]
    made = {each.id for each in outside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
    made -= {name for part in loop.body for name in _made_anew(part)}
    used, known = {name for part in loop.body for name in _names(part, ast.Load)}, set[str]()
    while used - known:
        known |= used
        used |= {name for each in inner if each.name in known for name in _names(each, ast.Load)}
    for each in inner:
        if each.name in known:
            carried = (found for called in _called_of(each) for found in Carried(called, made).names())
            yield from ((name, line) for name, line in carried if name in made - _own_names(each))


def _called_of(inner: ast.FunctionDef | ast.ClassDef) -> Iterator[ast.While]:
    """The bodies of a function, or of the methods of a class, as loops: each call is an iteration."""
    for each in ast.walk(inner):
        if isinstance(each, ast.FunctionDef):
            yield ast.While(ast.Constant(True), each.body, [])


def _defined(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The functions and classes that a function defines itself, the outermost ones."""
    pending = [part for root in getattr(tree, "body", ()) for part in getattr(root, "body", ())]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.FunctionDef | ast.ClassDef):
            yield each
        else:
            pending += [part for part in ast.iter_child_nodes(each) if isinstance(part, ast.stmt)]


def _own_names(inner: ast.FunctionDef | ast.ClassDef) -> set[str]:
    """The variables of a function itself, or of the methods of a class."""
    every = list(ast.walk(inner))
    outer = {name for each in every if isinstance(each, ast.Nonlocal) for name in each.names}
    return (_names(inner, ast.Store) | {each.arg for each in every if isinstance(each, ast.arg)}) - outer


def _read_on(tree: ast.AST, loop: ast.For | ast.While) -> Iterator[tuple[str, int]]:
    """Iterators that are made before the loop and give it items. Those of the session keep their place, as
    does what reads by its sampler."""
    within, placed = {id(each) for each in ast.walk(loop)}, _of_session(tree)
    made: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and id(each) not in within:
            for target, value in _pairs(each):
                keeps = any(_calls(value, name) for name in _PLACED) or _names(value, ast.Load) & placed
                (placed if keeps else made).update(_names(target, ast.Store))
    for each in ast.walk(loop):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "next":
            if each.args and isinstance(each.args[0], ast.Name) and each.args[0].id in made:
                yield each.args[0].id, each.lineno


def _drawing_over(tree: ast.AST, loop: ast.For) -> Iterator[tuple[str, int]]:
    """What an epoch draws from, and was made before it; and its batches likewise."""
    loader = _loader(loop.iter)
    for each in (loop, *_loops(loop, lambda inner: _reads(inner, loader))):
        yield from _drawing(tree, each)


def _drawing(tree: ast.AST, loop: ast.For | ast.While) -> Iterator[tuple[str, int]]:
    """Random generators that are made before the loop, and that it uses without seeding them."""
    within = {id(each) for each in ast.walk(loop)}
    made: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign) and id(each) not in within:
            for target, value in _pairs(each):
                made |= _names(target, ast.Store) if _is_generator(value) else set()
    made -= {name for part in loop.body for name in _made_anew(part)}
    for each in ast.walk(loop):
        if isinstance(each, ast.Attribute) and each.attr in _SEEDING:
            made -= _names(each.value, ast.Load)
    for each in ast.walk(loop):
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id in made:
            yield each.id, each.lineno


def _is_generator(value: ast.expr) -> bool:
    """Whether this makes a random generator, as in `torch.Generator().manual_seed(0)`."""
    while isinstance(value, ast.Call):
        if restarting.called_name(value) in _GENERATORS:
            return True
        if not isinstance(value.func, ast.Attribute):
            return False
        value = value.func.value
    return False


def _of_session(tree: ast.AST) -> set[str]:
    """Names of the session's loaders."""
    assigned = (each for each in ast.walk(tree) if isinstance(each, ast.Assign))
    pairs = (pair for each in assigned for pair in _pairs(each))
    return {name for target, value in pairs if _calls(value, "loader") for name in _names(target, ast.Store)}


def _pairs(assigned: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: item by item where both sides are tuples."""
    for target in assigned.targets:
        value = assigned.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            if len(target.elts) == len(value.elts):
                yield from zip(target.elts, value.elts, strict=True)
                continue
        yield target, value


def _carried_within(tree: ast.AST, loop: ast.For) -> Iterator[tuple[str, int]]:
    """What the batches of an epoch carry: it begins anew if the epoch goes on in the middle."""
    loader = _loader(loop.iter)
    for batches in _loops(loop, lambda each: _reads(each, loader)):
        yield from _carried_over(tree, batches)


def _numbers(loop: ast.For) -> Iterator[tuple[str, int]]:
    """The numbers of `enumerate(loader)` that are used."""
    loader = _loader(loop.iter)
    for batches in _loops(
        loop, lambda each: _reads(each, loader) and "enumerate" in _names(each.iter, ast.Load)
    ):
        if isinstance(batches.target, ast.Tuple) and isinstance(batches.target.elts[0], ast.Name):
            name = batches.target.elts[0].id
            if any(name in _names(part, ast.Load) for part in batches.body):
                yield name, batches.lineno


def _counting(loop: ast.For) -> Iterator[tuple[str, int]]:
    """Calls that read the loader and count on their own, or read something else beside it."""
    loader = _loader(loop.iter)
    for each in ast.walk(loop):
        if isinstance(each, ast.Call) and any(loader in _names(given, ast.Load) for given in each.args):
            if restarting.called_name(each) in _COUNTING:
                yield ast.unparse(each), each.lineno


def _following(loop: ast.For, kept: set[str]) -> Iterator[tuple[str, int]]:
    """What is changed by something that is kept: an average of the weights."""
    for each in ast.walk(loop):
        if not (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)):
            continue
        by = each.args[0] if each.args else None
        if isinstance(by, ast.Call) and isinstance(by.func, ast.Attribute) and by.func.attr in _WEIGHTS:
            by = by.func.value
        if isinstance(by, ast.Name) and by.id in kept and each.func.attr in _FOLLOWING:
            yield from ((name, each.lineno) for name in _names(each.func.value, ast.Load))


def _made_anew(tree: ast.AST) -> Iterator[str]:
    """Names that are given a value which does not come from their own."""
    for each in ast.walk(tree):
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            stored = {name for target in targets for name in _names(target, ast.Store)}
            yield from stored - _names(each.value, ast.Load)

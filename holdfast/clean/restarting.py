"""Find what a loop over steps counts or reads from its beginning, each time its function is called again.

The numbers of steps go on where the state is. What a script puts beside them does not: the numbers of
`enumerate(session.steps(n))`; a `range`, a list, a DataLoader of torch's, a generator or an iterable object
of the script in `zip(session.steps(n), ...)`; the loops around `begin_step` and `next(steps)`. What the
session has made keeps its place, and so does a DataLoader with its sampler, what has a state of its own, and
what asks the session for samples. Of a call only the names in it are known, and the code of a function of the
script. Only what is used in the loop's body is told."""

from __future__ import annotations

import ast
from collections import ChainMap
from pathlib import Path
from types import CodeType, FunctionType, GeneratorType
from typing import TYPE_CHECKING, Any

from holdfast.clean.looks.others import is_loader, is_restarting
from holdfast.clean.looks.reach import (
    ASKING,
    asks_session,
    is_scripts,
    is_sessions,
    variables_of,
    variables_seen,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_OURS = str(Path(__file__).parents[1])
_COUNTING = frozenset({"range", "count"})
_SAME = frozenset({"repeat"})


def around(tree: ast.AST, line: int) -> Iterator[ast.For | ast.While]:
    """The loops of a function that it is in at this line of its text."""
    for each in ast.walk(tree):
        if isinstance(each, ast.For | ast.While) and each.lineno <= line <= (each.end_lineno or each.lineno):
            yield each


def asks(loop: ast.For | ast.While, line: int) -> bool:
    """Whether at this line the loop asks for its next item."""
    return isinstance(loop, ast.For) and loop.iter.lineno <= line <= (loop.iter.end_lineno or line)


def anew(loop: ast.For | ast.While, values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """What of this loop begins anew, as the script writes it, and where. `values`: the variables of its
    function."""
    if isinstance(loop, ast.For):
        used = {name for part in loop.body for name in _names(part)}
        for target, given in _beside(loop.target, loop.iter, values):
            if used & _names(target):
                yield ast.unparse(given), loop.lineno


def _beside(
    target: ast.expr, given: ast.expr, values: Mapping[str, Any]
) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each part of a loop's target that comes from something that begins anew, and what that is."""
    args = given.args if isinstance(given, ast.Call) else []
    called, parts = called_name(given), target.elts if isinstance(target, ast.Tuple) else []
    if called == "enumerate" and args and len(parts) == 2:
        yield parts[0], given
        yield from _beside(parts[1], args[0], values)
    elif called == "zip" and len(parts) == len(args):
        for part, source in zip(parts, args, strict=True):
            yield from _beside(part, source, values)
    elif called in _COUNTING or isinstance(given, ast.List | ast.Tuple) or _begins_anew(given, values):
        yield target, given


def called_name(given: ast.expr) -> str:
    """The name of what is called; "" if nothing is."""
    called = given.func if isinstance(given, ast.Call) else None
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _begins_anew(given: ast.expr, values: Mapping[str, Any]) -> bool:
    """Whether this reads from its beginning, and neither the session nor a state of its own places it."""
    read = list(_values(given, values))
    if any(map(_is_of_script, read)):  # that is asked what it does with the session
        read = [each for each in read if type(each).__name__ != "Session"]
    if any(map(is_restarting, read)):
        return True
    if called_name(given) in _SAME or any(map(_is_placed, read)) or ASKING & _attributes(given):
        return False
    if isinstance(given, ast.Name):
        return _is_iterable(values.get(given.id))
    return isinstance(given, ast.Call | ast.GeneratorExp)


def _is_placed(value: Any) -> bool:
    """Whether this knows where it is: it is the session's, has a state of its own, or asks the session."""
    if isinstance(value, FunctionType):
        return _asks(value.__code__, variables_seen(value))
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        seen: Mapping[str, Any] = ChainMap(variables_of(frame), frame.f_globals) if frame is not None else {}
        return _asks(value.gi_code, seen)
    kind = value if isinstance(value, type) else type(value)
    if kind.__module__.startswith("holdfast."):
        return True
    if not is_scripts(kind.__module__):
        return is_loader(value) and not is_restarting(value)
    own = (part for each in kind.__mro__ if is_scripts(each.__module__) for part in vars(each).values())
    held = vars(value).values() if kind is not value and hasattr(value, "__dict__") else ()
    asking = any(_is_placed(each) for each in own if isinstance(each, FunctionType))
    return asking or any(map(is_sessions, held)) or hasattr(kind, "state_dict")


def _is_of_script(value: Any) -> bool:
    """Whether this is a function or a class of the script."""
    return isinstance(value, FunctionType | type) and is_scripts(value.__module__ or "")


def _asks(code: CodeType, variables: Mapping[str, Any]) -> bool:
    return code.co_filename.startswith(_OURS) or asks_session(code, variables)


def _is_iterable(value: Any) -> bool:
    """Whether this begins anew wherever it is read from: an iterator does not."""
    return hasattr(type(value), "__iter__") and not hasattr(type(value), "__next__")


def _attributes(given: ast.expr) -> set[str]:
    return {each.attr for each in ast.walk(given) if isinstance(each, ast.Attribute)}


def _values(given: ast.expr, values: Mapping[str, Any]) -> Iterator[Any]:
    """The variables in an expression, and attributes of them: of an object of the script only those."""
    bases = set()
    for each in ast.walk(given):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            base = values.get(each.value.id)
            held = getattr(base, "__dict__", {})
            yield held.get(each.attr, vars(type(base)).get(each.attr)) if isinstance(held, dict) else None
            if is_scripts(type(base).__module__):
                bases.add(id(each.value))
        elif isinstance(each, ast.Name) and id(each) not in bases:
            yield values.get(each.id)


def _names(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}

"""Find what a loop over steps counts or reads from its beginning, each time its function is called again.

The numbers of steps go on where the state is. What a script puts beside them does not: the numbers of
`enumerate(session.steps(n))`; a `range`, a list or a DataLoader of torch's in `zip(session.steps(n), ...)`;
the loops around `begin_step`. What the session has made keeps its place, and so does a DataLoader with its
sampler. Only what is used in the loop's body is told."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_COUNTING = frozenset({"range", "count"})


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
    """Whether this is a list, or reads from a DataLoader of torch's."""
    if isinstance(given, ast.Name) and type(values.get(given.id)) in (list, tuple, range):
        return True
    return any(is_restarting(value) for value in _values(given, values))


def _values(given: ast.expr, values: Mapping[str, Any]) -> Iterator[Any]:
    """The variables in an expression, and attributes of them."""
    for each in ast.walk(given):
        if isinstance(each, ast.Name):
            yield values.get(each.id)
        elif isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name):
            held = getattr(values.get(each.value.id), "__dict__", {})
            yield held.get(each.attr) if isinstance(held, dict) else None


def is_restarting(value: Any) -> bool:
    """Whether this is a DataLoader of torch's, or an iterator of one, that the session knows nothing of."""
    kinds = [kind.__name__ for kind in type(value).__mro__ if kind.__module__.startswith("torch.utils.data")]
    if not {"DataLoader", "_BaseDataLoaderIter"} & set(kinds):
        return False
    sampler = getattr(value, "batch_sampler", None) or getattr(value, "_index_sampler", None)
    return not type(sampler).__module__.startswith("holdfast.")


def _names(tree: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}

"""Find the variables that a loop carries from one iteration to the next.

Theory of operation. Only text is read. A variable is carried if the loop's body gives it a value, or changes
it in place, and either an iteration may read it before it has given it a value of its own, or what follows
the loop reads it and not every iteration has given it one. So `total += loss` is carried, and so are both
names of `if loss < best: best, waited = loss, 0`. The body is walked in the order in which it runs, with the
names that have a value of this iteration on every way to a statement; where ways meet, those that all of them
have. A loop within the body has rounds in each iteration, or in none, if it is over a `range` or a module's
parameters that the body does not change, over an optimizer's groups, or over items that are written out. Of
another one, what each round gives a value counts as given, unless it has a value before the outer loop: a
script that gives it none there relies on a round. A call may change what it is given: only methods that are
known to do so count (`append`, `add_`)."""

from __future__ import annotations

import ast
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Loop = ast.For | ast.AsyncFor | ast.While
Written = frozenset[str]
"""Names that have a value of this iteration, at a place of the body; and those that have one if a condition
holds: "norm if model.updates"."""
_IF = " if "

CHANGING = frozenset(
    {"append", "extend", "add", "insert", "appendleft"} | {"add_", "sub_", "mul_", "div_", "lerp_", "copy_"}
)
"""Methods that change their object."""
_PASSING = frozenset({"enumerate", "zip", "reversed", "list", "tuple"})
"""Functions that give as many rounds as what they are given, or the shortest of it."""
_OF_MODULES = frozenset({"parameters", "named_parameters"})
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Carried:
    """What one loop reads, writes and changes.

    `early`: names that an iteration may read before it has given them a value. `given`: names
    that the body gives values, with these: None where there is no expression for it alone. `lines`: where a
    name is given a value or changed first. `always`: names that each iteration gives a value. `before`: names
    that have a value before the loop."""

    def __init__(self, loop: Loop, before: Iterable[str] = ()) -> None:
        self._before = frozenset(before)
        self._stored = {each.id for each in ast.walk(loop) if isinstance(each, ast.Name) and _stores(each)}
        self.early: set[str] = set()
        self.given: dict[str, list[ast.expr | None]] = {}
        self.changed: set[str] = set()
        self.lines: dict[str, int] = {}
        ends: list[Written | None] = []  # of iterations
        self._conditions: dict[str, set[str]] = {}  # what they read
        self._around = [ends]  # the same of the loops around a statement, the innermost last
        begun: Written = frozenset()
        if isinstance(loop, ast.While):
            begun = self._expressions(loop.test, begun)
        else:
            begun = self._give(loop.target, None, begun)
        ends.append(self._block(loop.body, begun))
        self.always = _met(*ends) or frozenset()

    def names(self, after: Iterable[str] = ()) -> Iterator[tuple[str, int]]:
        """What is carried, and where it is given a value or changed. `after`: names that are read after the
        loop."""
        read = {*self.early, *(set(after) - self.always)}
        return ((name, line) for name, line in self.lines.items() if name in read)

    # ------------------------------------------------------------------ statements

    def _block(self, body: list[ast.stmt], written: Written | None) -> Written | None:
        for each in body:
            if written is None:  # nothing leads here
                break
            written = self._statement(each, written)
        return written

    def _statement(self, each: ast.stmt, written: Written) -> Written | None:
        way = _WAYS.get(type(each), Carried._expressions)
        return way(self, each, written)

    def _if(self, each: ast.If, written: Written) -> Written | None:
        """What a way gives a value has one wherever the same condition holds, until a name in it changes."""
        written = self._expressions(each.test, written)
        condition = _IF + ast.unparse(each.test)
        holds = {name.removesuffix(condition) for name in written if name.endswith(condition)}
        begun = written | holds
        ways = self._block(each.body, begun), self._block(each.orelse, written)
        met = _met(*ways)
        if met is None or ways[0] is None:
            return met
        self._conditions[condition] = {name.id for name in ast.walk(each.test) if isinstance(name, ast.Name)}
        return met | {name + condition for name in ways[0] - met if _IF not in name}

    def _with(self, each: ast.With | ast.AsyncWith, written: Written) -> Written | None:
        for item in each.items:
            written = self._expressions(item.context_expr, written)
            written = self._give(item.optional_vars, None, written)
        return self._block(each.body, written)

    def _deleted(self, each: ast.Delete, written: Written) -> Written:
        gone = {name.id for name in each.targets if isinstance(name, ast.Name)}
        return frozenset(name for name in written if name.partition(_IF)[0] not in gone)

    def _defined(
        self, each: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, written: Written
    ) -> Written:
        return self._expressions(each, written) | {each.name}

    def _imported(self, each: ast.Import | ast.ImportFrom, written: Written) -> Written:
        return written | {(alias.asname or alias.name).partition(".")[0] for alias in each.names}

    def _assigned(self, each: ast.Assign | ast.AnnAssign | ast.AugAssign, written: Written) -> Written:
        if isinstance(each, ast.AugAssign):
            if isinstance(each.target, ast.Name):
                self._read(each.target, written)
            written = self._expressions(each.value, written)
            return self._give(each.target, None, written)
        value = each.value
        if value is None:  # only annotated
            return written
        written = self._expressions(value, written)
        for target in each.targets if isinstance(each, ast.Assign) else [each.target]:
            written = self._give(target, value, written)
        return written

    def _loop(self, each: Loop, written: Written) -> Written | None:
        """A loop within: behind it, what each of its rounds gives a value may have one, or has."""
        if isinstance(each, ast.While):
            written = begun = self._expressions(each.test, written)
        else:
            written = self._expressions(each.iter, written)
            begun = self._give(each.target, None, written)
        rounds: list[Written | None] = []
        self._around.append(rounds)
        rounds.append(self._block(each.body, begun))
        self._around.pop()
        self._block(each.orelse, written)
        given = (_met(*rounds) or written) - written
        return written | (given if self._has_rounds(each) else given - self._before)

    def _has_rounds(self, each: Loop) -> bool:
        """Whether it has rounds in each iteration or in none: then none gives anything a value."""
        return not isinstance(each, ast.While) and self._is_never_or_always_empty(each.iter)

    def _is_never_or_always_empty(self, tree: ast.expr) -> bool:
        if isinstance(tree, ast.Tuple | ast.List):
            return any(not isinstance(item, ast.Starred) for item in tree.elts)
        if not isinstance(tree, ast.Call):
            return isinstance(tree, ast.Attribute) and tree.attr == "param_groups"
        called = tree.func
        if isinstance(called, ast.Name) and called.id in _PASSING:
            return bool(tree.args) and all(map(self._is_never_or_always_empty, tree.args))
        if isinstance(called, ast.Name):
            fixed = called.id == "range"
        else:
            fixed = isinstance(called, ast.Attribute) and called.attr in _OF_MODULES
        return fixed and not self._stored & {name.id for name in ast.walk(tree) if isinstance(name, ast.Name)}

    def _try(self, each: ast.Try | ast.TryStar, written: Written) -> Written | None:
        after = self._block(each.orelse, self._block(each.body, written))
        for handler in each.handlers:
            caught = written | ({handler.name} if handler.name else set())
            after = _met(after, self._block(handler.body, caught))
        last = self._block(each.finalbody, written)
        return None if after is None or last is None else after | last

    def _match(self, each: ast.Match, written: Written) -> Written | None:
        written = self._expressions(each.subject, written)
        ways: list[Written | None] = []
        for case in each.cases:
            begun = self._hold(case.pattern, self._expressions(case.pattern, written))
            if case.guard is not None:
                begun = self._expressions(case.guard, begun)
            ways.append(self._block(case.body, begun))
        if not any(case.guard is None and _takes_all(case.pattern) for case in each.cases):
            ways.append(written)
        return _met(*ways)

    def _hold(self, pattern: ast.pattern, written: Written) -> Written:
        """Write to the names that a pattern gives what it has matched."""
        for name, line in held(pattern):
            written = self._give(ast.Name(name, ast.Store(), lineno=line), None, written)
        return written

    def _left(self, each: ast.stmt, written: Written) -> Written | None:
        written = self._expressions(each, written)
        if isinstance(each, ast.Break | ast.Continue):
            self._around[-1].append(written)
        return None

    # ------------------------------------------------------------------ expressions

    def _expressions(self, tree: ast.AST, written: Written) -> Written:
        """Read all that is in a statement. A function reads what it takes from around it where it is made."""
        own, given = _own_names(tree), []
        for each in ast.walk(tree):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load) and each.id not in own:
                self._read(each, written)
            elif isinstance(each, ast.NamedExpr):
                given.append(each)
            elif isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute):
                if each.func.attr in CHANGING and isinstance(each.func.value, ast.Name):
                    self._change(each.func.value)
        for each in given:
            written = self._give(each.target, each.value, written)
        return written

    def _read(self, name: ast.Name, written: Written) -> None:
        if name.id not in written:
            self.early.add(name.id)

    def _change(self, name: ast.Name) -> None:
        self.changed.add(name.id)
        self.lines.setdefault(name.id, name.lineno)

    def _give(self, target: ast.expr | None, value: ast.expr | None, written: Written) -> Written:
        """Write to a target: a name has a value now; of what is in brackets, the name before is changed."""
        if isinstance(target, ast.Name):
            self.given.setdefault(target.id, []).append(value)
            self.lines.setdefault(target.id, target.lineno)
            return self._forget(target, written) | {target.id}
        if isinstance(target, ast.Tuple | ast.List):
            values: list[ast.expr | None] = [value] * len(target.elts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(values):
                values = [*value.elts]
            for part, its in zip(target.elts, values, strict=True):
                written = self._give(part, its, written)
        elif isinstance(target, ast.Starred):
            written = self._give(target.value, None, written)
        elif target is not None:
            written = self._expressions(target, written)
            if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                self._change(target.value)
            written = self._forget(target, written)
        return written

    def _forget(self, target: ast.expr, written: Written) -> Written:
        """Without what has a value if a condition holds that reads what changes here."""
        if not self._conditions:
            return written
        names = {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
        return frozenset(
            name for name in written if not self._conditions.get(_condition(name), set()) & names
        )


_WAYS: dict[type[ast.stmt], Callable[[Carried, Any, Written], Written | None]] = {
    **dict.fromkeys((ast.Assign, ast.AnnAssign, ast.AugAssign), Carried._assigned),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), Carried._loop),
    **dict.fromkeys((ast.With, ast.AsyncWith), Carried._with),
    **dict.fromkeys((ast.Break, ast.Continue, ast.Return, ast.Raise), Carried._left),
    **dict.fromkeys(_SCOPES, Carried._defined),
    **dict.fromkeys((ast.Import, ast.ImportFrom), Carried._imported),
    ast.If: Carried._if,
    **dict.fromkeys((ast.Try, ast.TryStar), Carried._try),
    ast.Match: Carried._match,
    ast.Delete: Carried._deleted,
}
"""What a kind of statement does; of others, all that is in them is read."""


def read_after(tree: ast.AST, loop: Loop) -> set[str]:
    """Names that are read behind a loop."""
    last = loop.end_lineno or loop.lineno
    names = (each for each in ast.walk(tree) if isinstance(each, ast.Name) and each.lineno > last)
    return {each.id for each in names if isinstance(each.ctx, ast.Load)}


def held(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """The names that patterns of `match` give what they have matched, and where."""
    for each in ast.walk(tree):
        name = getattr(each, "name", None) or getattr(each, "rest", None)
        if isinstance(each, ast.pattern) and isinstance(name, str):
            yield name, each.lineno


def _condition(name: str) -> str:
    """The condition under which a name has a value; "": it has one."""
    _, found, condition = name.partition(_IF)
    return found + condition


def _met(*ways: Written | None) -> Written | None:
    """Names that have a value on all ways that lead to a place; None: none leads there."""
    open_ways = [way for way in ways if way is not None]
    return frozenset.intersection(*open_ways) if open_ways else None


def _own_names(tree: ast.AST) -> set[str]:
    """Names that belong to functions and comprehensions within this."""
    found: set[str] = set()
    for each in ast.walk(tree):
        if isinstance(each, _SCOPES):
            inner = chain.from_iterable(map(ast.walk, each.body))
            found |= {name.id for name in inner if isinstance(name, ast.Name) and _stores(name)}
        if isinstance(each, ast.arg):
            found.add(each.arg)
        elif isinstance(each, ast.comprehension):
            found |= {name.id for name in ast.walk(each.target) if isinstance(name, ast.Name)}
    return found


def _stores(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _takes_all(pattern: ast.pattern) -> bool:
    """Whether a pattern matches everything: `_`, a name, or one of these behind others."""
    if isinstance(pattern, ast.MatchOr):
        return any(map(_takes_all, pattern.patterns))
    return isinstance(pattern, ast.MatchAs) and (pattern.pattern is None or _takes_all(pattern.pattern))

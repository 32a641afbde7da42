"""What a loop carries from one iteration to the next is found, whatever way its body takes."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from holdfast.clean.carried import Carried, read_after
from holdfast.clean.loop_locals import unkept

make: Any = None
CARRIED = {
    "added": ("total += loss", "total"),
    "by its own value": ("mean = 0.9 * mean + loss", "mean"),
    "the best so far": ("if loss < best:\n    best, waited = loss, 0\nelse:\n    waited += 1", "best waited"),
    "a value of some steps": ("if step % 10 == 0:\n    k = f(step)\nuse(k)", "k"),
    "the value before": ("use(loss, before)\nbefore = loss", "before"),
    "a flag": ("if warm:\n    use(loss)\nif step == 5:\n    warm = False", "warm"),
    "made at the first": ("if state is None:\n    state = f(loss)\nuse(state)", "state"),
    "an item": ("sums['loss'] += loss", "sums"),
    "appended": ("losses.append(loss)", "losses"),
    "in place": ("mean.mul_(0.9)", "mean"),
    "read in a function": ("def closure():\n    return f(old)\nuse(closure)\nold = loss", "old"),
    "a way through try": ("try:\n    x = f(loss)\nexcept ValueError:\n    pass\nuse(x)", "x"),
    "by a walrus": ("if (top := f(top)) > 3:\n    use(top)", "top"),
    "in a loop within": ("for each in loss:\n    total += each", "total"),
    "left before it is given": ("if loss:\n    use(last)\n    continue\nlast = loss", "last"),
    "read by a guard": ("match loss:\n    case x if x < low:\n        low = x", "low"),
    "read by a pattern": ("match loss:\n    case kinds.one:\n        kinds = f(loss)", "kinds"),
    "held by a pattern": ("match loss:\n    case {'kind': kind}:\n        pass\nuse(kind)", "kind"),
    "a way through try*": ("try:\n    x = f(loss)\nexcept* ValueError:\n    pass\nuse(x)", "x"),
    "of some rounds of a loop": ("for each in loss:\n    if each:\n        x = each\nuse(x)", "x"),
    "in the round before": ("for each in loss:\n    use(x)\n    x = each", "x"),
    "under another condition": ("if loss:\n    x = 1\nif step:\n    use(x)", "x"),
    "where the condition has changed": (
        "if a(step):\n    x = 1\nstep = step + 1\nif a(step):\n    use(x)",
        "x",
    ),
    "where its object has changed": ("if m.on:\n    x = 1\nm.on = True\nif m.on:\n    use(x)", "x"),
    "not kept under its condition": ("if loss:\n    x = 1\n    del x\nif loss:\n    use(x)", "x"),
    "the other way of its condition": ("if loss:\n    x = 1\nif loss:\n    pass\nelse:\n    use(x)", "x"),
    "in a case": ("match loss:\n    case 1:\n        kind = 'one'\nuse(kind)", "kind"),
    "deleted": ("x = f(loss)\nuse(x)\ndel x\nuse(x)", "x"),
    "a target with a star": ("use(rest)\nfirst, *rest = loss", "rest"),
}
FRESH = {
    "given first": "x = f(loss)\nuse(x)",
    "given on both ways": "if loss:\n    x = 1\nelse:\n    x = 2\nuse(x)",
    "made and added up": "parts = []\nparts.append(loss)\nparts[0] = 2\nn = 0\nn += 1\nuse(parts, n)",
    "the other way leaves": "if loss:\n    x = 1\nelse:\n    continue\nuse(x)",
    "by with": "with f(loss) as x:\n    use(x)",
    "in a comprehension": "use([x for x in loss], {y: z for y, z in loss}, lambda w: w)",
    "by try and what it catches": "try:\n    x = f(loss)\nexcept ValueError as error:\n    x = error\nuse(x)",
    "at last": "try:\n    use(loss)\nfinally:\n    x = 1\nuse(x)",
    "in every case": "match loss:\n    case [x, y]:\n        use(x, y)\n    case other:\n        use(other)",
    "in every case, the last without a name": "match loss:\n    case 1:\n        x = 1\n    case 2 | _:\n"
    "        x = 2\nuse(x)",
    "by try*": "try:\n    x = f(loss)\nexcept* ValueError:\n    x = 1\nuse(x)",
    "in the rounds of a loop": "for part in loss.chunk(4):\n    x = f(part)\nuse(x)",
    "in the rounds of while": "while f(loss):\n    x = f(loss)\n    if x:\n        continue\nuse(x)",
    "in rounds within rounds": "for a in loss:\n    for b in a:\n        x = b\nuse(x)",
    "under the same condition": "if m.updates:\n    x = f(loss)\nuse(loss)\nif m.updates:\n    use(x)",
    "under the same condition twice": "if loss:\n    x = 1\nif loss:\n    y = x\nif loss:\n    use(x, y)",
    "a function's own": "def closure(x):\n    y = x\n    return y\nuse(closure(loss))",
    "another's attribute": "model.count += 1\nbar.update(1)",
    "only read": "use(loss, rate)",
    "imported": "import os.path\nuse(os)",
}


def carried(body: str, after: str = "") -> list[str]:
    text = f"for step, loss in steps:\n{textwrap.indent(body, '    ')}\n{after}"
    tree = ast.parse(text)
    loop = tree.body[0]
    assert isinstance(loop, ast.For)
    return sorted(name for name, _ in Carried(loop).names(read_after(tree, loop)))


@pytest.mark.parametrize("way", CARRIED)
def test_what_an_iteration_reads_of_the_one_before_is_carried(way: str) -> None:
    body, names = CARRIED[way]
    assert carried(body) == names.split()


@pytest.mark.parametrize("way", FRESH)
def test_what_each_iteration_gives_a_value_first_is_not(way: str) -> None:
    assert carried(FRESH[way]) == []


def test_what_is_read_behind_the_loop_is_carried_unless_each_iteration_gives_it() -> None:
    body = "last = loss\nif loss > 3:\n    kept = loss\n    break\nelse:\n    low = 1"
    assert carried(body, "use(last, kept, low)") == ["kept", "low"]
    assert carried(body) == []


@pytest.mark.parametrize(
    ("rounds", "found"),
    [
        ("for part in loss", ["x"]),
        ("while f(loss)", ["x"]),
        ("for i in range(f(step))", ["x"]),
        ("for i in range(4)", []),
        ("for i in range(args.parts, 2 * k)", []),
        ("for group in optimizer.param_groups", []),
        ("for i, group in enumerate(make(loss).param_groups)", []),
        ("for part in loss.param_groups_of(k)", ["x"]),
        ("for weight in model.parameters()", []),
        ("for name, weight in list(self.net.named_parameters(recurse=False))", []),
        ("for weight in loss.parameters()", ["x"]),
        ("for a, weight in zip(loss, model.parameters())", ["x"]),
        ("for a, b in zip(student.parameters(), teacher.parameters())", []),
        ("for name in ('one', loss)", []),
        ("for name in ()", ["x"]),
        ("for name in [*loss]", ["x"]),
        ("for i in reversed(range(4))", []),
    ],
)
def test_a_loop_may_have_no_round_if_its_variable_has_a_value_before(rounds: str, found: list[str]) -> None:
    loop = ast.parse(f"for step, loss in steps:\n    {rounds}:\n        x = 1\n    use(x)").body[0]
    assert isinstance(loop, ast.For)
    assert [name for name, _ in Carried(loop, {"x", "k"}).names()] == found
    assert not list(Carried(loop).names())


def test_the_condition_of_a_loop_comes_first() -> None:
    loop = ast.parse("while (step := begin()) is not None and going:\n    use(step)\n    going = f()").body[0]
    assert isinstance(loop, ast.While)
    assert [name for name, _ in Carried(loop).names()] == ["going"]


def test_the_line_is_that_of_the_first_change() -> None:
    loop = ast.parse("for x in xs:\n    use(best)\n    if x:\n        best = x\n    best = best or x").body[0]
    assert isinstance(loop, ast.For)
    assert list(Carried(loop).names()) == [("best", 4)]


def test_what_the_rounds_of_an_inner_loop_give_is_told_only_where_there_may_be_none() -> None:
    def main() -> None:
        session, model, parts = make(), make(), 4
        rate, found, seen, shown = 0.1, None, None, 0.0
        for _step in session.steps(10):
            for part in range(parts):
                shown = loss = model(part)
            for group in model.param_groups:
                rate = group["lr"]
            for each in model.queue():
                found = each
            match model.kind():
                case {"kind": seen}:
                    pass
            print(loss, shown, rate, found, seen)

    assert sorted(each.name for each in unkept(main)) == ["found", "seen"]


def test_a_model_that_is_wrapped_anew_in_a_step_is_not_told() -> None:
    def main(session: Any, model: Any, freeze: Any) -> None:
        ddp, other = session.ddp(model), freeze(model)
        for step in session.steps(9):
            if step == 4:
                ddp = session.ddp(model)
                other = freeze(model)
            ddp(step, other)

    assert [each.name for each in unkept(main)] == ["other"]

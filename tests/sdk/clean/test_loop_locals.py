"""Local variables of a training loop that nothing keeps are found in the function's text."""

from __future__ import annotations

import itertools
import math
import sys
import time
from random import Random
from typing import TYPE_CHECKING, Any

import numpy
import torch
from torch.utils.data import DataLoader, TensorDataset

from holdfast import Session
from holdfast.clean.loop_locals import given, unkept

if TYPE_CHECKING:
    from collections.abc import Iterator

make: Any = None


def names(function: Any) -> list[str]:
    return sorted(each.name for each in unkept(function))


def test_what_is_added_up_over_epochs_is_found() -> None:
    def main() -> None:
        fabric, loader = make(), make()
        total, losses, best, count, fine = 0.0, [], {}, 0, 0
        for epoch in fabric.epochs(3, loader):
            for batch in loader:
                total += batch
                losses.append(batch)
                count = count + 1
            best[epoch] = total
            fine = epoch
        print(losses, count, fine)

    assert names(main) == ["best", "count", "losses", "total"]


def test_items_and_tensors_that_are_changed_in_place_are_found() -> None:
    def main() -> None:
        fabric, loader, other = make(), make(), make()
        sums, kinds, mean, own = {"loss": 0.0}, [0, 0], make(), make()
        fabric.track(own=own)
        for _epoch in fabric.epochs(3, loader):
            found = {"right": 0}
            for batch in loader:
                sums["loss"] += batch
                kinds[0] += 1
                mean.mul_(0.9).add_(batch, alpha=0.1)
                own["loss"] += batch
                own.parameters[0].add_(batch)
            for batch in other:
                found["right"] += batch

    assert names(main) == ["kinds", "mean", "sums"]


def test_what_counts_beside_the_loader_is_found() -> None:
    def main() -> None:
        fabric, loader, other, bar = make(), make(), make(), make()
        for _epoch in fabric.epochs(3, loader):
            for batch, extra in zip(loader, other, strict=False):
                print(batch, extra)
            for batch in itertools.islice(bar(loader), 6):
                print(batch)
            for batch in bar(loader):
                print(batch)
            for extra in itertools.islice(other, 6):
                print(extra)

    assert names(main) == ["itertools.islice(bar(loader), 6)", "zip(loader, other, strict=False)"]


def test_what_a_function_of_the_function_adds_up_is_found() -> None:
    def main() -> None:
        fabric, loader = make(), make()
        seen, history, kept, unused, anew, shown = 0, [], make(), 0, [], []
        fabric.track(kept=kept)

        def count() -> None:
            nonlocal seen
            seen += 1
            losses: list[int] = []
            losses.append(seen)

        def weigh(loss: float) -> float:
            count()
            history.append(loss)
            kept["loss"] += loss
            anew.append(loss)
            return loss / seen

        def never() -> None:
            nonlocal unused
            unused += 1

        class Hook:
            def __call__(self) -> None:
                shown.append(1)

        for _epoch in fabric.epochs(3, loader):
            for batch in loader:
                anew = []
                weigh(batch)
                Hook()
        never()

    assert names(main) == ["history", "seen", "shown"]


def test_what_is_added_up_in_an_epoch_is_found() -> None:
    def main() -> None:
        accelerator, loader, other = make(), make(), make()
        for _epoch in accelerator.epochs(3, loader=loader):
            total, right = 0.0, 0
            for batch in loader:
                parts = 0
                parts += batch
                total += parts
            for batch in other:
                right += batch
            print(total, right)

    found = unkept(main)
    assert [each.name for each in found] == ["total"]
    assert found[0].line == main.__code__.co_firstlineno + 7


def test_a_number_of_a_batch_is_found_if_it_is_used() -> None:
    def main() -> None:
        accelerator, loader = make(), make()
        for _epoch in accelerator.epochs(3, loader):
            for number, batch in enumerate(loader):
                print(number, batch)
            for number, batch in enumerate([1]):
                print(number, batch)

    def unused() -> None:
        accelerator, loader = make(), make()
        for _epoch in accelerator.epochs(3, loader):
            for _number, batch in enumerate(loader):
                print(batch)

    assert (names(main), names(unused)) == (["number"], [])


def test_what_follows_the_weights_is_found() -> None:
    def main() -> None:
        fabric, loader, other, kept = make(), make(), make(), make()
        model, optimizer = fabric.setup(make(), make())
        fabric.track(model=model, kept=kept)
        average, metric = make(), make()
        for _epoch in fabric.epochs(3, loader):
            for batch in loader:
                optimizer.step()
                average.step(model.parameters())
                other.update(model)
                kept.update(model)
                metric.update(model(batch))

    assert names(main) == ["average", "other"]


def test_what_is_kept_or_only_shown_is_not_found() -> None:
    def main() -> None:
        accelerator, loader = make(), make()
        losses, progress, bar = make(), make(), make()
        accelerator.register_for_checkpointing(losses, progress)
        for _epoch in accelerator.epochs(3, loader):
            for batch in loader:
                progress.steps += 1
                losses.append(batch)
                bar.update(1)

    assert names(main) == []


def test_a_function_without_such_a_loop_or_without_text_has_none() -> None:
    def main() -> None:
        total = 0
        for number in range(3):
            total += number

    assert (unkept(main), unkept(print)) == ([], [])


def test_what_is_added_up_over_steps_that_a_loop_calls_for_is_found() -> None:
    def main() -> None:
        session, loader = make(), make()
        total, scale, fine = 0.0, 1.0, 0
        while (step := session.begin_step(5)) is not None:
            loss = make() * scale
            scale = 0.9 * scale + 0.1 * loss
            fine = step
            session.end_step()
        for _epoch in range(3):
            right = 0
            for batch in loader:
                session.begin_step(5)
                right += batch
                session.end_step()
            total += right
        print(fine)

    assert names(main) == ["right", "scale", "total"]


def test_the_best_so_far_and_how_long_ago_are_found() -> None:
    def main(session: Any, rate: float) -> Any:
        best, waited, kept = math.inf, 0, None
        for _step in session.steps(5):
            loss = make(rate)
            if loss < best:
                best, waited, kept = loss, 0, make(loss)
            else:
                waited += 1
            if waited == 3:
                rate = rate / 2
                waited = 0
        return kept

    assert names(main) == ["best", "kept", "rate", "waited"]


def test_times_and_what_is_read_ahead_are_not_found() -> None:
    def main(session: Any, plain: Any) -> None:
        batches, again, rows = iter(session.loader(plain, 8)), session.loader(plain, 8), iter(plain)
        batch, row, others = next(batches), next(rows), iter(again)
        begun, told = time.time(), time.monotonic()
        for step in session.steps(5):
            make(batch, row, time.time() - begun)
            if time.monotonic() - told > 10:
                told = time.monotonic()
            try:
                make(next(others))
            except StopIteration:
                others = iter(again)
            batch, row = make(next(batches)), next(rows)
            now = time.time()
            begun = now
            print(step)

    def sometimes(session: Any, plain: Any) -> None:
        batches = iter(session.loader(plain, 8))
        kept, noise = next(batches), make.randn(3)
        for step in session.steps(5):
            make(kept, noise)
            noise = make.randn(3)
            if step % 2:
                kept = next(batches)

    assert (names(main), names(sometimes)) == (["rows"], ["kept", "noise"])


def test_variables_that_are_not_the_functions_own_are_left_to_the_looks() -> None:
    outer, kept = 0, []

    def main(session: Any, given: list[int]) -> None:
        global make
        nonlocal outer
        for _step in session.steps(5):
            outer += 1
            make = outer
            kept.append(outer)
            given.append(outer)

    assert names(main) == ["given"]


def test_what_a_running_loop_gives_no_value_is_known() -> None:
    def main(session: Any) -> None:
        history, total = [], 0.0
        for step in session.steps(5):
            history.append(step)
            total += step

    first = main.__code__.co_firstlineno
    assert given(main.__code__, first + 3) == frozenset({"step", "total"})
    assert given(main.__code__, first + 1) == frozenset()
    assert given(compile("1", "nowhere", "exec"), 1) is None


def test_an_iterator_that_the_steps_read_on_is_found() -> None:
    def main() -> None:
        session, plain = make(), make()
        loader = session.loader(plain, 8)
        kept, forgotten = iter(loader), iter(plain)
        for step in session.steps(5):
            once = iter(plain)
            print(step, next(kept), next(forgotten), next(once))

    assert names(main) == ["forgotten"]


def test_an_iterator_of_a_loader_that_reads_by_the_sessions_sampler_keeps_its_place() -> None:
    """As data.md says: the iterator is made in the function, and each step takes its batch."""

    def main(session: Any, plain: Any) -> None:
        at_once = iter(make(plain, batch_sampler=session.sampler(len(plain), 8)))
        order = session.sampler(len(plain), 8, seed=1)
        loader, other = make(plain, batch_sampler=order), make(plain, batch_size=8)
        batches, forgotten = iter(loader), iter(other)
        for step in session.steps(5):
            print(step, next(at_once), next(batches), next(forgotten))

    assert names(main) == ["forgotten"]


def test_a_generator_that_the_batches_draw_from_is_found() -> None:
    def main() -> None:
        fabric, loader = make(), make(generator=torch.Generator().manual_seed(1))
        over, kept, shuffles = torch.Generator().manual_seed(2), numpy.random.default_rng(3), Random(4)
        fabric.track(kept=kept)
        make(shuffles)
        for epoch in fabric.epochs(3, loader):
            within, seeded = torch.Generator(), torch.Generator()
            over.manual_seed(epoch)
            for number, _batch in enumerate(loader):
                seeded.manual_seed(number)
                make(over, within, seeded, kept.random())
            make(torch.Generator())

    assert names(main) == ["number", "over", "within"]


def test_a_generator_that_the_steps_draw_from_is_found() -> None:
    def main() -> None:
        session = make()
        noise, seeded = numpy.random.RandomState(0), Random(0)
        for step in session.steps(5):
            seeded.seed(step)
            make(noise.normal(), seeded.random())

    assert names(main) == ["noise"]


class Running:
    """Stops where the steps begin, and says what was found in the function that asks for them."""

    def __init__(self) -> None:
        self.found: list[tuple[str, bool]] = []

    def steps(self, total: int) -> Iterator[int]:
        frame = sys._getframe().f_back
        assert frame is not None
        values = frame.f_globals | frame.f_locals
        self.found += [(each.name, each.again) for each in unkept(frame.f_code, frame.f_lineno, values)]
        yield from range(total)


def test_a_loop_is_found_where_its_function_stands() -> None:
    session, total = Running(), 0.0
    steps = session.steps(2)
    for step in steps:
        total += step
    assert session.found == [("total", False)]


def test_what_is_read_beside_the_steps_begins_anew() -> None:
    def main(session: Any, rows: Any, plain: Any, own: Any) -> None:
        every = enumerate(rows)
        for number, (_step, row, x, y, z) in enumerate(
            zip(session.steps(2), rows, plain, own, every, strict=False)
        ):
            print(number, row, x, y, z)

    values: dict[str, Any] = {"rows": [1, 2], "plain": DataLoader(TensorDataset(torch.ones(8, 1)))}
    values["own"] = DataLoader(TensorDataset(torch.ones(8, 1)), batch_sampler=Session().sampler(8, 2))
    found = unkept(main.__code__, main.__code__.co_firstlineno + 2, values)
    assert [each.name for each in found if each.again] == [
        "enumerate(zip(session.steps(2), rows, plain, own, every, strict=False))",
        "rows",
        "plain",
    ]


def test_a_number_beside_the_steps_that_is_not_used_is_not_told() -> None:
    session, rows = Running(), [1, 2]
    for _number, (_step, _row) in enumerate(zip(session.steps(2), rows, strict=True)):
        print("a step")
    assert session.found == []


def test_a_loader_around_begin_step_begins_anew() -> None:
    def main(session: Any, loader: Any) -> None:
        for epoch in range(3):
            print(epoch)
            for x in loader:
                session.begin_step(10)
                print(x)

    values = {"loader": DataLoader(TensorDataset(torch.ones(8, 1)))}
    found = unkept(main.__code__, main.__code__.co_firstlineno + 4, values)
    assert [(each.name, each.again) for each in found] == [("range(3)", True), ("loader", True)]

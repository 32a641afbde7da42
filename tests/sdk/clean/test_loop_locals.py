"""Local variables of a training loop that nothing keeps are found in the function's text."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import numpy
import torch

from holdfast.clean.loop_locals import unkept

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


def test_an_iterator_that_the_steps_read_on_is_found() -> None:
    def main() -> None:
        session, plain = make(), make()
        loader = session.loader(plain, 8)
        kept, forgotten = iter(loader), iter(plain)
        for step in session.steps(5):
            once = iter(plain)
            print(step, next(kept), next(forgotten), next(once))

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

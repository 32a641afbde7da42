"""What the state says of its data: a change is refused with both values, or gone on with, exactly."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from holdfast import Session, SessionError
from holdfast.checkpoint.format import typed
from holdfast.data import contract, sampling
from holdfast.data.contract import SampleOrder, SampleStream
from holdfast.ipc.formation import Resume
from tests.sdk.data.test_loading import SCRIPT, read, wanted
from tests.sdk.node import Node

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sdk.zygote import Zygote

ALL_DIE = [{"rank": rank, "step": 7, "phase": "part0"} for rank in (0, 1)]


def spread(order: SampleOrder, batches: range) -> list[int]:
    whole = range(order.global_batch)
    return [index for batch in batches for index in order.samples(batch, whole).tolist()]


def test_another_global_batch_repeats_nothing_and_skips_nothing() -> None:
    old = SampleOrder.new(100, 8, 5)
    new = old.changed(7, 100, 12, 5)
    taken = spread(old, range(7)) + spread(new, range(7, 30))
    assert taken == sampling.indices(100, 0, len(taken), 5).tolist()
    again = new.changed(30, 100, 8, 5)
    assert again.start(30) == len(taken)


def test_a_stream_knows_what_it_was_as_far_back_as_training_may_go() -> None:
    orders = [SampleOrder.new(100, 8, 5)]
    for batch in range(1, 9):
        orders.append(orders[-1].changed(batch, 100, 8 + batch, 5))
    stream = SampleStream([orders[0]], 0)
    for order in orders[1:]:
        stream.change(order)
    stream.trim(3, 7, 7)
    assert [stream.at(batch) for batch in (3, 5, 7)] == [orders[3], orders[5], orders[7]]
    assert stream.at(8) == orders[7], "what was to come comes again"
    with pytest.raises(SessionError, match=r"batch 2 of the data .* comes before batch 3"):
        stream.at(2)


def test_a_batch_that_grows_and_a_break_over_many_steps(zygote: Zygote) -> None:
    """Gradients of six steps count in one step of the optimizer: a break goes back behind the last one."""
    kill = json.dumps([{"rank": 1, "step": 11, "phase": "part0"}])
    env = {"KIND": "indices", "GROWS": "2", "EVERY": "6", "CHANGE": "continue", "KILL": kill}
    with Node(zygote, SCRIPT, 2, spares=1, **env) as node:
        node.run()
        told = read(node.folder)
        assert [one["resume"]["step"] for one in node.generations] == [0, 6]
    starts = [sum(range(10, 10 + 2 * step, 2)) for step in range(14)]
    assert told.samples == {
        step: sampling.indices(97, start, 10 + 2 * step, seed=3).tolist() for step, start in enumerate(starts)
    }


@pytest.mark.parametrize(("n", "seed"), [(130, 5), (100, 6), (130, 6)])
def test_more_samples_or_another_seed_come_after_the_begun_epoch(n: int, seed: int) -> None:
    old = SampleOrder.new(100, 8, 5)
    new = old.changed(7, n, 8, seed)
    taken = spread(old, range(7)) + spread(new, range(7, 60))
    assert Counter(taken[:100]) == Counter(range(100)), "the epoch that had begun"
    assert taken[:100] == sampling.indices(100, 0, 100, 5).tolist(), "in its order"
    for epoch in (0, 1):
        found = taken[100 + epoch * n :][:n]
        assert Counter(found) == Counter(range(n)), "then whole epochs of the new data"
    assert taken[100 : 100 + n] == sampling.indices(n, n, n, seed).tolist()


def test_fewer_samples_begin_a_new_epoch_at_once() -> None:
    old = SampleOrder.new(100, 8, 5)
    new = old.changed(7, 60, 8, 5)
    taken = spread(new, range(7, 7 + 15))
    assert Counter(taken) == Counter(dict.fromkeys(range(60), 2)), "two whole epochs of what is there"


def test_a_change_at_the_end_of_an_epoch() -> None:
    old = SampleOrder.new(96, 8, 5)
    new = old.changed(12, 40, 8, 5)
    assert Counter(spread(new, range(12, 17))) == Counter(range(40))
    assert len(new.stretches) == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"N": "120"}, ("n=97, global_batch=10, seed=3", "n=120, global_batch=10, seed=3")),
        ({"BATCH": "12"}, ("n=97, global_batch=10, seed=3", "n=97, global_batch=12, seed=3")),
        ({"SEED": "4"}, ("n=97, global_batch=10, seed=3", "n=97, global_batch=10, seed=4")),
    ],
    ids=["n", "global_batch", "seed"],
)
@pytest.mark.parametrize("kind", ["indices", "loader"])
def test_other_data_is_refused_with_both_values(
    zygote: Zygote, tmp_path: Path, kind: str, change: dict[str, str], told: tuple[str, str]
) -> None:
    with resumed(zygote, tmp_path, KIND=kind, **change) as node:
        node.run(lambda: any(node.zygote.poll(member.pid) == 1 for member in node.members.values()))
        logs = "".join(member.log.read_text() for member in node.members.values())
    assert f"the state of step 5 was trained with {told[0]}; this script asks for {told[1]}" in logs
    assert 'Session(data_change="continue")' in logs


@pytest.mark.parametrize("kind", ["indices", "loader"])
def test_going_on_by_samples_consumed(zygote: Zygote, tmp_path: Path, kind: str) -> None:
    """Another global batch and another seed, killed once more after that: the state says how it goes on."""
    later = [{"rank": 0, "step": 9, "phase": "part0"}, {"rank": 1, "step": 9, "phase": "part0"}]
    env = {"KIND": kind, "BATCH": "12", "SEED": "4", "CHANGE": "continue", "STEPS": "20"}
    with resumed(zygote, tmp_path, *later, **env) as node:
        node.run()
        told = read(node.folder)
        resumes = [one["resume"]["step"] for one in node.generations]
    assert resumes[:2] == [0, 5], resumes
    order = SampleOrder.new(97, 10, 3).changed(5, 97, 12, 4)
    expected = {step: order.samples(step, range(12)).tolist() for step in range(5, 20)}
    expected |= {step: samples for step, samples in wanted().items() if step < 5}
    assert told.samples == expected
    taken = [index for step in sorted(told.samples) for index in told.samples[step]]
    assert Counter(taken[:97]) == Counter(range(97)), "the begun epoch is finished in its order"


def test_a_stream_that_begins_later_is_no_change(zygote: Zygote, tmp_path: Path) -> None:
    """The same script, another seed from the very step on that is resumed: it deals from its own stream."""
    script = tmp_path / "tasks.py"
    text = SCRIPT.read_text()
    assert text.count("session.sample_indices(N, size, SEED,") == 1
    script.write_text(
        text.replace(
            "session.sample_indices(N, size, SEED,",
            "session.sample_indices(N, size, SEED + (session.step >= 5),",
        )
    )
    with Node(zygote, script, 2, KILL=json.dumps(ALL_DIE), KIND="indices", WAIT_FOR="2") as node:
        give_room(node)
        node.run()
        told = read(node.folder)
        resumes = [one["resume"]["step"] for one in node.generations]
    assert resumes == [0, 5]
    second = {step: sampling.indices(97, step * 10, 10, seed=4).tolist() for step in range(14)}
    assert told.samples == {step: (wanted() if step < 5 else second)[step] for step in range(14)}


def test_who_made_a_state_is_known_until_a_step_is_complete() -> None:
    """A survivor of a training that another script began, in which a task's seed comes where a generation
    begins: to it that is no change either, as it is none to who is given its state."""
    session = Session()
    streams, made = session.runtime.streams, list[tuple[int, str]]()
    told = {"script": "another", "streams": [], "iterables": []}
    entry = contract.stream_entry(SampleStream([SampleOrder.new(97, 10, 3)], 4), 5, 5)

    @session.elastic
    def train() -> None:
        session.restore()
        session.runtime.state.completed = 5
        session.runtime.state.tracked.data = typed.encode({**told, "streams": [entry]})
        streams.restored(Resume("memory", 5, 0))
        for step in session.steps(9):
            made.append((step, typed.decode(json.loads(streams.text()))["script"]))
            if step == 7:
                streams.restored(Resume("donor", 7, 0))
            session.sample_indices(97, 10, 3 if step < 7 else 4)

    train()
    session.close()
    assert made[0] == (5, "another") and {word for _, word in made[1:]} == {contract.script()}


def give_room(node: Node) -> None:
    """Let the ranks go on from step 2 once all have an arena: the snapshot of step 5 has room then."""
    node.run(lambda: node.generation == 1 and all(rank.arena for rank in node.members.values()))
    (node.folder / "go").touch()


def resumed(zygote: Zygote, folder: Path, *later: dict[str, object], **change: str) -> Node:
    """A job of two ranks of which both died in step 7, and go on from step 5 as another script does."""
    kind = change.pop("KIND")
    kills = json.dumps([*ALL_DIE, *later])
    node = Node(zygote, SCRIPT, 2, KIND=kind, KILL=kills, WAIT_FOR="2")
    give_room(node)
    node.hold = True
    ranks = list(node.members.values())
    node.run(lambda: any(rank.gone for rank in ranks) and all(rank.gone or rank.ready for rank in ranks))
    for number, rank in enumerate(ranks):  # one that was still in the step before is back at the barrier
        if not rank.gone:
            node.discard(rank)
        (node.folder / f"killed.{number}").touch()
    node.run(lambda: all(rank.gone for rank in ranks))
    other = folder / "other.py"
    shutil.copy(SCRIPT, other)
    other.write_text(other.read_text() + "# another script\n")
    node.script = other
    node.env.update(change)
    node.hold = False
    return node

"""Parts of the Lightning integration that need no Lightning: plain data, and batches from a position on."""

from __future__ import annotations

import math
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, RandomSampler

from holdfast.errors import SessionError
from holdfast.integrations import plain
from holdfast.integrations.lightning.batches import TrainBatches
from holdfast.integrations.lightning.exports import Exports


def _bits(tensor: torch.Tensor) -> list[int]:
    flat = tensor.contiguous().reshape(-1)
    found: list[int] = flat.view(torch.uint8).tolist() if flat.numel() else []
    return found


def _digest(tree: Any) -> Any:
    return plain.dumps(tree, "tree")


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(1.5, dtype=torch.bfloat16),
        torch.empty(0, 3),
        torch.arange(6).reshape(2, 3).t(),
        torch.tensor([math.nan, -0.0, math.inf], dtype=torch.float64),
        torch.tensor([True, False]),
    ],
    ids=lambda tensor: f"{tensor.dtype}{tuple(tensor.shape)}",
)
def test_a_tensor_comes_back_with_every_bit(tensor: torch.Tensor) -> None:
    (back,) = plain.loads(plain.dumps([tensor], "tree"))
    assert (back.dtype, back.shape) == (tensor.dtype, tensor.shape)
    assert _bits(back) == _bits(tensor)


def test_a_tree_comes_back_and_shares_nothing() -> None:
    tree: dict[Any, Any] = {"a": [1, (2.5, None)], 3: {"t": torch.ones(2)}, "nan": math.nan}
    back = plain.loads(plain.dumps(tree, "tree"))
    assert _digest(back) == _digest(tree) == _digest(plain.copied(tree))
    back[3]["t"] += 1
    assert tree[3]["t"].tolist() == [1.0, 1.0]


def test_a_counter_keeps_its_counts() -> None:
    """MultiStepLR holds its milestones in one."""
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 4], gamma=0.5)
    state = schedule.state_dict()
    assert plain.copied(state)["milestones"] == Counter({2: 2, 4: 1})
    assert plain.loads(plain.dumps(plain.copied(state), "schedule")) == state


def test_a_copy_is_of_the_same_kind() -> None:
    Point = namedtuple("Point", "x y")
    kept = [Point(1, [2]), defaultdict(list, a=[1]), OrderedDict(b=torch.ones(1))]
    copies = plain.copied(kept)
    assert copies == kept and list(map(type, copies)) == list(map(type, kept))
    assert copies[1]["other"] == [] and "other" not in kept[1]


def test_recent_values_and_sums_by_name_are_kept() -> None:
    """What callbacks add up: the newest losses, and lists by name that begin empty."""
    kept: list[Any] = [
        deque([1.0, torch.ones(2)], maxlen=2),
        defaultdict(list, a=[0.5]),
        {"seen": {1, 2}},
        deque(),
    ]
    back = plain.loads(plain.dumps(kept, "attributes"))
    assert list(map(type, back)) == list(map(type, kept))
    back[0].append(2.0)
    assert [len(back[0]), back[0][0].tolist(), kept[0][0]] == [2, [1.0, 1.0], 1.0]
    assert (back[1]["a"], back[1]["b"], back[2], back[3].maxlen) == ([0.5], [], {"seen": {1, 2}}, None)
    assert not plain.is_plain(defaultdict(lambda: 3))
    copies = plain.copied(kept)
    copies[0].append(3.0)
    assert (len(copies[0]), kept[0][0]) == (2, 1.0)


def test_a_collection_that_the_script_holds_as_well_is_put_back_in_place() -> None:
    owner = SimpleNamespace(rows=[1, 2, 3], seen={1, 2}, by={"a": 1}, last=deque([1], maxlen=2), count=3)
    held = [owner.rows, owner.seen, owner.by, owner.last]
    kept = {"rows": [1], "seen": {1}, "by": {}, "last": deque([0], maxlen=2), "count": 1, "new": [4]}
    for name, value in kept.items():
        plain.put(owner, name, value)
    assert vars(owner) == kept
    assert held == [[1], {1}, {}, deque([0], maxlen=2)]


def test_what_cannot_be_kept_is_refused_by_its_path() -> None:
    assert not plain.is_plain([object()])
    with pytest.raises(SessionError, match=r"state\['callbacks'\]\[0\]: a builtins.object cannot be kept"):
        plain.dumps({"callbacks": [object()]}, "state")


class Noisy(Dataset[Any]):
    """Samples with an augmentation: random numbers of the process that fetches them."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor([float(index), torch.rand(()).item()])


class Fetcher:
    """What TrainBatches asks of Lightning's fetcher: the loaders, and an iterator over them."""

    def __init__(self, loader: Any) -> None:
        self.combined_loader, self.flattened = self, [loader]
        self.length, self.fetched, self.done = len(loader), 0, False

    def __iter__(self) -> Fetcher:
        self._found = iter(self.flattened[0])
        return self

    def __next__(self) -> Any:
        return next(self._found)


def _batches(start: TrainBatches, loader: Any, epoch: int, position: int) -> list[Any]:
    fetcher = Fetcher(loader)
    start.start(fetcher, epoch, position)
    assert fetcher.fetched == position
    found = []
    for number in range(position, len(loader)):
        torch.manual_seed(number)  # each step is seeded
        found.append(next(fetcher).tolist())
    with pytest.raises(StopIteration):
        next(fetcher)
    return found


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"num_workers": 1, "persistent_workers": True}])
def test_batches_from_a_position_are_those_of_the_whole_epoch(options: dict[str, Any]) -> None:
    def loader() -> Any:
        torch.manual_seed(len(options))  # unlike that of any other loader's process
        return DataLoader(Noisy(), 4, sampler=RandomSampler(range(20)), **options)

    whole, epochs = loader(), TrainBatches()
    first, second = _batches(epochs, whole, 0, 0), _batches(epochs, whole, 1, 0)
    assert first != second
    torch.manual_seed(99)
    again, fresh = TrainBatches(), loader()
    assert _batches(again, fresh, 1, 3) == second[3:]
    assert _batches(again, fresh, 0, 1) == first[1:]


def test_persistent_workers_that_were_started_before_do_not_begin_the_epoch_anew() -> None:
    """Lightning opens a loader where it sets it up, with its own sampler."""

    def loader() -> Any:
        return DataLoader(
            Noisy(), 4, sampler=RandomSampler(range(20)), num_workers=1, persistent_workers=True
        )

    whole, epochs = _batches(TrainBatches(), loader(), 1, 0), TrainBatches()
    opened = loader()
    iter(opened)
    assert _batches(epochs, opened, 1, 3) == whole[3:]
    kept = opened._iterator
    assert _batches(epochs, opened, 1, 0) == whole
    assert opened._iterator is kept


def test_persistent_workers_read_a_stream_with_the_numbers_of_its_epoch() -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Any:
            return iter(torch.rand(3))

    loader: Any = DataLoader(Stream(), None, num_workers=1, persistent_workers=True)
    epochs = TrainBatches()
    first, second = (_batches(epochs, loader, epoch, 0) for epoch in (0, 1))
    assert first != second
    fresh: Any = DataLoader(Stream(), None, num_workers=1, persistent_workers=True)
    assert _batches(TrainBatches(), fresh, 1, 0) == second


def test_the_loader_is_left_as_it_was() -> None:
    loader: Any = DataLoader(Noisy(), 4, num_workers=1)
    sampler, dataset = loader.batch_sampler, loader.dataset
    _batches(TrainBatches(), loader, 0, 4)
    assert loader.batch_sampler is sampler
    assert loader.dataset is dataset


def test_only_files_that_no_earlier_step_has_written_are_removed() -> None:
    dead, survivor = Exports(), Exports()
    for exports in (dead, survivor):
        exports.note(3, "last.ckpt")
        exports.note(7, "last.ckpt")
    survivor.note(7, "best.ckpt")  # noted by every rank before the dead one could write it
    assert survivor.go_back(7, [*survivor.written, (3, "early.ckpt")]) == ["best.ckpt"]
    assert survivor.written == [(3, "early.ckpt"), (3, "last.ckpt")]
    assert survivor.go_back(0, []) == ["early.ckpt", "last.ckpt"]


def test_an_attribute_that_could_not_be_kept_stays_and_one_that_was_not_there_goes() -> None:
    dead = plain.captured({"calls": 3}, ["calls", "norms"])
    late = SimpleNamespace(calls=0, norms=[], extra=1)
    plain.put_back(late, plain.loads(plain.dumps(dead, "attributes")), ["calls", "norms", "extra"])
    assert vars(late) == {"calls": 3, "norms": []}
    assert plain.captured({"calls": 3}, ["calls"]) == {"calls": 3}

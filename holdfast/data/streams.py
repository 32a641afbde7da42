"""Keep a session's streams of samples: which are in use, what the step has consumed, what the header says.

What is fetched ahead does not count as consumed."""

from __future__ import annotations

import functools
import json
import logging
import weakref
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.checkpoint.format import typed
from holdfast.data import contract, sampling
from holdfast.data.claims import SeedClaims
from holdfast.data.contract import SampleOrder, SampleStream, StreamPosition
from holdfast.data.ledger import Ledger
from holdfast.data.places import StreamPositions
from holdfast.data.weighting import UNWEIGHTED, Weighting
from holdfast.errors import RestoreError, SessionError

if TYPE_CHECKING:
    import torch

    from holdfast.ipc.formation import Resume
    from holdfast.rank_state import RankState

CHANGES = ("refuse", "continue")
"""What Session's `data_change` may be."""
log = logging.getLogger("holdfast.sdk")


class Consumer(Protocol):
    """Takes samples ahead of the steps that consume them."""

    def begin(self) -> None:
        """Begin a step."""

    def end(self) -> None:
        """End a step. Raises SessionError if its share is not consumed."""

    def leave(self) -> None:
        """Leave the elastic function: drop what was taken ahead."""


class SampleStreams:
    """The streams of one rank, with the weighting of uneven shares and the sample ledger."""

    def __init__(self, state: RankState, change: str) -> None:
        if change not in CHANGES:
            raise SessionError(f"Session: data_change must be 'refuse' or 'continue', not {change!r:.80}")
        self.state, self.goes_on = state, change == "continue"
        self.ledger = Ledger.of(state.environment)
        self.weighting = Weighting(lambda: state.tracked.modules)
        self._known: dict[int, SampleStream] = {}  # map data sets, by seed
        self._places = StreamPositions()  # positions of iterable streams
        self._made = (contract.script(), 0)  # hash of the script that made the state, and the state's step
        self._ahead: dict[int, sampling.Ahead] = {}
        self._claimed = SeedClaims(0)
        # In this step, by sizes: the number of parts, and the parts given.
        self._given: dict[tuple[int, int, int], tuple[int, set[int]]] = {}
        self.running = False  # a step is running
        self.taken = 0  # samples of this rank's share in this step, as far as it has taken them
        self._consumers: weakref.WeakSet[Any] = weakref.WeakSet()

    # ------------------------------------------------------------------ what scripts ask for

    def give(self, n: int, global_batch: int, seed: int, micro: tuple[int, int] | None) -> torch.Tensor:
        """This rank's samples of the current step, or one part of them (int64). Raises SessionError."""
        sampling.check(n, global_batch)
        part, parts = _part(micro)
        share = self.share(global_batch)
        first = self._give_once((n, global_batch, seed), part, parts)
        order = self.use(n, global_batch, seed, caller="sample_indices")
        ahead = self._ahead.get(seed) or self._ahead.setdefault(seed, sampling.Ahead())
        chosen = samples(order, self.state.data_step, share, ahead)
        if first and self.records:
            self.attempt(global_batch, chosen.tolist())
        mine = sampling.share(len(share), part, parts)
        self.weigh(len(mine), parts, global_batch)
        return chosen if parts == 1 else chosen[mine.start : mine.stop]

    def ahead(
        self, step: int, n: int, global_batch: int, seed: int, micro: tuple[int, int] | None
    ) -> torch.Tensor:
        """This rank's samples of a step of this function, as things stand (int64). Raises SessionError."""
        sampling.check(n, global_batch, "indices_at")
        part, parts = _part(micro)
        state = self.state
        if type(step) is not int or step < state.step:
            raise SessionError(f"indices_at: step must be {state.step} or later, not {step!r:.80}")
        sizes, known = (n, global_batch, seed), self._known.get(seed) or self._replaced()
        order = known.at(state.data_step) if known is not None else SampleOrder.new(*sizes)
        if order.sizes != sizes:
            self._check_change(order.sizes, sizes, self._claims().maps.get(seed), "indices_at")
            order = order.changed(state.data_step, *sizes)
        batch = state.functions.batch(state.functions.base + step, state.skipped)
        chosen = order.samples(batch, self.share(global_batch))
        mine = sampling.share(len(chosen), part, parts)
        return chosen[mine.start : mine.stop]

    def _give_once(self, sizes: tuple[int, int, int], part: int, parts: int) -> bool:
        if not self.running:
            return True
        count, given = self._given.setdefault(sizes, (parts, set()))
        if part in given or count != parts:
            raise SessionError(
                f"sample_indices({contract.shown(sizes)}) was called twice in step {self.state.step}, and "
                "would return the same samples again: reuse the first result, give micro=(i, count) for "
                "the i-th of count micro-batches, or another seed for other samples"
            )
        given.add(part)
        return len(given) == 1

    def use(self, n: int, global_batch: int, seed: int, *, caller: str) -> SampleOrder:
        """The order of a stream at the current step.

        Raises SessionError if it is not the order that the state was trained with, unless the session goes on
        with other data (`data_change="continue"`)."""
        state, batch, sizes = self.state, self.state.data_step, (n, global_batch, seed)
        self._claims().map(seed)
        claimed = self._claims().maps
        known = self._known.get(seed) or self._replaced()
        if self.running:
            self._claims().once(sizes, caller)
        order = known.at(batch) if known is not None else SampleOrder.new(*sizes)
        if order.sizes != sizes:
            self._check_change(order.sizes, sizes, claimed.get(seed), caller)
            line = "step %d: the data continues with %s instead of %s, after %d samples"
            log.warning(
                line, state.step, contract.shown(sizes), contract.shown(order.sizes), order.start(batch)
            )
            changed = order.changed(batch, *sizes)
            if known is not None:
                self._known = {key: each for key, each in self._known.items() if each is not known}
                self._known[seed] = known
                known.change(changed)
            order = changed
        claimed[seed] = n
        if known is None:
            known = self._known[seed] = SampleStream([order], state.step)
        known.last = state.step
        return order

    def _claims(self) -> SeedClaims:
        """The data sets asked for in this generation."""
        if self._claimed.generation != self.state.generation:
            self._claimed = SeedClaims(self.state.generation)
        return self._claimed

    def _replaced(self) -> SampleStream | None:
        """The stream that an unknown seed replaces, if it does.

        That is a stream that the state's newest step consumed and that nobody has asked for since, in a state
        that another script or other arguments made."""
        claimed, newest = self._claims().maps, self.state.step - 1
        due = [s for seed, s in self._known.items() if seed not in claimed and s.last == newest >= 0]
        if due and self._maker() == contract.script():
            old = contract.shown(due[0].order.sizes)
            log.warning("step %d: a stream of samples begins in place of %s", newest + 1, old)
            return None
        return due[0] if due else None

    def _maker(self) -> str:
        """The script that made the present state: this one, once it has completed a step."""
        script, step = self._made
        return script if self.state.completed <= step else contract.script()

    def _check_change(
        self, old: tuple[int, ...], new: tuple[int, ...], claimed: int | None, caller: str
    ) -> None:
        if self.goes_on and claimed in (None, new[0]):
            return
        was, now = contract.shown((old[0], old[1], old[2])), contract.shown((new[0], new[1], new[2]))
        if claimed is not None and claimed != new[0]:
            raise SessionError(
                f"{caller}({now}): seed {new[2]} is used for {was} already: "
                "give each data set a seed of its own"
            )
        raise SessionError(
            f"the state of step {self.state.step} was trained with {was}; this script asks for {now}, "
            "which would repeat and skip samples: resume with the old values, give another data set a seed "
            'of its own, or continue after the samples consumed so far with Session(data_change="continue")'
        )

    # ------------------------------------------------------------------ what a step consumes

    def share(self, global_batch: int) -> range:
        """This rank's places in a global batch. Raises SessionError before it has a place."""
        return sampling.share(global_batch, *self.place())

    def place(self) -> tuple[int, int]:
        """This rank's replica, and the number of replicas. Raises SessionError."""
        layout = self.state.layout
        return layout.dp_rank, layout.dp

    def weigh(self, samples: int, parts: int, global_batch: int) -> None:
        """Note that the next micro-batch, one of `parts`, has so many samples."""
        self.taken += samples
        self.weighting.share(samples * parts, global_batch, self.place()[1])

    @property
    def used(self) -> bool:
        """Whether the script takes samples from the session."""
        return bool(self._known or self._places)

    @property
    def records(self) -> bool:
        """Whether there is a ledger, and the present step counts: else `attempt` does nothing."""
        return self.ledger is not None and not self.state.replaying

    def attempt(self, global_batch: int, indices: list[int]) -> None:
        """Record in the ledger that this rank's share of the step is being consumed."""
        state = self.state
        if self.ledger is not None and not state.replaying:
            record = {"world_size": state.world_size, "total": global_batch, "indices": indices}
            self.ledger.attempt(state.completed, state.generation, state.rank, **record)

    def drawn(self) -> list[tuple[SampleOrder, torch.Tensor]]:
        """This rank's samples (int64) of the running step, for each map data set that it has asked for."""
        batch, asked = self.state.data_step, self._claims().asked
        orders = [stream.at(batch) for seed, stream in self._known.items() if seed in asked]
        return [(order, order.samples(batch, self.share(order.global_batch))) for order in orders]

    @property
    def iterates(self) -> bool:
        """Whether the running step has taken samples of an iterable data set."""
        return self._claims().iterates

    def watch(self, consumer: Consumer) -> None:
        """Notify this consumer of steps from now on."""
        self._consumers.add(consumer)

    def from_script(self, having: str = "from_script") -> dict[str, Any]:
        """What the script has given to loaders, by name: to those that have this."""
        loaders = (each for each in list(self._consumers) if getattr(each, having, None))
        return {name: given for each in loaders for name, given in each.from_script().items()}

    def placed(self) -> list[Any]:
        """What the script has given to loaders that keep its position."""
        return [each.source for each in list(self._consumers) if hasattr(each, "source")]

    @property
    def consumed(self) -> bool:
        """Whether loaders or samplers take samples ahead of the steps: they cannot be set back."""
        return bool(self._consumers)

    def unwatch(self, consumer: Consumer) -> None:
        """Stop notifying it."""
        self._consumers.discard(consumer)

    def begin(self, anchor: int) -> None:
        """Begin a step; a break in it may go back to step `anchor`."""
        self._trim(anchor, self.state.completed)
        self.running, self.taken = True, 0
        self._given.clear()
        self._claims().begin()
        self.weighting.begin()
        if self._consumers:  # to go through a weak set costs as much as all else here
            for consumer in list(self._consumers):
                consumer.begin()

    def end(self) -> None:
        """End the step. Raises SessionError if some of its samples were not consumed."""
        for sizes, (parts, given) in self._given.items():
            if len(given) != parts:
                raise SessionError(
                    f"step {self.state.step} took {len(given)} of {parts} micro-batches of "
                    f"{contract.shown(sizes)}: the others would be skipped"
                )
        for consumer in list(self._consumers) if self._consumers else ():
            consumer.end()
        if self.weighting.left_out and self.state.rank == 0:
            self.weighting.by_script = True  # it is told once
            log.warning(UNWEIGHTED, self.state.step)
        self.running = False

    def _trim(self, anchor: int, completed: int) -> None:
        """Forget what is not needed with so many completed steps and a possible return to step `anchor`."""
        functions, windows, local = self.state.functions, self.state.skipped, self.state.step
        if self._places:
            self._places.trim(functions.local(anchor), local)
        if self._known:
            batch = functions.batch(completed, windows)
            before = batch if anchor == completed else functions.batch(anchor, windows)
            for stream in self._known.values():
                stream.trim(before, batch, local)

    def leave(self) -> None:
        """Leave the elastic function."""
        self.running = False
        self._given.clear()
        for consumer in list(self._consumers):
            consumer.leave()

    # ------------------------------------------------------------------ iterable streams

    def hold(self, seed: int, held: StreamPosition) -> None:
        """Keep the position of an iterable stream after the current step's batch."""
        self._places.hold(seed, self.state.step + 1, held)

    def own(self, seed: int, loader: Any) -> None:
        """Note that this loader gives the step its batch. Raises SessionError if its seed is another's."""
        self._claims().iterable(seed, loader)

    def held(self, seed: int) -> StreamPosition | None:
        """The position of an iterable stream at this step; None: it has not begun.

        Raises SessionError if it is no longer known."""
        found = self._places.at(seed, self.state.step)
        return found[1] if found is not None else None

    def in_use(self) -> dict[int, tuple[SampleOrder, sampling.Ahead | None]]:
        """By seed, the order of each stream of the newest step, and what was drawn ahead of it."""
        known, newest = self._known.items(), self.state.step - 1
        return {seed: (each.order, self._ahead.get(seed)) for seed, each in known if each.last >= newest}

    # ------------------------------------------------------------------ the state's header

    def text(self) -> str:
        """The data contract for the header of the present state, as JSON; "" if there is none."""
        came = self.state.tracked.data
        # While a state is being restored, others receive the contract that came with it.
        if came is not False:
            return json.dumps(came, separators=(",", ":")) if came is not None else ""
        step, batch = self.state.step, self.state.data_step
        streams = [contract.stream_entry(stream, batch, step) for stream in self._known.values() if step]
        iterables = [
            {"seed": seed, "step": known, "global_batch": held.global_batch, "states": held.states}
            for seed, known, held in self._places.positions(step)
        ]
        if not streams and not iterables:
            return ""
        record: dict[str, Any] = {"script": self._maker(), "windows": self.state.skipped}
        record |= {"streams": streams, "iterables": iterables}
        return json.dumps(typed.encode(record), separators=(",", ":"))

    def restored(self, resume: Resume) -> None:
        """Take over the data contract of the state that was just restored.

        `tracked.data` is False if this rank held that state itself, and None if the state has no contract.
        Raises RestoreError, and SessionError if batches that were left out are no longer known as such."""
        data, self.state.tracked.data = self.state.tracked.data, False
        self._claimed = SeedClaims(self.state.generation)
        if resume.tier == "fresh":
            data = None
        windows: contract.Windows | None = self.state.skipped
        if data is False:
            self._trim(resume.step, resume.step)
        else:
            windows = self._read_record(data, resume.step)
        self._check_windows(windows, resume)

    def _read_record(self, data: Any, step: int) -> contract.Windows | None:
        """Take over the contract in a header. Returns the batches left out; None if it does not say which."""
        self._known, self._places, self._made = {}, StreamPositions(), (contract.script(), step)
        if data is None:
            return None
        try:
            record = typed.decode(data)
            self._made = (str(record["script"]), step)
            self._known = {entry["seed"]: contract.stream_from(entry) for entry in record["streams"]}
            for entry in record["iterables"]:
                held = StreamPosition(int(entry["global_batch"]), tuple(entry["states"]))
                self._places.adopt(entry["seed"], int(entry["step"]), held)
            windows = record.get("windows")
            return None if windows is None else tuple((int(first), int(end)) for first, end in windows)
        except (typed.TypedDataError, LookupError, TypeError, ValueError) as error:
            raise RestoreError(f"the state's data contract cannot be read: {error!r}") from error

    def _check_windows(self, record: contract.Windows | None, resume: Resume) -> None:
        """Continue the streams where they were, although batches left out before may not be known any more.

        Raises SessionError unless the session goes on with other data."""
        count = functools.partial(self.state.functions.batch, resume.step)
        batch = count(resume.skip if record is None else contract.common(record, resume.skip))
        for stream in self._known.values():
            counted = stream.order.batch if record is None else count(record)
            if counted <= batch:
                continue
            if not self.goes_on:
                raise SessionError(contract.lost(counted, batch, resume.step))
            log.warning("step %d: batch %d of the data is used as batch %d", resume.step, counted, batch)
            stream.renumber(counted, batch)


def samples(order: SampleOrder, batch: int, places: range, ahead: sampling.Ahead) -> torch.Tensor:
    """The samples at these places of a batch; if the order is plain, computed for several batches at once."""
    if order.plain:
        return ahead.take(order.n, batch, order.global_batch, places, order.seed)
    return order.samples(batch, places)


def _part(micro: tuple[int, int] | None) -> tuple[int, int]:
    if micro is None:
        return 0, 1
    part, parts = micro
    if type(part) is not int or type(parts) is not int or not 0 <= part < parts:
        raise SessionError(f"sample_indices: micro=(i, count) with 0 <= i < count, not {micro!r:.80}")
    return part, parts

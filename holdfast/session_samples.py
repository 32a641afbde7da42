"""Define the methods of Session that choose the samples of a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.data import loader
from holdfast.data.sampler import Sampler
from holdfast.data.taking import Batch
from holdfast.errors import SessionError
from holdfast.reentry import misuse

if TYPE_CHECKING:
    import torch

    from holdfast.data import stateful
    from holdfast.reentry.runtime import Runtime


class SampleMethods:
    """The part of a Session that scripts get their samples from."""

    _runtime: Runtime

    def sample_indices(
        self, n: int, global_batch: int, seed: int = 0, *, micro: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """Return this rank's samples of the current step: a 1-D int64 tensor of indices in range(n), shuffled
        anew in every epoch.

            batch = data[session.sample_indices(len(data), global_batch=64)]

        The samples of a step depend only on its number, never on the world size. The ranks of one replica of
        the model get the same samples (see `layout`).

        - `n`: samples in the data set.
        - `global_batch`: samples per step, of all ranks together.
        - `seed`: names the stream of samples; give each data set its own.
        - `micro`: (i, count) returns only the i-th of `count` parts of this rank's share.

        Raises SessionError for impossible sizes, if the same samples are asked for twice in a step, or if
        they do not continue those that the state was trained with (see `data_change`)."""
        return self._runtime.streams.give(n, global_batch, seed, micro)

    def indices_at(
        self, step: int, n: int, global_batch: int, seed: int = 0, *, micro: tuple[int, int] | None = None
    ) -> torch.Tensor:
        """Return the samples that this rank gets in a later step, as things stand: for workers that fetch
        ahead.

        The arguments besides `step` (the present one or a later one), and the result, are those of
        `sample_indices`. Nothing is consumed, and it may be called any number of times. The answer holds for
        this generation: with another number of ranks, or when batches are left out, ask again.

        Raises SessionError outside the elastic function, before its state is restored, for a step that is
        over, for impossible sizes, and if the samples would not continue those that the state was trained
        with."""
        misuse.check_inside(self._runtime.state, "indices_at")
        if self._runtime.state.entry.pending is not None:
            raise SessionError("indices_at: the state is not restored yet: call restore() first")
        return self._runtime.streams.ahead(step, n, global_batch, seed, micro)

    def sampler(self, n: int, global_batch: int, *, micro: int | None = None, seed: int = 0) -> Sampler:
        """Make a batch sampler for your own DataLoader: `YourLoader(data,
        batch_sampler=session.sampler(len(data), 64))`.

        It yields lists of indices: the samples of `sample_indices`, for the current step and all later ones.
        Make a new iterator in each generation. `micro`: largest number of samples in a micro-batch; None: one
        batch per step. Raises SessionError for impossible sizes."""
        return Sampler(self._runtime.streams, n, global_batch, micro, seed)

    def loader(
        self, dataset: Any, global_batch: int, *, micro: int | None = None, seed: int = 0, **options: Any
    ) -> loader.Loader | stateful.StateLoader:
        """Load the batches of a data set so that no failure repeats or skips a sample, also with workers.

            for step, batch in zip(session.steps(n), session.loader(dataset, global_batch=64)):
                ...

        - `dataset`: a map data set; or an iterable one with `state_dict` and `load_state_dict`; or a function
          `(dp_rank, dp)` that makes the latter for one data-parallel replica.
        - `global_batch`: samples per step, of all ranks together.
        - `micro`: largest number of samples in a micro-batch. If given, each step gets an iterator with a
          length over its micro-batches, instead of one batch.
        - `seed`: names the stream of samples; give each data set its own.
        - `options`: those of DataLoader (for an iterable data set only `collate_fn`).

        Raises SessionError for impossible sizes, for options that follow from the other arguments, and for a
        data set that does not know its position."""
        return loader.make(self._runtime.streams, dataset, Batch(global_batch, micro, seed), options)

    @property
    def loss_weight(self) -> float:
        """The factor on the mean over this rank's samples that makes the average over the ranks the mean over
        the global batch; 1.0 if all shares are equally large.

        `session.ddp` applies it to the gradients by itself. FSDP and other wrappers do not: multiply the loss
        with it there. A loss that is a sum over the rank's samples needs the factor world_size / global_batch
        instead."""
        weighting = self._runtime.streams.weighting
        weighting.by_script = True
        return weighting.weight

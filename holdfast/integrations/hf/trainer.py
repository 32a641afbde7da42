"""Define Trainer: transformers' own, whose loop is entered again in every generation.

It overrides methods of transformers.Trainer at the places where its loop touches process groups, its own
progress, or a step's boundaries; the loop itself is transformers'. `holdfast.integrations.hf` says how."""

from __future__ import annotations

import copy
import functools
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from holdfast.data.seeding import PreservedGenerators
from holdfast.errors import SessionError
from holdfast.integrations import accelerate_state, compiled
from holdfast.integrations.hf import outcome, refusals
from holdfast.integrations.hf.arguments import prepare_like, samples_seed
from holdfast.integrations.hf.between import from_rank_0, rows_of, tell_place
from holdfast.integrations.hf.data import SeededSamples, has_positions, seed_samples, set_epoch
from holdfast.integrations.hf.events import OnceHandler
from holdfast.integrations.hf.ledger import FOLDER, EventLedger
from holdfast.integrations.hf.loggers import HistoryLog
from holdfast.integrations.hf.meetings import gather_elastically, save_once, together
from holdfast.integrations.hf.progress import STATE, LogHistory, TrainerProgress, plain
from holdfast.integrations.hf.rates import rates, set_rates, settings_stay
from holdfast.reentry import joining
from holdfast.state.randomness import mix, seed_step

if TYPE_CHECKING:
    from collections.abc import Callable

_RESUMED = "the memory of this job"
"""Given to Trainer's loop as the checkpoint that it resumes from; no file is read."""
_TAIL = 0x7A11
"""Keeps the random numbers of a step's tail apart from those of its body."""


class Trainer(transformers.Trainer):
    """transformers.Trainer, which survives the death of ranks in place.

    The arguments are those of transformers.Trainer. Without an agent it is exactly that. Raises SessionError,
    naming the setting, for what cannot be kept."""

    callback_handler: Any
    gather_function: Any
    control: Any
    lr_scheduler: Any
    optimizer: Any

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.session = prepare_like(args, kwargs)
        super().__init__(*args, **kwargs)
        self.inside = False  # the loop runs, in a generation
        if self.session is None:
            return
        refusals.check(self)
        if self.args.dataloader_persistent_workers:
            self.args.dataloader_persistent_workers = False  # they would not learn of an epoch's seeds
            log = transformers.logging.get_logger(__name__)
            log.warning("dataloader_persistent_workers is off: Holdfast")
        self.args.ignore_data_skip = False  # of Trainer's own checkpoints: here an epoch goes on where it was
        self._progress, self._history = TrainerProgress(), LogHistory()
        ledger = EventLedger(Path(self.args.output_dir) / FOLDER)
        self.callback_handler = OnceHandler(self.callback_handler, self, ledger)
        self.accelerator.prepare_model = accelerate_state.wrapping(self.session, self.accelerator)
        gather_elastically(self.session, self.accelerator)
        save_once(self.session, self.model)
        self.session.on_leave(self._left)
        self._entered = self._over = self._tracks = self._made_schedule = False
        self._loggers: Any = None

    # ------------------------------------------------------------------ the elastic loop

    def _inner_training_loop(self, *given: Any, **named: Any) -> Any:
        if self.session is None:
            return super()._inner_training_loop(*given, **named)
        if named.get("trial") is not None:
            refusals.refuse("hyperparameter_search", "start one job for each trial")
        self._begin()
        resumes = named.pop("resume_from_checkpoint", None) is not None

        def train() -> Any:
            return self._generation(*given, resumes=resumes, **named)

        output = self._elastically("train", train)
        if self.args.load_best_model_at_end and self.state.best_model_checkpoint is not None:
            with joining.looking():  # PEFT reads the weights' names first, in a process that joins later, too
                super()._load_best_model()
        return output

    def evaluate(self, *given: Any, **named: Any) -> Any:
        """transformers' own; outside of `train()` in an elastic function of its own."""
        return self._measured("evaluate", *given, **named)

    def predict(self, *given: Any, **named: Any) -> Any:
        """transformers' own; outside of `train()` in an elastic function of its own."""
        return self._measured("predict", *given, **named)

    def save_model(self, *given: Any, **named: Any) -> None:
        """transformers' own; nothing in a process that joins the job later: the others have saved."""
        if self.session is None or not self.session.catching_up:
            super().save_model(*given, **named)

    def _measured(self, name: str, *given: Any, **named: Any) -> Any:
        measure = getattr(super(), name)
        if self.inside:
            self.callback_handler.evaluations += 1
        if self.session is None or self.inside:
            return measure(*given, **named)
        self._track_model(anew=not self._tracks)
        logged, gather = len(self.state.log_history), self.gather_function
        number, undo = self.session.runtime.state.functions.called, self.callback_handler.as_now()

        def measured() -> Any:
            tell_place(self)
            undo()  # what an evaluation has done to callbacks that broke off after it
            self._loggers.begin(logged)
            self.gather_function = gather  # the loop resets it at its end
            seed_step(mix(self.args.seed ^ _TAIL), number, self.session.rank)
            with self.session.phase("evaluate"):
                return measure(*given, **named)

        return self._elastically(name, measured)

    def _elastically(self, name: str, function: Callable[[], Any]) -> Any:
        """The function's result in this process; rank 0's if this process joined when it was over.

        Raises SessionError if that is not kept."""
        packed = functools.partial(outcome.packed, self)
        taken = functools.partial(outcome.taken, self, name)
        result = together(self.session, name, function, packed, taken)
        if not self.session.catching_up:
            self._loggers.finish()
        return result

    def _begin(self) -> None:
        """Make what is tracked, before there is a generation."""
        self._progress, self._history = TrainerProgress(), LogHistory()
        self._entered = self._over = False
        self.callback_handler.begin(self.session)
        if self._made_schedule:
            self.lr_scheduler = None
        self._made_schedule = self.lr_scheduler is None
        self.create_optimizer()
        self.optimizer = self.accelerator.prepare(self.optimizer)
        self._first_schedule: Any = None
        self._first_rates = rates(self._inner_optimizer)
        self._first_attributes = self.callback_handler.attributes()
        self._started = time.time()
        self._track_model(anew=True)
        self.session.track(optimizer=self._inner_optimizer, progress=self._progress)
        if self.accelerator.scaler is not None:
            self.session.track(scaler=self.accelerator.scaler)

    def _track_model(self, *, anew: bool) -> None:
        if anew:
            self._tracks, model = True, compiled.bare(self.model)
            self.session.track(model=model, **self.callback_handler.states.kept(), from_rank_0=True)
        self._loggers = self._loggers or HistoryLog(self.session, self)
        self._loggers.track()

    @property
    def _inner_optimizer(self) -> Any:
        return self.optimizer.optimizer

    def _generation(self, *given: Any, resumes: bool, **named: Any) -> Any:
        """Go through Trainer's loop once: from the newest boundary to the end, or to the next failure.

        `resumes`: the script has found a checkpoint of Trainer's own. That of a job which is under way is
        older than what the job knows."""
        if resumes and not self._progress.kept:
            refusals.refuse(
                "resume_from_checkpoint",
                "a job goes on from its own checkpoints (--storage); start another from the weights in "
                "that folder with from_pretrained(...)",
            )
        transformers.set_seed(self.args.seed)  # the order of samples follows from it
        rows = rows_of(self, [float(self._entered), *self.callback_handler.ledger.named()])
        self.callback_handler.take_place(self.session, rows, self._progress.kept)
        self._entered, self._replayed, self.inside = True, False, True
        self._loggers.begin(len(self._history.load(self._progress.kept.get("history", "[]"))))
        try:
            output = super()._inner_training_loop(*given, **named)
            self._over = True
            return transformers.trainer_utils.TrainOutput(*from_rank_0(self, tuple(output)))
        finally:
            self.inside = False
            accelerate_state.unwrap(self)
            self.accelerator.free_memory()
            self.callback_handler.train_dataloader = None

    def _left(self) -> None:
        """The loop was broken off, perhaps in a tail: undo what that has changed of tracked objects."""
        if self._entered and not self._over:
            self.model.train()
            self.callback_handler.own.settings.apply([])
            set_rates(self._inner_optimizer, self._progress.kept.get("rates", self._first_rates))

    # ------------------------------------------------------------------ into the loop

    def _init_training_state(
        self, max_steps: int, num_update_steps_per_epoch: int, num_train_epochs: int, *rest: Any
    ) -> Any:
        if not self.inside:
            return super()._init_training_state(
                max_steps, num_update_steps_per_epoch, num_train_epochs, *rest
            )
        super()._init_training_state(max_steps, num_update_steps_per_epoch, num_train_epochs, None, None)
        kept = self._progress.kept
        if not kept:
            self.callback_handler.epoch = 0
            return 0, 0
        refusals.check_world(len(kept["losses"]), self.session.world_size)
        for name in STATE:
            setattr(self.state, name, kept["state"][name])
        self.state.log_history = self._history.load(kept["history"])
        if self.state.global_step != self.session.step:
            raise SessionError(
                f"Trainer is at step {self.state.global_step} and the session at {self.session.step}: do not "
                "begin or end steps in callbacks"
            )
        # The newest step belongs to its own epoch, also when it was the last one there: its tail is to come.
        epoch, step = divmod(self.state.global_step - 1, num_update_steps_per_epoch)
        self.callback_handler.epoch = epoch
        return epoch, (step + 1) * self.args.gradient_accumulation_steps

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume: Any) -> Any:
        if not self.inside:
            return super()._prepare_for_training(max_steps, train_dataloader, resume)
        refusals.check_loader(train_dataloader)
        seed_samples(train_dataloader, samples_seed(self.args))
        self._created_lr_scheduler = False  # the scheduler of this process stays
        kept = self._progress.kept
        with settings_stay(self._inner_optimizer, goes_on=bool(kept)):
            prepared = super()._prepare_for_training(max_steps, train_dataloader, None)
        if self._first_schedule is None:
            self._first_schedule = plain(self.lr_scheduler.state_dict(), "lr_scheduler")
            self._first_rates = rates(self._inner_optimizer)
        self.lr_scheduler.load_state_dict(copy.deepcopy(kept.get("schedule", self._first_schedule)))
        set_rates(self._inner_optimizer, kept.get("rates", self._first_rates))
        return prepared

    def loop_entered(self) -> None:
        """Trainer has set its counters to zero: set them to what they were."""
        if not self.inside:
            return
        kept = self._progress.kept
        self.callback_handler.count_anew()
        self.callback_handler.own.rows = kept.get("own", [])
        self.callback_handler.own.settings.loop_entered()
        self.callback_handler.set_attributes(kept.get("callbacks", self._first_attributes))
        self._initial_global_step = self._initial_num_input_tokens_seen = 0
        if kept:
            losses = kept["losses"]
            self._tr_loss = torch.tensor(losses[self.session.rank], device=self.args.device)
            self._total_loss_scalar = kept["total_loss"]
            self._globalstep_last_logged = kept["last_logged"]
        self.current_flos = 0

    def _run_epoch(self, **given: Any) -> Any:
        if not self.inside:
            return super()._run_epoch(**given)
        given["start_time"] = self._started
        first, self._replayed = not self._replayed, True  # in this generation
        if self._progress.kept and first:
            given["resume_from_checkpoint"] = _RESUMED
            self._go_through_tail(given)
            if self.control.should_epoch_stop or self.control.should_training_stop:
                whole = given["num_update_steps_per_epoch"] * self.args.gradient_accumulation_steps
                given["steps_trained_in_current_epoch"] = whole
        set_epoch(given["train_dataloader"], given["epoch"])
        return super()._run_epoch(**given)

    def _go_through_tail(self, given: dict[str, Any]) -> None:
        """What follows the newest complete step: another rank may have been killed in it."""
        kept = self._progress.kept
        for name, value in kept["control"].items():
            setattr(self.control, name, value)
        self.callback_handler.count_anew()
        self.control = self.callback_handler.replay_step_end(self.args, self.state, self.control)
        self._maybe_log_save_evaluate(
            self._tr_loss,
            kept["grad_norm"],
            given["model"],
            given["trial"],
            given["epoch"],
            given["ignore_keys_for_eval"],
            self._started,
            learning_rate=kept["learning_rate"],
        )

    # ------------------------------------------------------------------ within a step

    def get_batch_samples(self, epoch_iterator: Any, num_batches: int, device: Any) -> Any:
        """Begin the step, then take its batches."""
        if not self.inside:
            return super().get_batch_samples(epoch_iterator, num_batches, device)
        if self.session.begin_step(self.state.max_steps, seed=self.args.seed) is None:
            raise SessionError(f"Trainer wants a step after its last one, {self.state.max_steps}")
        with PreservedGenerators():
            return super().get_batch_samples(epoch_iterator, num_batches, device)

    def _get_grad_norm(self, *given: Any, **named: Any) -> Any:
        self._grad_norm = super()._get_grad_norm(*given, **named)
        return self._grad_norm

    def _get_learning_rate(self) -> Any:
        self._learning_rate = super()._get_learning_rate()
        return self._learning_rate

    def step_ended(self) -> None:
        """The body of a step has ended: keep the progress as it is now, and complete the step."""
        if not self.inside:
            return
        own, entries = self.callback_handler.own, len(self.state.log_history)
        rows = rows_of(self, [float(self._tr_loss), self.current_flos, entries, own.says()])
        if any(row[2] > self._history.agreed for row in rows):  # something has logged outside of a tail
            self._agree_on_history()
        self.state.total_flos += sum(row[1] for row in rows)
        self.current_flos = 0
        norm = self._grad_norm
        self._progress.kept = {
            "state": {name: plain(getattr(self.state, name), name) for name in STATE},
            "losses": [row[0] for row in rows],
            "total_loss": self._total_loss_scalar,
            "last_logged": self._globalstep_last_logged,
            "grad_norm": norm.item() if isinstance(norm, torch.Tensor) else norm,
            "learning_rate": self._learning_rate,
            "schedule": plain(self.lr_scheduler.state_dict(), "lr_scheduler"),
            "rates": rates(self._inner_optimizer),
            "control": self.control.state()["args"],
            "callbacks": plain(self.callback_handler.attributes(), "callbacks"),
            "own": own.of_ranks(self.session) if any(row[3] for row in rows) else [],
            "history": self._history.text(self.state.log_history),
            "training": self.callback_handler.ledger.training,
        }
        self._loggers.settle(self._history.agreed)
        self.session.end_step()
        self._loggers.completed()

    # ------------------------------------------------------------------ the tail

    def _maybe_log_save_evaluate(
        self, tr_loss: Any, grad_norm: Any, *given: Any, learning_rate: Any = None, **named: Any
    ) -> None:
        kept = self._progress.kept if self.inside else {}
        if kept and learning_rate is None:  # no step of this epoch was left: these are of its last one
            grad_norm, learning_rate = kept["grad_norm"], kept["learning_rate"]
        grows = self.control.should_log or self.control.should_evaluate
        if self.inside:
            seed_step(mix(self.args.seed ^ _TAIL), self.state.global_step, self.session.rank)
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, *given, learning_rate=learning_rate, **named)
        if self.inside and grows:
            self._agree_on_history()

    def _agree_on_history(self) -> None:
        history = self.state.log_history
        history[self._history.agreed :] = from_rank_0(self, history[self._history.agreed :])
        self._history.agreed = len(history)

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> Any:
        if not self.inside:
            return super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)
        if skip_scheduler and self._progress.kept:
            return {}  # eval_on_start: the training has started long ago
        with self.session.phase("evaluate"):
            return super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)

    def _save_checkpoint(self, model: Any, trial: Any) -> Any:
        if not self.inside:
            return super()._save_checkpoint(model, trial)
        with self.session.phase("checkpoint"):
            return super()._save_checkpoint(model, trial)

    def store_flos(self) -> None:
        """Each step adds its own in `step_ended`."""
        if not self.inside:
            super().store_flos()

    def _load_best_model(self) -> None:
        if not self.inside:  # after the loop: a rank that enters it again must find the last weights
            super()._load_best_model()

    def _load_rng_state(self, checkpoint: Any) -> None:
        if not self.inside:  # every step is seeded
            super()._load_rng_state(checkpoint)

    # ------------------------------------------------------------------ data

    def _get_dataloader(self, dataset: Any, *given: Any, is_training: bool = False, **named: Any) -> Any:
        if has_positions(dataset) and self.session is not None and (self.inside or not is_training):
            if hasattr(dataset, "column_names"):  # of the package datasets: transformers looks at its type
                dataset = self._remove_unused_columns(dataset)
            dataset = SeededSamples(dataset, samples_seed(self.args), self.data_collator)
        return super()._get_dataloader(dataset, *given, is_training=is_training, **named)

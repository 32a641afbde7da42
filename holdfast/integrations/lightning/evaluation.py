"""Run Lightning's validate(), test() and predict() outside of fit(), each in an elastic function of its own.

One that breaks begins again. Its random numbers are seeded where it begins, so they come out the same. A
process that joins the job when it is over gets what rank 0 has got, and the predictions of its own rank."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.loops.prediction_loop import _PredictionLoop
from lightning.pytorch.utilities.model_helpers import _ModuleMode
from lightning.pytorch.utilities.seed import isolate_rng

from holdfast.errors import SessionError
from holdfast.integrations import plain
from holdfast.integrations.lightning import trainer_state
from holdfast.integrations.lightning.logged import Loggers
from holdfast.integrations.lightning.replacing import Replacing, drop_fetcher
from holdfast.integrations.lightning.results import metrics_of
from holdfast.integrations.plain import copied
from holdfast.state.randomness import mix, seed_step

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.session import Session

_BYTES_MAX = 4 << 20
"""What is kept is a part of every later state: the predictions of all ranks may be larger."""


class ElasticOutside(Replacing):
    """A loop outside of fit(), entered again in each generation. Lightning sees one run of it."""

    trainer: Any
    batch_progress: Any
    _data_fetcher: Any
    _combined_loader: Any
    _outcome: Callable[[Any], dict[str, Any]]
    """What a process needs that joins when it is over. All ranks call it together; rank 0's is taken."""
    _taken: Callable[[dict[str, Any]], Any]
    """The result for such a process."""

    @property
    def _session(self) -> Session:
        return self.trainer.strategy.session  # type: ignore[no-any-return]

    def _elastically(self, run: Callable[[], Any]) -> Any:
        """What `run` of Lightning's loop comes to, through as many generations as it takes.

        Raises SessionError in a process that joins when it is over, if what came of it was not kept."""
        session, strategy = self._session, self.trainer.strategy
        strategy.loggers = strategy.loggers or Loggers(self.trainer, session)
        session.track(model=strategy.lightning_module)
        strategy.loggers.log.track()
        found: list[Any] = []
        self._first, self._first_modes = self.batch_progress.state_dict(), _ModuleMode()
        self._first_modes.capture(strategy.lightning_module)
        self._first_attributes, self._began = copied(trainer_state.attributes(self.trainer)), False

        def generation() -> dict[str, Any]:
            found[:] = [self._once(run)]
            self._calls: bytes = strategy.broadcast(strategy.loggers.log.calls())
            shown = {**self._outcome(found[0]), "batches": self.batch_progress.state_dict()}
            kept: dict[str, Any] = strategy.broadcast(shown)
            return kept

        try:
            told = session.elastic(generation)()
        except SystemExit as leaving:
            if leaving.code == 0:
                strategy.leave_unheard()
            raise
        if not found:
            return self._told(told)
        log = strategy.loggers.log
        log.settle(self._calls)  # only now: no rank evaluates again
        log.completed()
        log.finish()
        return found[0]

    def _once(self, run: Callable[[], Any]) -> Any:
        """Run Lightning's loop from its beginning."""
        session, strategy = self._session, self.trainer.strategy
        session.restore()
        strategy.set_world_ranks()
        strategy.loggers.log.drop()
        strategy.loggers.log.begin()
        self._forget()
        with session.phase("evaluate"), isolate_rng():
            state = session.runtime.state
            if state.seed is not None:
                seed_step(mix(state.seed), state.functions.called, state.seed_group)
            return run()

    def _forget(self) -> None:
        """Begin without what a run before has left that broke off, and with loaders for this rank."""
        self.batch_progress.load_state_dict(self._first)
        self._first_modes.restore(self.trainer.lightning_module)
        if self._began:
            trainer_state.set_attributes(self.trainer, copied(self._first_attributes))
        self._began = True
        drop_fetcher(self)
        self._combined_loader = None
        self.trainer._logger_connector.reset_results()
        self.trainer._logger_connector.reset_metrics()
        for _, metric in metrics_of(self.trainer.lightning_module):
            metric.reset()

    def _told(self, told: Any) -> Any:
        if not isinstance(told, dict):
            self._lost("it is no plain data")
        self.batch_progress.load_state_dict(told["batches"])
        return self._taken(told)

    def _lost(self, why: str) -> NoReturn:
        raise SessionError(
            f"Lightning: this process joined when trainer.{self.trainer.state.fn.value} was over, and cannot "
            f"get what came of it: {why}. Leave out what follows it in the script, or do it in another job"
        )


class ElasticEvaluationLoop(ElasticOutside, _EvaluationLoop):
    """Lightning's loop of validate() and test()."""

    def run(self) -> list[Any]:
        """Evaluate, through as many generations as it takes."""
        found: list[Any] = self._elastically(super().run)
        return found

    def _outcome(self, found: list[Any]) -> dict[str, Any]:
        connector = self.trainer._logger_connector
        return {
            "results": [_plain(each) for each in found],
            "callback_metrics": _plain(connector.callback_metrics),
            "logged_metrics": _plain(connector.logged_metrics),
        }

    def _taken(self, told: dict[str, Any]) -> list[Any]:
        connector = self.trainer._logger_connector
        for name in ("callback_metrics", "logged_metrics"):
            setattr(connector, f"_{name}", {key: torch.tensor(each) for key, each in told[name].items()})
        return list(told["results"])


class ElasticPredictionLoop(ElasticOutside, _PredictionLoop):
    """Lightning's loop of predict(). Each rank has the predictions of its own share of the data."""

    def run(self) -> Any:
        """Predict, through as many generations as it takes."""
        return self._elastically(super().run)

    def _outcome(self, found: Any) -> dict[str, Any]:
        session = self._session
        own = plain.kept(found, "the predictions", _BYTES_MAX // session.world_size)
        row = plain.dumps(own, "the predictions")
        return {"ranks": plain.gather(row, session.world_size, session.device)}

    def _taken(self, told: dict[str, Any]) -> Any:
        own = plain.loads(told["ranks"][self._session.rank])
        if "refused" in own:
            self._lost(own["refused"])
        return plain.loads(zlib.decompress(own["kept"]))


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: each.item() if isinstance(each, torch.Tensor) else each for name, each in values.items()}

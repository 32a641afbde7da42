"""Run Lightning's validate() and test() outside of fit(), each in an elastic function of its own.

An evaluation that breaks begins again. Its random numbers are seeded where it begins, so they come out the
same. A process that joins the job when it is over gets what rank 0 has got."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.utilities.model_helpers import _ModuleMode
from lightning.pytorch.utilities.seed import isolate_rng

from holdfast.errors import SessionError
from holdfast.integrations.lightning.logged import Loggers
from holdfast.integrations.lightning.replacing import Replacing, drop_fetcher
from holdfast.integrations.lightning.results import metrics_of
from holdfast.state.randomness import seed_step

if TYPE_CHECKING:
    from holdfast.session import Session


class ElasticEvaluationLoop(Replacing, _EvaluationLoop):
    """Lightning's evaluation loop, entered again in each generation. Lightning sees one run of it."""

    trainer: Any
    _data_fetcher: Any
    _combined_loader: Any

    @property
    def _session(self) -> Session:
        return self.trainer.strategy.session  # type: ignore[no-any-return]

    def run(self) -> list[Any]:
        """Evaluate, through as many generations as it takes. Raises SessionError in a process that joins when
        it is over, if what came of it was not kept."""
        session, strategy = self._session, self.trainer.strategy
        strategy.loggers = strategy.loggers or Loggers(self.trainer, session)
        session.track(model=strategy.lightning_module)
        strategy.loggers.log.track()
        self._found: list[Any] | None = None
        self._first, self._first_modes = self.batch_progress.state_dict(), _ModuleMode()
        self._first_modes.capture(strategy.lightning_module)
        try:
            told = session.elastic(self._generation)()
        except SystemExit as leaving:
            if leaving.code == 0:
                strategy.leave_unheard()
            raise
        if self._found is None:
            return self._taken(told)
        log = strategy.loggers.log
        log.settle(self._calls)  # only now: no rank evaluates again
        log.completed()
        log.finish()
        return self._found

    def _generation(self) -> dict[str, Any]:
        """Evaluate from the beginning. Returns what rank 0 has got."""
        session, strategy = self._session, self.trainer.strategy
        session.restore()
        strategy.set_world_ranks()
        strategy.loggers.log.drop()
        strategy.loggers.log.begin()
        self._forget()
        with session.phase("evaluate"), isolate_rng():
            state = session.runtime.state
            if state.seed is not None:
                seed_step(state.seed, state.step, state.seed_group)
            self._found = super().run()
        connector = self.trainer._logger_connector
        self._calls: bytes = strategy.broadcast(strategy.loggers.log.calls())
        shown = {
            "results": [_plain(each) for each in self._found],
            "callback_metrics": _plain(connector.callback_metrics),
            "logged_metrics": _plain(connector.logged_metrics),
            "batches": self.batch_progress.state_dict(),
        }
        kept: dict[str, Any] = strategy.broadcast(shown)
        return kept

    def _forget(self) -> None:
        """Begin without what a run before has left that broke off, and with loaders for this rank."""
        self.batch_progress.load_state_dict(self._first)
        self._first_modes.restore(self.trainer.lightning_module)
        drop_fetcher(self)
        self._combined_loader = None
        self.trainer._logger_connector.reset_results()
        self.trainer._logger_connector.reset_metrics()
        for _, metric in metrics_of(self.trainer.lightning_module):
            metric.reset()

    def _taken(self, told: Any) -> list[Any]:
        if not isinstance(told, dict):
            raise SessionError(
                f"Lightning: this process joined when trainer.{self._stage.value} was over, and cannot get "
                "what came of it: it is no plain data. Leave out what follows it in the script, or do it in "
                "another job"
            )
        self.batch_progress.load_state_dict(told["batches"])
        connector = self.trainer._logger_connector
        for name in ("callback_metrics", "logged_metrics"):
            setattr(connector, f"_{name}", {key: torch.tensor(each) for key, each in told[name].items()})
        return list(told["results"])


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: each.item() if isinstance(each, torch.Tensor) else each for name, each in values.items()}

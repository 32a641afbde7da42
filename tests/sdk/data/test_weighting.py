"""Micro-batches that are not equally large count by their samples; where nothing sees to it, that is told."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import torch
from torch.nn.functional import linear

from holdfast import Session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

N, BATCH, MICRO = 50, 25, 9
X = torch.randn(N, 3, generator=torch.Generator().manual_seed(1)).double()


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(seed=None)
    yield made
    made.close()


def trained(
    session: Session,
    wrap: Callable[[torch.nn.Module], torch.nn.Module],
    factor: Callable[[], float] = lambda: 1.0,
    batch: int = BATCH,
) -> torch.Tensor:
    """The gradient of one step in three micro-batches, less that of the mean over its whole batch."""
    model = torch.nn.Linear(3, 1).double()
    session.track(model=model)

    @session.elastic
    def train() -> torch.Tensor:
        taken = []
        for _, parts in zip(session.steps(1), session.loader(X, batch, micro=MICRO), strict=False):
            wrapped = wrap(model)
            for rows in parts:
                taken.append(rows)
                (wrapped(rows).square().mean() / len(parts) * factor()).backward()
        assert model.weight.grad is not None
        weight = model.weight.detach().requires_grad_()
        loss = linear(torch.cat(taken), weight, model.bias).square().mean()
        loss.backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        return model.weight.grad - weight.grad

    return train()


def said(caplog: pytest.LogCaptureFixture) -> bool:
    return "not equally large, and nothing weighs them" in caplog.text


def test_a_rank_that_trains_alone_weighs_its_micro_batches(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        assert trained(session, session.ddp).abs().max() < 1e-14
    assert not said(caplog)


@pytest.mark.parametrize("batch", [BATCH, 3 * MICRO])
def test_shares_that_nothing_weighs_are_told_of_where_they_are_uneven(
    session: Session, caplog: pytest.LogCaptureFixture, batch: int
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        off = trained(session, lambda model: model, batch=batch).abs().max() > 1e-3
    assert off == said(caplog) == (batch == BATCH)


def test_who_weighs_the_losses_is_told_nothing(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.sdk"):
        off = trained(session, lambda model: model, lambda: session.loss_weight)
    assert off.abs().max() < 1e-14 and not said(caplog)

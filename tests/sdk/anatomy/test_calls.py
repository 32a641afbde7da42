"""What the recorder tells of modules in all their forms, and that it leaves no trace in them."""

from __future__ import annotations

import copy
import dataclasses
import gc
import io
import pickle
import time
import weakref
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from holdfast import Session, SessionError
from holdfast.ipc.progress_page import ProgressPage
from holdfast.ipc.step_times import PHASES, StepSums, StepTimesPage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NAP_S = 0.03
ROWS = torch.ones(3, 4)


class Watched:
    """A session of this process, whose page is read as the agent does."""

    def __init__(self, page: ProgressPage) -> None:
        self.page = page
        self.session = Session()

    def train(self, body: Callable[[int], None], steps: int = 3, **tracked: Any) -> StepSums:
        """Run steps, which are all measured, and return their sums."""
        self.session.track(**tracked)

        @self.session.elastic
        def run() -> None:
            for step in self.session.steps(steps):
                body(step)

        run()
        found = StepTimesPage(self.page).read()
        assert found is not None and found.wall_ns == sum(getattr(found, f"{name}_ns") for name in PHASES)
        assert found.steps == steps
        return found


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    page = ProgressPage.create(tmp_path / "m.board")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "m.board"))
    made = Watched(page)
    yield made
    made.session.close()


class Sleeping(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(NAP_S)
        return gradient


SLEEPING: Any = Sleeping.apply


@dataclasses.dataclass
class Output:
    loss: torch.Tensor | None
    hidden: list[Any]


class Net(torch.nn.Module):
    """Sleeps in its backward pass, and in forward if told."""

    def __init__(self, form: str = "tensor", forward_s: float = 0.0) -> None:
        super().__init__()
        self.form, self.forward_s = form, forward_s
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        time.sleep(self.forward_s)
        if self.form == "checkpointed":
            x = checkpoint(self.layer, x, use_reentrant=False)
        else:
            x = self.layer(x)
        x = SLEEPING(x)
        if self.form == "in place":
            x += 1
        return {"tuple": (1, x), "dict": {"a": {"b": x}}, "dataclass": Output(None, [x])}.get(self.form, x)


def parts(output: Any) -> Any:
    """The tensor in what a Net returns."""
    if isinstance(output, Output):
        return parts(output.hidden[0])
    if isinstance(output, dict):
        return parts(output["a"]["b"])
    return parts(output[1]) if isinstance(output, tuple) else output


def most(sums: StepSums) -> str:
    return max(PHASES, key=lambda phase: getattr(sums, f"{phase}_ns"))


@pytest.mark.parametrize("form", ["tensor", "tuple", "dict", "dataclass", "in place", "checkpointed"])
def test_the_backward_pass_is_told_whatever_a_module_returns(watched: Watched, form: str) -> None:
    net = Net(form)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def body(_: int) -> None:
        for _half in range(2):
            parts(net(ROWS)).sum().backward()
        optimizer.step()

    sums = watched.train(body, net=net, optimizer=optimizer)
    assert most(sums) == "backward" and sums.covered == 3


def test_a_graph_that_is_used_twice_is_two_passes(watched: Watched) -> None:
    net = Net()

    def body(_: int) -> None:
        output = net(ROWS).sum()
        output.backward(retain_graph=True)
        time.sleep(3 * NAP_S)
        output.backward()

    sums = watched.train(body, net=net)
    assert sums.other_ns > sums.backward_ns > sums.wall_ns // 4, "the sleep in between is no pass"


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_whole_module_that_is_computed_again_belongs_to_the_backward_pass(
    watched: Watched, reentrant: bool
) -> None:
    net = Net(forward_s=NAP_S)

    def body(_: int) -> None:
        checkpoint(net, ROWS.clone().requires_grad_(), use_reentrant=reentrant).sum().backward()

    sums = watched.train(body, net=net)
    assert sums.backward_ns > 1.5 * sums.forward_ns > 0
    assert sums.covered == 3


def test_the_loss_counts_as_forward_and_evaluation_does_not(watched: Watched) -> None:
    net, other = Net(), torch.nn.Linear(4, 4)

    def body(step: int) -> None:
        output = net(ROWS)
        time.sleep(4 * NAP_S)
        output.sum().backward()
        with watched.session.phase("evaluate"):
            net(ROWS)
            time.sleep(8 * NAP_S)
        with watched.session.phase("data"):
            time.sleep(2 * NAP_S)
        net.eval()
        net(ROWS)
        net.train()
        other(ROWS)

    sums = watched.train(body, net=net)
    assert sums.other_ns > sums.forward_ns > sums.data_ns > sums.backward_ns > 0


def test_an_optimizer_that_calls_its_closure_keeps_only_its_own_time(watched: Watched) -> None:
    net = Net()
    optimizer: Any = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = net(ROWS).square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    sums = watched.train(lambda _: optimizer.step(closure), net=net, optimizer=optimizer)
    assert most(sums) == "backward" and 0 < sums.optimizer_ns


def test_errors_that_a_script_catches_do_not_spoil_the_next_pass(watched: Watched) -> None:
    net = Net()

    def body(_: int) -> None:
        with pytest.raises(RuntimeError):
            net(torch.ones(3, 5))
        time.sleep(3 * NAP_S)
        output = net(ROWS).sum()
        output.register_hook(lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            output.backward()
        net(ROWS).sum().backward()

    sums = watched.train(body, net=net)
    assert sums.other_ns > sums.backward_ns > sums.forward_ns and sums.covered == 3


def test_a_container_is_no_call_and_its_parts_are(watched: Watched) -> None:
    nets = torch.nn.ModuleDict({"one": Net(), "two": Net()})

    def body(_: int) -> None:
        nets["two"](nets["one"](ROWS)).sum().backward()

    assert most(watched.train(body, nets=nets)) == "backward"


def test_slow_data_is_waiting_and_samples_are_counted(watched: Watched) -> None:
    class Slow(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 60

        def __getitem__(self, index: int) -> torch.Tensor:
            time.sleep(NAP_S / 5)
            return torch.ones(4)

    session, net = watched.session, torch.nn.Linear(4, 4)
    loader = iter(session.loader(Slow(), 10, micro=5))

    def body(_: int) -> None:
        for rows in next(loader):
            net(rows).sum().backward()
            session.count(tokens=100, flops=1.5e9)

    sums = watched.train(body, net=net)
    assert most(sums) == "data"
    assert (sums.samples, sums.tokens, sums.flops) == (30, 600, 9000)


def test_nothing_of_it_is_in_copies_pickles_and_exports(watched: Watched) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(4, 4))
    found: dict[str, Any] = {}

    def body(_: int) -> None:
        buffer = io.BytesIO()
        torch.save(net, buffer)
        found["copies"] = [copy.deepcopy(net), copy.copy(net), pickle.loads(pickle.dumps(net))]
        found["bytes"] = buffer.getvalue() + pickle.dumps(net.state_dict())
        found["exported"] = torch.export.export(net, (ROWS,)).module()
        found["functional"] = torch.func.functional_call(net, dict(net.named_parameters()), ROWS)
        found["gradient"] = torch.func.grad(
            lambda weights: torch.func.functional_call(net, weights, ROWS).sum()
        )(dict(net.named_parameters()))
        torch.func.vmap(net)(ROWS)

    watched.train(body, net=net)
    assert b"holdfast" not in found["bytes"]
    for made in found["copies"]:
        assert "_compiled_call_impl" not in vars(made) and torch.equal(made(ROWS), net(ROWS))
    assert torch.equal(found["functional"], net(ROWS)) and torch.equal(found["exported"](ROWS), net(ROWS))


def test_modules_are_as_before_where_nothing_is_measured(watched: Watched) -> None:
    net, compiled = Net(), Net()
    compiled.compile(backend="eager")
    before, seen = compiled._compiled_call_impl, set[tuple[bool, bool, bool]]()
    recorder = watched.session.runtime.state.times

    def body(_: int) -> None:
        ours = "_compiled_call_impl" in vars(net), compiled._compiled_call_impl is not before
        seen.add((recorder.measuring, *ours))

    watched.train(body, 60, net=net, compiled=compiled)
    assert seen == {(True, True, True), (False, False, False)}
    assert "_compiled_call_impl" not in vars(net) and compiled._compiled_call_impl is before


def test_modules_are_as_before_once_the_session_ends_within_a_step(watched: Watched) -> None:
    net = Net()

    def body(_: int) -> None:
        assert "_compiled_call_impl" in vars(net), "the first steps are measured"
        watched.session.runtime.calls.close()
        assert "_compiled_call_impl" not in vars(net)

    watched.train(body, 1, net=net)


@pytest.mark.parametrize("at", ["measured", "left out"])
def test_a_module_that_is_compiled_between_steps_stays_so_and_is_timed(watched: Watched, at: str) -> None:
    net, recorder = torch.nn.Linear(4, 4), watched.session.runtime.state.times
    given: list[Any] = []

    def body(_: int) -> None:
        if not given and recorder.measuring == (at == "measured"):
            net.compile(backend="eager")
            given.append(net._compiled_call_impl)
        elif given and not recorder.measuring:
            assert net._compiled_call_impl is given[0]
        net(ROWS).sum().backward()

    sums = watched.train(body, 120, net=net)
    assert given and net._compiled_call_impl is given[0]
    assert sums.covered > 3, "also in steps after the first three, which are measured in any case"


def test_a_module_is_not_kept_alive(watched: Watched) -> None:
    calls, net = watched.session.runtime.calls, Net()
    calls.watch(net)
    net(ROWS)
    alive = weakref.ref(net)
    gc.collect()
    gc.disable()
    try:
        del net
        assert alive() is None, "freed by its last reference, not by the collector"
    finally:
        gc.enable()
    calls.close()


def test_off_measures_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = ProgressPage.create(tmp_path / "m.board")
    monkeypatch.setenv("HOLDFAST_BOARD", str(tmp_path / "m.board"))
    monkeypatch.setenv("HOLDFAST_ANATOMY", "of")
    with pytest.raises(SessionError, match="HOLDFAST_ANATOMY='of' must be on or off"):
        Session()
    monkeypatch.setenv("HOLDFAST_ANATOMY", "off")
    session, net = Session(), Net()
    session.track(net=net)

    @session.elastic
    def run() -> None:
        for _ in session.steps(2):
            net(ROWS).sum().backward()
            session.count(tokens=1)

    run()
    assert StepTimesPage(page).read() is None and "_compiled_call_impl" not in vars(net)
    session.close()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"tokens": -1}, "tokens must be an integer from 0"),
        ({"tokens": 1.5}, "tokens must be an integer"),
        ({"tokens": 10**16}, "tokens must be"),
        ({"flops": float("nan")}, "flops must be a number from 0"),
        ({"flops": float("inf")}, "flops must be"),
        ({"flops": "many"}, "flops must be"),
        ({"flops": torch.ones(2)}, "flops must be"),
    ],
)
def test_impossible_counts_are_refused(watched: Watched, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(SessionError, match=message):
        watched.train(lambda _: watched.session.count(**numbers), net=Net())
    with pytest.raises(SessionError, match="count: call it in the function"):
        watched.session.count(tokens=1)

"""What a script changes and does not track is named before a rank dies, and when ranks differ by it."""

from __future__ import annotations

from tests.e2e.standing import submitted

FLAGS = ("--nproc-per-node", "2", "--spares", "1", "--snapshot-every", "2")
HEAD = """
import os, random, signal, sys, pathlib
import numpy, torch
from holdfast import Session
torch.manual_seed(0)
session = Session()
fell = pathlib.Path(sys.argv[1], "fell")

def fall(step):
    if step == 4 and session.rank == 1 and not fell.exists():
        fell.touch()
        os.kill(os.getpid(), signal.SIGKILL)
"""
COUNTING = (
    HEAD
    + """
class Model(torch.nn.Linear):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return super().forward(x) * self.calls

model = Model(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
session.track(model=model, optimizer=optimizer)

@session.elastic
def train():
    for step in session.steps(8):
        fall(step)
        model(torch.ones(3, 4)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.distributed.barrier()

train()
"""
)
DRAWING = (
    HEAD
    + """
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rngs = {"a": numpy.random.default_rng(1), "b": numpy.random.RandomState(2), "c": random.Random(3)}
rngs["d"] = torch.Generator().manual_seed(4)
own = numpy.random.Generator(numpy.random.Philox(5))
session.track(model=model, optimizer=optimizer, **rngs)
session.track(own=own, per_rank=True)

def draw(a, b, c, d, own):
    last = own.normal(size=1 + session.rank)[-1]
    return [a.normal(), b.normal(), c.gauss(0, 1), float(torch.rand(1, generator=d)), last]

@session.elastic
def train():
    ddp = session.ddp(model)
    for step in session.steps(8):
        drawn = torch.tensor(draw(**rngs, own=own), dtype=torch.float32)[:4]
        fall(step)
        ddp(drawn).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

train()
mine = numpy.random.Generator(numpy.random.Philox(5))
undisturbed = [numpy.random.default_rng(1), numpy.random.RandomState(2), random.Random(3)]
undisturbed += [torch.Generator().manual_seed(4), mine]
for _ in range(9):
    wanted = draw(*undisturbed)
assert draw(**rngs, own=own) == wanted, "other random numbers"
"""
)


def test_a_number_in_an_attribute_is_named_and_found_when_the_ranks_differ() -> None:
    with submitted(*FLAGS, script=COUNTING) as job:
        assert job.end() == 1
        assert "the state_dict of tracked modules leaves out: model.calls" in job.output
        assert "tracked state differs between ranks, after step" in job.told
        assert "script keeps and does not track" in job.told


def test_random_generators_of_numpy_and_python_are_tracked() -> None:
    with submitted(*FLAGS, script=DRAWING) as job:
        assert job.end() == 0, job.output
        assert "is not tracked" not in job.output

"""A device on which ranks die again and again is excluded, when it stands out from the others of the job."""

from __future__ import annotations

from tests.core.test_cluster import play


class Dying:
    """A job on nodes a and b, where c has room; one rank after another dies."""

    def __init__(self) -> None:
        self.stage = play("elect", "hello a", "hello b", "hello c", "submit nodes=2 nproc=1 restarts=99")
        self.stage.do("stored", "all starting", "all ready held=-1", "stored")
        self.stage.do("all forming gen=1", "all running gen=1 step=0", "started")
        self.here, self.generation, self.members = {"a": 1000000, "b": 1000001}, 1, 1000002

    def die(self, node: str) -> list[str]:
        """The rank on this node dies, and a new one takes its place there."""
        other = self.here["b" if node == "a" else "a"]
        lines = self.stage.do(f"report j.{self.here[node]} exited cause=silent")
        self.here[node], self.members = self.members, self.members + 1
        told = f"held={self.generation} gen={self.generation}"
        lines += self.stage.do(f"report j.{other} ready {told}")
        lines += self.stage.do(f"report j.{self.here[node]} ready held=-1", "stored")
        self.generation += 1
        self.stage.do(f"all forming gen={self.generation}")
        self.stage.do(f"all running gen={self.generation} step={self.generation - 1}", "started")
        return lines


def excluded(lines: list[str]) -> list[str]:
    return [line for line in lines if "device_excluded" in line]


def test_the_third_death_within_the_window_excludes_a_device() -> None:
    job = Dying()
    assert [bool(excluded(job.die("b"))) for _ in range(3)] == [False, False, True]


def test_where_another_device_saw_several_deaths_the_job_is_the_cause() -> None:
    job = Dying()
    for node in "aab":
        job.die(node)
    assert [excluded(job.die("b")) for _ in range(2)] == [[], []]


def test_deaths_on_another_device_before_the_window_excuse_nothing() -> None:
    job = Dying()
    for _ in range(2):
        job.die("a")
    job.stage.do("live 650")
    assert [bool(excluded(job.die("b"))) for _ in range(3)] == [False, False, True]

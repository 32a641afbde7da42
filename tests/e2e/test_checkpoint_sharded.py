"""Sharded state through all that can befall it: a rank killed, a node lost, a job on other ranks."""

from __future__ import annotations

import pytest

from tests.e2e.checkpointing import trained

FLAGS = "--snapshot-every 2 --checkpoint-every 4 --keep-last 3 --replicas 0 --storage HERE/storage".split()


@pytest.mark.slow
def test_a_rank_killed_a_node_lost_and_the_job_resumed_on_other_ranks() -> None:
    """Without partners: what a node held is on storage alone."""
    with trained("gathered", "--nnodes", "2", "--nproc-per-node", "2", *FLAGS, pace_s=0.1) as job:
        job.more(2)
        job.kill_rank(1)
        first = job.recovered(1)
        assert first["lost_steps"] <= 2 and first["restored"].startswith("memory: "), first
        assert "no storage touched" in first["restored"] and not job.bodies("Load")
        job.more(1)
        job.lose("n1")
        second = job.recovered(2)
        assert second["restored"].startswith("checkpoint: "), second
        assert job.resumes()[-1]["tier"] == "checkpoint" and job.bodies("Load")
        newest = job.more(1)
        job.interrupt()
        job.again("--nnodes", "2", *FLAGS)
        resume = job.resumed()
        job.more(1)
        job.finish()
        assert (resume["tier"], resume["reshard"]) == ("checkpoint", True), resume
        assert resume["step"] >= int(newest.split("-")[0])
        states = dict(line[:2] for line in job.written("wholes"))
        resumed = [line for line in job.written("resumed") if line[2] == "2"]
        assert {rank[3] for rank in resumed} == {states[str(resume["step"])]} and len(resumed) == 2

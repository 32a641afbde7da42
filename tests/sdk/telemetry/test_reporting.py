"""What a script may report: whatever it gives, the agent client's thread lives on."""

from __future__ import annotations

import torch

from holdfast.telemetry.reporting import Reports


class Broken:
    def __float__(self) -> float:
        raise KeyError("no number today")


def test_what_is_no_number_is_told_and_harms_nobody() -> None:
    reports, strange = Reports(), dict[str, int]()
    odd = {"huge": 10**400, "broken": Broken(), "nan": float("nan"), "two": torch.ones(2), "word": "x"}
    reports.add({"loss": torch.tensor(2.5), "steps": 3, **odd}, 7)
    told = reports.read(lambda name, _, step: strange.update({name: step}))
    assert told == {"loss": 2.5, "steps": 3.0}
    assert strange == dict.fromkeys(odd, 7)
    assert reports.read(lambda *_: None) == {}

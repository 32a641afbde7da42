"""A data set that a step changes: workers hold copies of it, which is said; without workers it is exact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sdk.node import Node

if TYPE_CHECKING:
    from tests.sdk.zygote import Zygote

SCRIPT = Path(__file__).with_name("curriculum.py")
SAID = "the steps change loader(Harder).difficulty, of which the workers of session.loader have copies"


def trained(zygote: Zygote, **env: str) -> tuple[list[Any], str]:
    with Node(zygote, SCRIPT, 2, spares=1, **env) as node:
        node.run()
        said = "\n".join(member.log.read_text() for member in node.members.values())
        return [line["weight"] for line in node.results()], said


def test_what_workers_have_copies_of_is_named_though_it_is_tracked(zygote: Zygote) -> None:
    _, said = trained(zygote, WORKERS="1")
    assert said.count(SAID) == 1 and said.count("not tracked") == 0


def test_without_workers_a_death_changes_nothing(zygote: Zygote) -> None:
    wanted, _ = trained(zygote, WORKERS="0")
    found, said = trained(zygote, WORKERS="0", KILL="yes")
    assert found == wanted and "Harder" not in said

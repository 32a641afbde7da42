"""Agents that come all at once are let in one after the other, or are told when to come again."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.daemon.server.greeting_line import (
    AGAIN_MAX_S,
    BACK_S,
    CAME_MANY,
    HELD_MAX_S,
    LAG_AIM_S,
    LAG_LEAST_S,
    PER_S,
    TOLD_EVERY_S,
    WAIT_MAX_S,
    WINDOW_MAX,
    WINDOW_MIN,
    GreetingLine,
    Turn,
    booked,
    crowded,
    window,
)


@pytest.mark.parametrize(
    ("before", "lag_s", "after"),
    [
        (16, 0.0, 17),
        (16, LAG_AIM_S, 17),
        (16, LAG_AIM_S + 0.01, 8),
        (5, 9.0, WINDOW_MIN),
        (WINDOW_MIN, 9.0, WINDOW_MIN),  # a loop that is late for another reason still greets somebody
        (WINDOW_MAX, 0.0, WINDOW_MAX),
    ],
)
def test_how_many_hellos_are_under_way_follows_the_lag(before: int, lag_s: float, after: int) -> None:
    assert window(before, lag_s) == after


@pytest.mark.parametrize(
    ("came", "lag_s", "more"),
    [(0, 9.0, False), (1, 0.0, False), (1, LAG_LEAST_S, True), (2, 0.001, False), (CAME_MANY, 0.0, True)],
)
def test_behind_those_who_come_there_may_be_others(came: int, lag_s: float, more: bool) -> None:
    assert crowded(came, lag_s) is more


@pytest.mark.parametrize(
    ("booked_until", "at"),
    [
        (0.0, 100.0 + WAIT_MAX_S + 0.5),
        (110.0, 110.5),
        (100.0 + AGAIN_MAX_S, 100.0 + WAIT_MAX_S + 0.5),  # too far away: from the first one on again
    ],
)
def test_each_agent_is_told_a_time_of_its_own(booked_until: float, at: float) -> None:
    assert booked(100.0, booked_until, per_s=2.0) == at


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


async def entered(line: GreetingLine, number: int) -> list[asyncio.Task[Turn]]:
    tasks = [asyncio.create_task(line.enter()) for _ in range(number)]
    await asyncio.sleep(0)
    return tasks


async def test_they_come_in_order_and_no_more_than_the_window_lets() -> None:
    line = GreetingLine(Clock())
    line.window = 2
    tasks = await entered(line, 5)
    assert [task.done() for task in tasks] == [True, True, False, False, False] and line.waiting == 3
    tasks[0].result().over()
    tasks[0].result().over()  # once more has no effect
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [True, True, True, False, False]
    line.look(0.0)  # one more may come
    await asyncio.sleep(0)
    assert line.waiting == 1 and tasks[3].done()


async def test_whoever_leaves_the_line_takes_no_turn_with_it() -> None:
    line = GreetingLine(Clock())
    line.window = 1
    tasks = await entered(line, 4)
    tasks[1].cancel()  # while it waits
    await asyncio.sleep(0)
    tasks[0].result().over()
    tasks[2].cancel()  # in the moment in which its turn has come
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await tasks[3]) and line.waiting == 0
    tasks[3].result().over()
    assert (await line.enter()) is not None


async def test_with_a_long_line_agents_are_told_when_to_come_again() -> None:
    line = GreetingLine(clock := Clock())
    most = int(PER_S * WAIT_MAX_S)
    assert line.later_s(most) == 0.0 and line.later_s(0, full=True) > WAIT_MAX_S
    told = [line.later_s(most + 1) for _ in range(50)]
    assert all(WAIT_MAX_S < after < AGAIN_MAX_S for after in told) and told == sorted(set(told))
    assert line.busy
    clock.now += max(told) + BACK_S + 0.01
    assert not line.busy


async def test_the_pace_is_what_was_seen_while_others_waited() -> None:
    line = GreetingLine(clock := Clock())
    line.window = 1
    tasks = await entered(line, 200)
    for task in tasks[:100]:
        (await task).over()
        clock.now += 0.1
        line.look(9.0)
        line.window = 1
    assert line.later_s(int(20 * WAIT_MAX_S)) > 0.0, "some ten in a second, not two hundred"
    for task in tasks[100:]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_for_how_long_somebody_has_waited_is_told_in_time_and_not_for_ever() -> None:
    line = GreetingLine(clock := Clock())
    assert line.unheard_s() == 0.0
    line.window = 0
    (waits,) = await entered(line, 1)
    assert line.unheard_s() == 0.0
    clock.now += TOLD_EVERY_S
    assert line.unheard_s() == TOLD_EVERY_S and line.unheard_s() == 0.0
    clock.now += HELD_MAX_S
    assert line.unheard_s() == 0.0, "a line that never ends hides no lost node"
    line.window = 1
    line.left()
    (await waits).over()
    clock.now += TOLD_EVERY_S
    assert line.unheard_s() == 0.0 and not line.busy

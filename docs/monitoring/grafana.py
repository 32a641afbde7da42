"""Describe a dashboard as rows of a table, and build the document that Grafana imports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import StackingMode
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its queries as (legend, expression). `now`: show only the newest value, large."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    now: bool = False
    stacked: bool = False
    span: int = 12


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. `variable`: what it can be filtered by, and the query for its values."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    variable: tuple[str, str] = ("", "")


def documents(boards: Mapping[str, Board]) -> dict[str, Any]:
    """Every dashboard as the document that Grafana imports, by file name."""
    return {
        name: json.loads(json.dumps(_built(name, each), cls=JSONEncoder)) for name, each in boards.items()
    }


def _built(name: str, source: Board) -> Any:
    made = board.Dashboard(source.title).uid(f"holdfast-{name}").description(source.about).tags(["holdfast"])
    made = made.time("now-3h", "now").refresh("30s").timezone("browser")
    made.with_variable(board.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    variable, query = source.variable
    if variable:
        narrowed = board.QueryVariable(variable).query(query).datasource(SOURCE).multi(True).include_all(True)
        made.with_variable(narrowed.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED))
    for panel in source.panels:
        made.with_panel(_panel(panel))
    return made.build()


def _panel(source: Panel) -> Any:
    made: Any = stat.Panel() if source.now else timeseries.Panel()
    made = made.title(source.title).description(source.about).unit(source.unit).datasource(SOURCE)
    made = made.span(source.span).height(4 if source.now else 8)
    if source.stacked:
        made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    for index, (legend, expression) in enumerate(source.queries):
        made.with_target(
            Dataquery().expr(expression).legend_format(legend or source.title).ref_id(chr(ord("A") + index))
        )
    return made

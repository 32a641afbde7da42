"""Describe a dashboard as rows of a table, and build the document that Grafana imports.

Every query is narrowed to the namespaces and, where its metric is about jobs, to the jobs that the reader has
chosen. Where series have no namespace, all are shown."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import catalog
from grafana_foundation_sdk.builders import common, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as board
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import BigValueTextMode, GraphTresholdsStyleMode, StackingMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    ValueMap,
    ValueMappingResult,
    VariableRefresh,
)
from rules import RECORDS

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
GREEN, YELLOW, RED, BLUE = "green", "yellow", "red", "blue"
NAMESPACE, JOB = "namespace", "training_job"
_METRIC = re.compile(r"\b((?:training_job:)?holdfast_[a-z0-9_:]+)(?:\{([^}]*)\})?")
_INCIDENTS = {
    "Incidents": ('increase(holdfast_incidents_total{whose!="plan"}[1m])', RED),
    "Planned changes": ('increase(holdfast_incidents_total{whose="plan"}[1m])', BLUE),
}
"""Marks on every chart: the increases of a counter, and their colour."""
_MARKED = {"step": "30s", "tagKeys": "training_job,whose", "titleFormat": "{{training_job}}"}
_MARKED |= {"textFormat": "{{strategy}}: {{outcome}}", "useValueForTime": False}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its queries as (legend, expression). `now`: show only the newest value, large.

    - `limits`: from which value on which colour; before the first one it is green.
    - `words`: what a value means, and its colour.
    - `to_job`: a series leads to the dashboard of its job."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    now: bool = False
    stacked: bool = False
    span: int = 12
    limits: tuple[tuple[float, str], ...] = ()
    words: tuple[tuple[int, str, str], ...] = ()
    to_job: bool = False
    below: str = GREEN


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. `variables`: what it can be filtered by besides the namespace, and the query for the
    values of each."""

    title: str
    about: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()


def narrowed(expression: str) -> str:
    """The expression with the chosen namespaces, and jobs where a metric has that label, in each selector."""

    def chosen(found: re.Match[str]) -> str:
        name, given = found[1], found[2]
        labels = (NAMESPACE, JOB) if name in _about_jobs() else (NAMESPACE,)
        matchers = [f'{label}=~"${label}"' for label in labels]
        return f"{name}{{{', '.join([*filter(None, [given]), *matchers])}}}"

    return _METRIC.sub(chosen, expression)


@cache
def _about_jobs() -> frozenset[str]:
    recorded = (name for name in RECORDS if name.startswith(f"{JOB}:"))
    return frozenset((*catalog.about_jobs(), *recorded))


def documents(boards: Mapping[str, Board]) -> dict[str, Any]:
    """Every dashboard as the document that Grafana imports, by file name."""
    found = {
        name: json.loads(json.dumps(_built(name, each), cls=JSONEncoder)) for name, each in boards.items()
    }
    for document in found.values():
        marks = document["annotations"]["list"]
        # Prometheus' own fields, which the library has no names for.
        document["annotations"]["list"] = [{**mark, **_MARKED} for mark in marks]
    return found


def _built(name: str, source: Board) -> Any:
    made = board.Dashboard(source.title).uid(f"holdfast-{name}").description(source.about).tags(["holdfast"])
    made = made.time("now-3h", "now").refresh("30s").timezone("browser")
    made.with_variable(board.DatasourceVariable("datasource").type("prometheus").label("Data source"))
    namespaces = (NAMESPACE, "label_values(holdfast_build_info, namespace)")
    for variable, query in (namespaces, *source.variables):
        made.with_variable(_variable(variable, query))
    made.link(
        board.DashboardLink("Holdfast").type(DashboardLinkType.DASHBOARDS).tags(["holdfast"])
        .include_vars(True).keep_time(True).as_dropdown(False)
    )  # fmt: skip
    for title, (expression, colour) in _INCIDENTS.items():
        query = f"sum by (namespace, training_job, whose, strategy, outcome) ({narrowed(expression)}) > 0"
        mark = board.AnnotationQuery().name(title).datasource(SOURCE).enable(True).expr(query)
        made.annotation(mark.icon_color(colour))
    for panel in source.panels:
        made.with_panel(_panel(panel))
    return made.build()


def _variable(name: str, query: str) -> Any:
    made = board.QueryVariable(name).query(query).datasource(SOURCE).multi(True).include_all(True)
    made = made.all_value(".*")  # of series without the label too
    return made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)


def _panel(source: Panel) -> Any:
    made: Any = stat.Panel() if source.now else timeseries.Panel()
    made = made.title(source.title).description(source.about).unit(source.unit).datasource(SOURCE)
    made = made.span(source.span).height(4 if source.now else 8)
    if source.now:
        made.text_mode(BigValueTextMode.VALUE_AND_NAME)
    if source.stacked:
        made.stacking(common.StackingConfig().mode(StackingMode.NORMAL)).fill_opacity(30)
    _judge(source, made)
    if source.to_job:
        made.data_links([board.DashboardLink("Job").url(_JOB_URL)])
    for index, (legend, expression) in enumerate(source.queries):
        query = Dataquery().expr(narrowed(expression)).legend_format(legend or source.title)
        made.with_target(query.ref_id(chr(ord("A") + index)))
    return made


_JOB_URL = (
    "/d/holdfast-job?${__url_time_range}&${datasource:queryparam}&${namespace:queryparam}"
    "&var-training_job=${__field.labels.training_job}"
)


def _judge(source: Panel, made: Any) -> None:
    """Colour values by the panel's limits, and put words in their place."""
    if source.limits:
        steps = [Threshold(None, source.below), *(Threshold(*limit) for limit in source.limits)]
        made.thresholds(board.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
        if not source.now:
            line = GraphTresholdsStyleMode.DASHED
            made.thresholds_style(common.GraphThresholdsStyleConfig().mode(line))
    if source.words:
        results = {
            str(value): ValueMappingResult(text=text, color=colour, index=index)
            for index, (value, text, colour) in enumerate(source.words)
        }
        made.mappings([ValueMap(results)])

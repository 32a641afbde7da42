"""Read the time at the beginning of a log line, in the formats that loggers, glog, syslog and kernels write.

Some formats lack the year (glog, syslog) or the whole date. What is missing is the same for all lines of one
run, so such a time is placed next to one that is known whole."""

from __future__ import annotations

import re
from dataclasses import dataclass

DAY_S = 86400.0
_YEAR_S = 365.2425 * DAY_S
_MONTHS = {name: at + 1 for at, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split())}
_EPOCH_LEAST, _EPOCH_MOST = 9.4e8, 4.1e9  # 1999 to 2099: other numbers of ten digits are no times

_CLOCK = r"(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d|60)(?:[.,:](?P<f>\d{1,9}))?"
_ZONE = r"(?P<z>Z|[+-]\d\d:?\d\d)?"
_OPEN = r"(?:(?:DEBUG|INFO|WARN|WARNING|ERROR|CRITICAL|FATAL)\b)?\W{0,4}"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"{_OPEN}(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[T _]{{1,2}}{_CLOCK}\s?{_ZONE}",
        rf"{_OPEN}(?P<d>\d\d)/(?P<mon>[A-Z]{{3}})/(?P<y>20\d\d)[: ]{_CLOCK}",
        rf"{_OPEN}(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>20\d\d),? {_CLOCK}",
        rf"{_OPEN}(?P<mo>\d\d)[/-](?P<d>\d\d) {_CLOCK}",
        rf"{_OPEN}[IWEFVD](?P<mo>1[0-2]|0?[1-9])(?P<d>[0-3]\d) {_CLOCK}",
        rf"{_OPEN}(?:[A-Z]{{3}} )?(?P<mon>[A-Z]{{3}}) {{1,2}}(?P<d>\d{{1,2}}) {_CLOCK}(?: (?P<y>20\d\d))?",
        rf"{_OPEN}{_CLOCK}\b",
    )
)
_EPOCH = re.compile(r"""\W{0,4}(?:"?(?:time|ts|timestamp)"?[:=] ?)?(\d{10}\.\d{1,9})\b""")
_UPTIME = re.compile(r"\[ {0,8}(\d{1,9}\.\d{6})\] ")


@dataclass(frozen=True, slots=True)
class Stamp:
    """A time in s since 1970, in UTC where a zone is given. `exact_s`: the precision of what was written.

    Without a date (`dated` False), `seconds` is the time of day; without a year, `month` and `day` are given
    and `seconds` is the time of that day."""

    seconds: float
    exact_s: float
    dated: bool = True
    month: int = 0
    day: int = 0

    def near(self, reference_s: float) -> float:
        """The time in s since 1970, that nearest to a known one where a part is missing."""
        if not self.dated:
            return self.seconds + round((reference_s - self.seconds) / DAY_S) * DAY_S
        if not self.month:
            return self.seconds
        year = 1970 + int(reference_s // _YEAR_S)
        times = [
            days(each, self.month, self.day) * DAY_S + self.seconds for each in range(year - 1, year + 2)
        ]
        return min(times, key=lambda time_s: abs(time_s - reference_s))

    @property
    def whole(self) -> bool:
        """Whether year, date and time were all written."""
        return self.dated and not self.month


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how many seconds a clock is ahead of the others', and how far that may be off. `marks`: the number
    of common moments; 0: nothing is known, and `margin_s` is an assumption."""

    offset_s: float
    margin_s: float
    marks: int
    of: str = "common steps"  # what the common moments are


def read(text: str) -> tuple[Stamp | None, int]:
    """The time with which a line begins, and where the text after it begins; (None, 0) without one.

    A kernel's seconds since boot are skipped: they cannot be compared with other clocks."""
    for form in _FORMS:
        if (found := form.match(text)) is not None:
            stamp = _stamp(found.groupdict())
            if stamp is not None:
                return stamp, found.end()
    if (found := _EPOCH.match(text)) is not None and _EPOCH_LEAST < float(found[1]) < _EPOCH_MOST:
        return Stamp(float(found[1]), 10.0 ** -len(found[1].partition(".")[2])), found.end()
    if (found := _UPTIME.match(text)) is not None:
        return None, found.end()
    return None, 0


def days(year: int, month: int, day: int) -> int:
    """Days from 1970-01-01 to a date of the Gregorian calendar (H. Hinnant, days_from_civil)."""
    year -= month <= 2
    era, of_era = year // 400, year % 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468


def _stamp(parts: dict[str, str | None]) -> Stamp | None:
    fraction = parts["f"] or ""
    seconds = int(parts["h"] or 0) * 3600 + int(parts["m"] or 0) * 60 + int(parts["s"] or 0)
    within_s = seconds + (float(f"0.{fraction}") if fraction else 0.0) - _zone_s(parts.get("z"))
    exact_s = max(10.0 ** -len(fraction), 1e-6)
    month = _MONTHS.get((parts.get("mon") or "").lower(), 0) or int(parts.get("mo") or 0)
    if parts.get("d") is None:
        return Stamp(within_s, exact_s, dated=False)
    day = int(parts["d"] or 0)
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    if (year := parts.get("y")) is not None:
        return Stamp(days(int(year), month, day) * DAY_S + within_s, exact_s)
    return Stamp(within_s, exact_s, month=month, day=day)


def _zone_s(zone: str | None) -> float:
    if not zone or zone in "Zz":
        return 0.0
    sign = -1.0 if zone[0] == "-" else 1.0
    return sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)

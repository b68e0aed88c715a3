"""Finds dates in English text as people write them. Whatever is not certainly a date is ignored."""

from __future__ import annotations

import re
from dataclasses import dataclass

MONTHS = "january february march april may june july august september october november december".split()
NUMBERS = {name[:3]: number for number, name in enumerate(MONTHS, 1)}
NAME = rf"(?P<name>(?:{'|'.join(f'{m[:3]}(?:{m[3:]})?' if m[3:] else m for m in MONTHS)}|sept)\b)"
DAY, YEAR = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b", r"(?P<year>(?:19|20)\d\d)\b"
WRITTEN = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?P<year>(?:19|20)\d\d)[-/.](?P<month>[01]?\d)(?:[-/.](?P<day>[0-3]?\d))?(?!\d)",  # 2023-05-08, 2023/5
        rf"\b{DAY} (?:of )?{NAME}\.?(?:,? {YEAR})?",  # 8 May 2023, 8th of May
        rf"\b{NAME}\.? {DAY}(?:,? {YEAR})?",  # May 8, 2023
        rf"\b{NAME}\.?,? (?:of )?{YEAR}",  # May 2023
        rf"\b(?:in|during|since|until|of|last|this|early|late|mid) {NAME}",  # in May; "may" alone is not a month
    )
)


@dataclass(frozen=True, slots=True)
class PartialDate:
    """A date: a month, and the year and the day if the text names them."""

    month: int
    year: int | None = None
    day: int | None = None


def first_date(text: str) -> PartialDate | None:
    """The first date in a text, trying the most complete notation first; None if there is none."""
    for form in WRITTEN:
        found = form.search(text)
        day = None if found is None else _date(found.groupdict())
        if day is not None:
            return day
    return None


def _date(groups: dict[str, str | None]) -> PartialDate | None:
    name, year, day = groups.get("name"), groups.get("year"), groups.get("day")
    month = NUMBERS[name[:3].lower()] if name else int(groups.get("month") or 0)
    if not 1 <= month <= 12 or (day is not None and not 1 <= int(day) <= 31):
        return None
    return PartialDate(month, int(year) if year else None, int(day) if day else None)


def date_match(asked: PartialDate, found: PartialDate | None, reach: int = 2) -> float:
    """1.0 if `found` may be the date `asked` for, 0.5 if only its day differs by more than `reach`, else 0.0. Unknown
    years and days match any."""
    if found is None or asked.month != found.month:
        return 0.0
    if asked.year is not None and found.year is not None and asked.year != found.year:
        return 0.0
    far = asked.day is not None and found.day is not None and abs(asked.day - found.day) > reach
    return 0.5 if far else 1.0

"""Finds dates as people write them, in eight languages, Chinese and Japanese. What is not certainly one is ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

# The names of the months: a row for each language, `/` between the forms of one. Read without regard to case.
MONTHS = (
    "january/jan february/feb march/mar april/apr may june/jun july/jul august/aug september/sep/sept october/oct"
    " november/nov december/dec",
    "januar/jänner februar märz/maerz april mai juni juli august september oktober/okt november dezember/dez",
    "janvier/janv février/fevrier/févr mars avril/avr mai juin juillet/juil août/aout septembre octobre novembre"
    " décembre/decembre/déc",
    "enero febrero marzo abril/abr mayo junio julio agosto septiembre/setiembre octubre noviembre diciembre/dic",
    "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre/ott novembre dicembre/dic",
    "janeiro fevereiro março/marco abril maio junho julho agosto setembro outubro novembro dezembro",
    "januari februari maart april mei juni juli augustus september oktober november december",
    "января/январе/январь февраля/феврале/февраль марта/марте/март апреля/апреле/апрель мая/мае/май июня/июне/июнь"
    " июля/июле/июль августа/августе/август сентября/сентябре/сентябрь октября/октябре/октябрь ноября/ноябре/ноябрь"
    " декабря/декабре/декабрь",
)
AFTER_ORDINALS = tuple(re.split("[ /]", MONTHS[1].title()))  # in German "10. April" is the tenth of April
NUMBERS = {name: number for row in MONTHS for number, forms in enumerate(row.split(), 1) for name in forms.split("/")}


def _any_of(names: Iterable[str]) -> str:
    return rf"(?P<name>(?:{'|'.join(sorted(names, key=len, reverse=True))})\b)"


NAME = _any_of(NUMBERS)
ENGLISH, OTHERS = _any_of(re.split("[ /]", MONTHS[0])), _any_of(re.split("[ /]", " ".join(MONTHS[1:])))
DAY = r"(?P<day>[0-3]?\d)(?:(?:st|nd|rd|th|er)\b|[.ºª°]|\b)"
YEAR = r"(?P<year>(?:19|20)\d\d)\b"
OF = r"(?:of |del? |do |di )?"
WRITTEN = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        r"\b(?P<year>(?:19|20)\d\d)[-/.](?P<month>[01]?\d)(?:[-/.](?P<day>[0-3]?\d))?(?!\d)",  # 2023-05-08, 2023/5
        r"(?P<year>(?:19|20)\d\d)年(?P<month>[01]?\d)月(?:(?P<day>[0-3]?\d)[日号號])?",  # 2023年5月8日
        r"(?<!\d)(?P<month>[01]?\d)月(?P<day>[0-3]?\d)[日号號]",  # 5月8日
        r"\b(?P<day>[0-3]?\d)\. ?(?P<month>[01]?\d)\. ?(?P<year>(?:19|20)\d\d)\b",  # 8.5.2023
        rf"\b{DAY} {OF}{NAME}\.?(?:,? {OF}{YEAR})?",  # 8 May 2023, 8th of May, 8. Mai 2023, 8 de mayo de 2023
        rf"\b{NAME}\.? {DAY}(?:,? {YEAR})?",  # May 8, 2023
        rf"\b{NAME}\.?,? {OF}{YEAR}",  # May 2023, mayo de 2023
        rf"\b(?:in|during|since|until|of|last|this|early|late|mid) {ENGLISH}",  # in May; "may" alone is not a month
        rf"\b(?:im|seit|en|em|nel|depuis|desde|dal|в|с|до) {OTHERS}",  # im Mai, en mayo, в мае
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
    month = NUMBERS[name.lower()] if name else int(groups.get("month") or 0)
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

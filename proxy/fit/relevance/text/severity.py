"""How severe the trouble is that a token or a line reports, and whether a question asks about trouble.

Of lines it knows English words and the forms in which log formats state a level; of questions some words of the most
common languages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

# Severities: a word about trouble, the name of an exception, the level of a warning, the level of an error. A line that
# states that it is a warning is one, whatever exception it names.
WORD, EXCEPTION, WARNING, ERROR = 1, 2, 3, 4

WORDS = frozenset(
    "error errors fail fails failed failing failure failures fatal exception exceptions traceback panic panicked"
    " critical denied refused rejected timeout timed warn warning warnings unknown invalid cannot unable"
    " abort aborted killed exited missing lost corrupt corrupted undefined unexpected crash crashed severe".split()
)
WARNINGS = frozenset("WARN WARNING WARNINGS".split())
ERRORS = frozenset(
    "ERROR ERRORS ERR FATAL CRITICAL CRIT PANIC FAIL FAILED FAILURE Traceback SEVERE EMERG ALERT".split()
)
EXCEPTION_SUFFIXES = ("Exception", "Error")
EXCEPTION_NAME = re.compile(r"[\w.]*\w(?:Exception|Error)")


def _stated(names: str, letters: str, more: str = "") -> re.Pattern[str]:
    """The forms in which a line states a level: `<Error>`, `[warn]`, `(crit)`, `level=fatal`, `"severity":"error"`, a
    column of its own, `error: ...` after a place, and by a letter (`E/tag`, `1702 E tag:`, `E1122 10:00:00.1`)."""
    name = f"(?i:{names})"
    return re.compile(
        rf"[<\[(|]\s?{name}\s?[>\])|]|\b(?i:level|lvl|severity|priority)\W{{1,4}}{name}\b|\s{name}(?:\t|\s\s)"
        rf"|(?:^|:\s){name}:\s|(?:^|\s)[{letters}](?:/[\w.$-]|\d{{4}}\s\d\d:|\s+[\w.$-]+\s*:\s){more}"
    )


SERVER_ERROR = r"|(?:HTTP/[\d.]+|(?i:status|code))\W{1,4}5\d\d\b"
SHOUTS = r"|\b[A-Z]{3,}(?:[ -][A-Z]{2,})+\s?!|!!"  # beside a word about trouble: OUT OF MEMORY!
STATES_ERROR = _stated(
    r"(?:fatal )?error|err|crit(?:ical)?|emerg(?:ency)?|alert|fatal|panic|fault|severe", "EF", SERVER_ERROR + SHOUTS
)
STATES_WARNING = _stated(r"warn(?:ing)?", "W")
HEAD, SEARCHED = (
    300,
    4000,
)  # characters of a line, and lines of a text, that are searched for them: it takes a microsecond a character
# Tokens of such forms that are no words about trouble.
SUSPECT = re.compile(r"(?i:err|crit|emerg|emergency|alert|fault)|5\d\d|[EFW](?:\d{4}|/.*)?")

ASKS = re.compile(
    r"\b(?:errors?|wrong|fail(?:s|ed|ing|ures?)?|problems?|broken?|crash(?:es|ed|ing)?|warn(?:s|ings?)?|bugs?|issues?"
    r"|why (?:did|does|is|are|was|were)|trouble|exceptions?|outages?|incidents?|root cause|stop(?:s|ped)? working"
    r"|fehler\w*|problem[ea]\w*|schief\w*|kaputt|abgestürzt|ausfall|warnung\w*|warum|fehlgeschlagen"
    r"|erreurs?|problèmes?|échec|échoué|panne|plant[ée]|avertissements?|pourquoi|errore|errori|guasto|avvisi"
    r"|errores|fall[oóa]s?|fallado|falló|avería|advertencias?|por qué|erros?|falhou|falhas?|avisos?"
    r"|ошиб\w*|сбо[йея]\w*|не так|не работает|упал\w*|предупрежд\w*|почему|помилк\w*|błęd\w*|błąd|hata\w*|fout\w*)\b"
    r"|错误|錯誤|故障|失败|失敗|问题|問題|异常|報錯|报错|崩溃|为什么|警告|エラー|障害|なぜ|오류|에러|실패|문제|경고",
    re.IGNORECASE,
)


def severity_of(token: str) -> int:
    """The severity of a token; 0 if it does not tell of trouble."""
    if token in ERRORS:
        return ERROR
    if token in WARNINGS:
        return WARNING
    if token.endswith(EXCEPTION_SUFFIXES) and EXCEPTION_NAME.fullmatch(token):
        return EXCEPTION
    return WORD if token.lower() in WORDS else 0


def severities_of_lines(
    texts: Sequence[str], tokens: Sequence[Collection[str]], said: Collection[str], known: Mapping[str, int]
) -> dict[int, int]:
    """Maps the index of each line that tells of trouble to its severity. `said`: all distinct tokens; `known`: those
    with a severity of their own."""
    suspects = known.keys() | set(filter(SUSPECT.fullmatch, said))
    calm = suspects.isdisjoint
    suspicious = [place for place, line in enumerate(tokens) if not calm(line)] if suspects else []
    found = {place: max([known.get(token, 0) for token in tokens[place]]) for place in suspicious}
    for place in [place for place in suspicious if found[place] < ERROR][:SEARCHED]:
        found[place] = max(found[place], _stated_severity(texts[place][:HEAD], found[place]))
    return {place: severity for place, severity in found.items() if severity}


def _stated_severity(text: str, own: int) -> int:
    if STATES_ERROR.search(text):
        return ERROR
    return WARNING if own < WARNING and STATES_WARNING.search(text) else 0

"""The prompt for a summary of a conversation, and the summary in the text that a model replies."""

from __future__ import annotations

WORDS_PER_TOKEN = 0.6  # a cautious ratio: models keep to a number of words better than to a number of tokens
OPEN, CLOSE = "<summary>", "</summary>"
EARLIER = "The summary so far:\n<summary>\n{}\n</summary>\n\nWhat was said since then:\n\n"
# At the end, where models follow it best. A reply without both marks is no summary: it is an excuse, an error, or an
# answer to the conversation itself.
END = "\n\n[Here the conversation ends. Do not continue it: write the summary, between <summary> and </summary>.]"


class NoSummary(Exception):
    """A reply that is no summary. The text says why and contains nothing of the reply.

    `lasting`: another text would fail, too.
    """

    def __init__(self, why: str, lasting: bool = False) -> None:
        super().__init__(why)
        self.lasting = lasting


def prompt_for(instructions: str, max_tokens: int, before: str, text: str) -> tuple[str, str]:
    """The system message and the user message that ask for a summary of about `max_tokens` tokens.

    The summary covers `text` and `before`, the summary of all that stood before it (empty: there is none).
    """
    system = instructions.replace("{words}", str(int(max_tokens * WORDS_PER_TOKEN)))
    return system, (EARLIER.format(before) if before else "") + text + END


def summary_in(reply: str) -> str:
    """The summary in a reply: the text between the last two marks, because a model may think aloud before it.

    Raises `NoSummary`.
    """
    before, closed, _ = reply.rpartition(CLOSE)
    _, opened, summary = before.rpartition(OPEN)
    if not closed or not opened or not summary.strip():
        raise NoSummary("it contains no summary")
    return summary.strip()

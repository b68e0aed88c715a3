"""A scripted day before the page: several models, APIs and providers, cuts, healed refusals and failures.

    python -m tests.admin.day            plays the day, prints the page's address and questions, and goes on slowly
    python -m tests.admin.day --answers  prints the answers, too

The newcomer's test: somebody who was told nothing opens the page and answers the questions from it alone.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from proxy.cli.demo import BODY, LOCALHOST, started, wait_for
from proxy.simulator.app import SimulatorConfig, simulator
from tests.e2e.services import talk
from tests.e2e.world import listening
from tests.ports import reserved_port

CHAT, RESPONSES, MESSAGES, OLLAMA = "/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"
UNKNOWN = "acme/harbour-9b"  # no table knows it: its provider's refusal teaches its window
LEARNED = 6_000
UNLOADED = "mistral:7b"  # the proxy learns the window that it is loaded with from a refusal
WINDOWS = {
    **{"gpt-4": 8_192, "gpt-4o": 128_000, "gpt-4o-mini": 128_000, "claude-sonnet-4-5": 200_000},
    **{UNKNOWN: LEARNED, UNLOADED: 4_096},
}
DOWN = "spare"  # the upstream that nobody listens at, and its models
UPSTREAMS = """[[upstream]]
name = "{name}"
url = "http://127.0.0.1:{port}/v1"
models = ["spare-*"]
"""
TEAM = "x-team"  # the header of a gateway that names callers
CALLERS = """[[budget]]
name = "small"
per = "24h"
tokens = 20000

[[caller]]
name = "team-a"
match = { headers = ["team-a"] }
window = 3000
budget = "small"

[[caller]]
name = "team-b"
match = { headers = ["team-b"] }
"""
FACT = "Crane 7 on the north quay lifts 38 tonnes at most since its brake was repaired."
QUESTION = "How many tonnes may crane 7 on the north quay lift?"
Messages = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Scene:
    """A request of the day. `result` is what the proxy is expected to make of it; `smaller`: the window that the
    provider has, other than it tells; `status`: of the answer."""

    name: str
    path: str
    body: Mapping[str, Any] | None
    result: str
    status: int = 200
    window: int = 0
    smaller: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)

    def sent(self) -> tuple[str, str, bytes | None, dict[str, str]]:
        """Method, path, body and headers."""
        headers = {"authorization": "Bearer sk-day", "anthropic-version": "2023-06-01", **self.headers}
        headers |= {"x-plimsoll-window": str(self.window)} if self.window else {}
        headers |= {"x-sim-window": str(self.smaller)} if self.smaller else {}
        if self.body is None:
            return "GET", self.path, None, headers
        return "POST", self.path, json.dumps(self.body).encode(), {**headers, "content-type": "application/json"}


def log(lines: int) -> str:
    """What a tool returned: a log with the fact in its middle."""
    said = [f"{i:03d} berth {i % 9}: line checked, ledger signed, nothing else to report" for i in range(lines)]
    return "\n".join([*said[: lines // 2], FACT, *said[lines // 2 :]])


def chat_agent(runs: int, lines: int) -> Messages:
    """An agent's run as chat messages: calls and long results."""
    told: Messages = [{"role": "system", "content": "You read logs."}, {"role": "user", "content": QUESTION}]
    for i in range(runs):
        call = {"id": f"call_{i}", "type": "function", "function": {"name": "read_log", "arguments": f'{{"day": {i}}}'}}
        told.append({"role": "assistant", "content": None, "tool_calls": [call]})
        told.append({"role": "tool", "tool_call_id": f"call_{i}", "content": log(lines)})
    return told


def responses_agent(runs: int, lines: int) -> Messages:
    """The same run as items of Responses."""
    told: Messages = [{"role": "user", "content": QUESTION}]
    for i in range(runs):
        call = {"type": "function_call", "call_id": f"call_{i}", "name": "read_log", "arguments": f'{{"day": {i}}}'}
        told += [call, {"type": "function_call_output", "call_id": f"call_{i}", "output": log(lines)}]
    return told


def messages_agent(runs: int, lines: int) -> Messages:
    """The same run as messages of Anthropic's API."""
    told: Messages = [{"role": "user", "content": QUESTION}]
    for i in range(runs):
        call = {"type": "tool_use", "id": f"toolu_{i}", "name": "read_log", "input": {"day": i}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": log(lines)}
        told += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    return told


def ollama_agent(runs: int, lines: int) -> Messages:
    """The same run as messages of Ollama's API."""
    told: Messages = [{"role": "user", "content": QUESTION}]
    for i in range(runs):
        call = {"function": {"name": "read_log", "arguments": {"day": i}}}
        told.append({"role": "assistant", "content": "", "tool_calls": [call]})
        told.append({"role": "tool", "tool_name": "read_log", "content": log(lines)})
    return told


def plain(turns: int) -> Messages:
    """A conversation without a system message."""
    return talk(turns)[1:]


SCHEMA = {"type": "object", "properties": {"day": {"type": "integer"}}, "required": ["day"]}
CHAT_TOOLS = [{"type": "function", "function": {"name": "read_log", "description": "Reads.", "parameters": SCHEMA}}]
RESPONSES_TOOLS = [{"type": "function", "name": "read_log", "description": "Reads.", "parameters": SCHEMA}]
MESSAGES_TOOLS = [{"name": "read_log", "description": "Reads.", "input_schema": SCHEMA}]
MANY_TOOLS = [{"type": "function", "function": {"name": f"that_does_whatever_it_is_for_{i}"}} for i in range(900)]


def chat(messages: Sequence[Any], model: str = "gpt-4", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": list(messages), **fields}


def claude(messages: Messages, **fields: Any) -> dict[str, Any]:
    return {"model": "claude-sonnet-4-5", "max_tokens": 500, "messages": messages, **fields}


def responses(items: Messages, model: str = "gpt-4o", **fields: Any) -> dict[str, Any]:
    return {"model": model, "input": items, **fields}


def llama(messages: Messages, context: int = 4096, **fields: Any) -> dict[str, Any]:
    return {"model": "llama3.2:3b", "messages": messages, "stream": False, "options": {"num_ctx": context}, **fields}


SMALL = (
    *(Scene("a short chat", CHAT, chat(talk(4), "gpt-4o-mini"), "passed") for _ in range(20)),
    *(Scene("a short chat of gpt-4o", CHAT, chat(talk(6), "gpt-4o"), "passed") for _ in range(50)),
    *(Scene("a short message", MESSAGES, claude(plain(4)), "passed") for _ in range(70)),
    *(Scene("a short response", RESPONSES, responses(plain(4)), "passed") for _ in range(20)),
    *(Scene("a short talk at home", OLLAMA, llama(plain(4)), "passed") for _ in range(50)),
    *(Scene("a short chat of an unknown model", CHAT, chat(talk(4), UNKNOWN), "passed") for _ in range(20)),
    *(Scene("a chat near its line", CHAT, chat(talk(70 + i)), "passed") for i in range(24)),
)
CUT = (
    Scene("a chat that was too long", CHAT, BODY, "fitted"),
    Scene("an agent's chat", CHAT, chat(chat_agent(4, 120), tools=CHAT_TOOLS), "fitted"),
    Scene(
        "an agent's responses",
        RESPONSES,
        responses(responses_agent(4, 160), tools=RESPONSES_TOOLS),
        "fitted",
        200,
        9_000,
    ),
    Scene("an agent's messages", MESSAGES, claude(messages_agent(4, 160), tools=MESSAGES_TOOLS), "fitted", 200, 9_000),
    Scene("an agent's talk at home", OLLAMA, llama(ollama_agent(3, 80), tools=CHAT_TOOLS), "fitted"),
    Scene("a long message", MESSAGES, claude(plain(120)), "fitted", 200, 6_000),
    Scene("a long response", RESPONSES, responses(plain(120)), "fitted", 200, 6_000),
    Scene("a long talk at home", OLLAMA, llama(plain(100)), "fitted"),
)
HEALED = (
    Scene("a refused chat", CHAT, chat(talk(160), UNKNOWN), "healed"),
    Scene("a refused chat of gpt-4o", CHAT, chat(talk(100), "gpt-4o"), "healed", smaller=4_500),
    Scene("a refused response", RESPONSES, responses(plain(100), "gpt-4o-mini"), "healed", smaller=4_500),
    Scene("a refused message", MESSAGES, claude(plain(100)), "healed", smaller=4_500),
    Scene("a refused talk at home", OLLAMA, {"model": UNLOADED, "messages": plain(110), "stream": False}, "healed"),
)
REST = (
    Scene("tools that fill the window", CHAT, chat(talk(2), tools=MANY_TOOLS), "unfit", 400),
    *(
        Scene("a model of the upstream that is down", CHAT, chat(talk(4), "spare-7b"), "upstream_error", 502)
        for _ in range(3)
    ),
    *(Scene("a file", "/v1/files", None, "passed", 404) for _ in range(5)),
    *(Scene("speech", "/v1/audio/speech", {"model": "tts-1", "input": "Hello"}, "passed", 404) for _ in range(2)),
    Scene("a body without messages", CHAT, {"model": "gpt-4", "messages": 7}, "not_understood", 400),
    Scene("an overlong chat that is only observed", CHAT, BODY, "passed", 400, headers={"x-plimsoll-mode": "observe"}),
)
LATE = tuple(
    Scene(
        "a short talk with another model", OLLAMA, {"model": UNLOADED, "messages": plain(2), "stream": False}, "passed"
    )
    for _ in range(24)
)
ASKED = {60: "What did the pilot say of the buoy?", 76: FACT[:6] + " lifts how much?", 92: "And the pilot's buoy?"}
SAID = {4: "The pilot says that the green buoy has drifted west.", 12: FACT, 44: "The pilot likes tea at the buoy."}


def a_chat(turns: int) -> Messages:
    """A conversation of team-a up to its question after so many turns."""
    found: Messages = [{"role": "user", "content": "We keep the log of the north quay."}]
    for i in range(turns):
        said = SAID.get(i) or ASKED.get(i) or f"Entry {i}: {' '.join(f'w{i}x{k}' for k in range(12))}."
        found.append({"role": "user" if i % 2 == 0 else "assistant", "content": said})
    return found


TURNS = tuple(  # of one conversation, which outgrows the window of its caller's rule
    Scene(f"a chat of team-a, up to {turn}", CHAT, chat(a_chat(turn + 1)), "fitted", headers={TEAM: "team-a"})
    for turn in ASKED
)
TEAMS = (
    *TURNS,
    *(Scene("a short chat of team-b", CHAT, chat(talk(6), "gpt-4o"), "passed", headers={TEAM: "team-b"}),) * 6,
)
DAY = (*TEAMS, *SMALL, *CUT, *HEALED, *REST, *LATE)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the day takes place: the proxy's port for clients, and the page's."""

    port: int
    admin: int

    @property
    def page(self) -> str:
        """The page's origin."""
        return f"http://{LOCALHOST}:{self.admin}"

    def send(self, scene: Scene) -> int:
        """Sends the request of a scene; returns the status of the answer."""
        return self._ask(self.port, *scene.sent())[0]

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str]) -> int:
        """Sends a body of a test's own; returns the status of the answer."""
        return self._ask(self.port, "POST", path, json.dumps(body).encode(), headers)[0]

    def play(self, scenes: Sequence[Scene] = DAY) -> None:
        """Sends them all. Raises `AssertionError` where an answer has another status than expected."""
        for scene in scenes:
            status = self.send(scene)
            assert status == scene.status, f"{scene.name}: {status}"

    def read(self, path: str) -> Any:
        """JSON from the page's API."""
        return json.loads(self._ask(self.admin, "GET", path)[1])

    def settled(self, requests: int, seconds: float = 60.0) -> None:
        """Waits until the page's figures have so many requests. Raises `TimeoutError`."""
        deadline = time.monotonic() + seconds
        while self.read("/api/overview")["requests"]["total"] < requests:
            if time.monotonic() > deadline:
                raise TimeoutError
            time.sleep(0.1)

    def entry(self, scene: Scene) -> dict[str, Any]:
        """What the page's API tells of the newest request of a scene. Raises `LookupError`."""
        body = scene.body or {}
        wanted = scene.path, scene.result, body.get("model", ""), len(body.get("messages") or body.get("input") or ())
        for entry in self.read("/api/requests?limit=1000")["requests"]:
            if (entry["path"], entry["result"], entry["model"], entry["messages"]) == wanted:
                found: dict[str, Any] = self.read(f"/api/requests/{entry['id']}")
                return found
        raise LookupError(scene.name)

    @staticmethod
    def _ask(
        port: int, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(LOCALHOST, port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@dataclass(frozen=True, slots=True)
class Question:
    """A question of the newcomer's test. `view`: where the page answers; `answer`: words that stand there."""

    text: Callable[[Place], str]
    view: Callable[[Place], str]
    answer: Callable[[Place], Sequence[str]]


def fixed(text: str) -> Callable[[Place], str]:
    """The same text wherever the day takes place."""
    return lambda place: text


def of(scene: Scene) -> Callable[[Place], str]:
    """The view of the request of a scene."""
    return lambda place: f"#/requests/{place.entry(scene)['id']}"


def asked(text: str, scene: Scene) -> Callable[[Place], str]:
    """A question about the request of a scene, by its number."""
    return lambda place: text.format(place.entry(scene)["id"].split("-")[-1])


def overview(key: str) -> Callable[[Place], Sequence[str]]:
    """A figure of the requests in the overview."""
    return lambda place: (f"{place.read('/api/overview')['requests'][key]:,}",)


def lost(place: Place) -> Sequence[str]:
    """How many messages of the overlong chat were dropped, and why."""
    rows = place.entry(CUT[0])["rows"]
    dropped = [row for row in rows if row["state"] == "dropped"]
    return f"{len(dropped)} dropped", dropped[0]["why"].partition(" ")[0], dropped[0]["step"]


def learned(place: Place) -> Sequence[str]:
    """The window of the unknown model."""
    return (f"the window is {LEARNED:,} tokens", "until")


def error(place: Place) -> Sequence[str]:
    """Our count of the overlong chat, and what the provider reported."""
    entry = place.entry(CUT[0])
    return f"{entry['prompt_sent']:,} tokens", f"{entry['usage']['prompt']:,} tokens"


def saved(place: Place) -> Sequence[str]:
    """The share of the tokens that clients sent."""
    tokens = place.read("/api/overview")["tokens"]
    return (f"{100 * tokens['saved'] / tokens['prompt']:.0f} %",)


def most(place: Place) -> Sequence[str]:
    """Who sent the most tokens in the last five minutes, and how many."""
    first = place.read("/api/overview")["periods"]["5m"]["callers"][0]
    return {"other": "without a name"}.get(first["caller"], first["caller"]), f"{first['requests']:,}"


def talk_of(place: Place) -> str:
    """The view of team-a's conversation."""
    return f"#/conversations/{place.entry(TURNS[0])['conversation']}"


def fates(place: Place) -> Sequence[str]:
    """How many messages are gone, why, and which came back."""
    found = place.read(f"/api/{talk_of(place)[2:]}")
    back = next(one["index"] for one in found["messages"] if one["changes"] and one["changes"][-1]["back"])
    return f"Not sent now: {found['gone']} messages", "and no room, since #", f"Came back: #{back}"


def limit(place: Place) -> Sequence[str]:
    """The window of team-a, its budget, and what it spent."""
    cost = next(
        one["cost"] for one in place.read("/api/overview")["periods"]["1h"]["callers"] if one["caller"] == "team-a"
    )
    return "window of at most 3,000 tokens", "of 20,000 tokens used", f"${cost:.2f}"


def pod(place: Place) -> Sequence[str]:
    """Pod, mode and ladder."""
    found = place.read("/api/overview")
    return found["pod"], found["holds"]["mode"], found["holds"]["ladder"]


QUESTIONS = (
    Question(fixed("Which model is nearest its line?"), fixed("#/"), lambda place: ("gpt-4 is nearest its line",)),
    Question(fixed("How many requests were made smaller so that they fit?"), fixed("#/"), overview("cut")),
    Question(
        fixed("How many requests did a provider refuse that were answered after all?"), fixed("#/"), overview("healed")
    ),
    Question(fixed("What share of the tokens was saved?"), fixed("#/"), saved),
    Question(asked("What was cut from request {} of gpt-4, which was too long, and why?", CUT[0]), of(CUT[0]), lost),
    Question(fixed("Which upstream is down?"), fixed("#/"), lambda place: (f"Upstream {DOWN} is down",)),
    Question(
        fixed("Which requests pass through without being measured?"),
        fixed("#/system"),
        lambda place: ("files", "audio"),
    ),
    Question(
        asked("Request {} could not be made to fit. What takes the room?", REST[0]),
        of(REST[0]),
        lambda place: ("tools",),
    ),
    Question(fixed(f"What was learned about {UNKNOWN}, and until when does it hold?"), fixed("#/models"), learned),
    Question(asked("What did Plimsoll count for request {}, and what did the provider?", CUT[0]), of(CUT[0]), error),
    Question(fixed("Who used most in the last five minutes?"), fixed("#/?period=5m"), most),
    Question(
        fixed("Which messages did the conversation of team-a lose, since when, and why? What came back?"),
        talk_of,
        fates,
    ),
    Question(
        asked("How can what was cut from request {} be kept?", TURNS[-1]),
        of(TURNS[-1]),
        lambda place: ("x-plimsoll-pin", "callers.toml", "copy as pins"),
    ),
    Question(fixed("What is the limit of team-a, and what did it cost?"), fixed("#/"), limit),
    Question(fixed("Which machine is this, and what does it do to requests?"), fixed("#/"), pod),
)


@contextmanager
def place(workers: int = 1, **environment: str) -> Iterator[Place]:
    """A simulated provider, a proxy with a page before it, and an upstream at which nobody listens."""
    with ExitStack() as stack:
        provider = stack.enter_context(
            listening(simulator(SimulatorConfig(window=32_000, windows=WINDOWS, window_field="")))
        )
        rules = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="plimsoll-day-")))
        port, admin = reserved_port(), reserved_port()
        nobody = reserved_port()
        (rules / "upstreams.toml").write_text(UPSTREAMS.format(name=DOWN, port=nobody), "utf-8")
        (rules / "callers.toml").write_text(CALLERS, "utf-8")
        given = {
            "PLIMSOLL_UPSTREAM": f"http://{LOCALHOST}:{provider}/v1",
            "PLIMSOLL_ADMIN_PORT": str(admin),
            "PLIMSOLL_WORKERS": str(workers),
            "PLIMSOLL_RULES": str(rules),
            "PLIMSOLL_CONNECT_TIMEOUT": "2",
            "PLIMSOLL_CALLER_HEADER": TEAM,
            "PLIMSOLL_TRUSTED_PROXIES": "127.0.0.1",
        }
        stack.enter_context(started("serve", port, **{**given, **environment}))
        wait_for(admin, "/readyz")
        yield Place(port, admin)


def main(arguments: Sequence[str]) -> int:
    """Plays the day, prints what was asked for, and goes on until Ctrl-C."""
    with place(PLIMSOLL_PAGE_CONTENT="true") as here:
        here.play()
        here.settled(len(DAY))
        print(f"The page: {here.page}/   (Ctrl-C to stop)", flush=True)
        for i, question in enumerate(QUESTIONS, 1):
            told = f"   {'; '.join(question.answer(here))}" if "--answers" in arguments else ""
            print(f"{i:2}. {question.text(here)}{told}", flush=True)
        try:
            go_on(here)
        except KeyboardInterrupt:
            return 0


def go_on(here: Place) -> NoReturn:
    """Sends a short request every two seconds, so that the answers stay what they are but for the totals."""
    while True:
        for scene in SMALL[::7]:
            time.sleep(2)
            here.send(scene)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

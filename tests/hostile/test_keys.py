"""Attacks on what hides keys: forty spellings in recordings, the log and the page; dictionaries; folders for all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proxy.observe.recording.recording_files import lines
from tests import warm
from tests.hostile.harness import HELLO, Running, running, upstream
from tests.recorder import Recorder
from tests.wire.key_spellings import CANARY, OWN, bodies_with_keys, harmless_bodies, is_told


@pytest.fixture(scope="module")
def up() -> Iterator[Recorder]:
    with upstream() as made:
        yield made


def read(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for path in sorted(folder.iterdir()) for line in lines(path)]
    return [line for line in found if line["api"] == "chat"]


def said(text: str) -> dict[str, Any]:
    return {**HELLO, "messages": [{"role": "user", "content": text}]}


@pytest.mark.parametrize("content", ["bodies", "redacted"])
@pytest.mark.parametrize("workers", [1, 2])
def test_S3_S4_no_spelling_of_a_key_is_in_a_recording_or_the_log(
    tmp_path: Path, up: Recorder, content: str, workers: int
) -> None:
    folder, bodies = tmp_path / "records", bodies_with_keys()
    with running(up.url, workers=workers, PLIMSOLL_RECORD=str(folder), PLIMSOLL_RECORD_CONTENT=content) as proxy:
        for body in bodies.values():
            proxy.ask(body, key=OWN)
            proxy.ask({**HELLO, "model": "sk-proj-0123456789abcdef" + CANARY}, key=OWN)
        assert proxy.stop(60) == 0
    found = read(folder)
    assert len(found) == 2 * len(bodies)
    assert not [line for line in found if is_told(json.dumps(line, ensure_ascii=False))]
    assert not [line for line in proxy.lines if is_told(line)]


def test_S3_what_only_looks_like_a_key_is_recorded_as_it_came(tmp_path: Path, up: Recorder) -> None:
    folder, bodies = tmp_path / "records", harmless_bodies()
    with running(up.url, PLIMSOLL_RECORD=str(folder), PLIMSOLL_RECORD_CONTENT="bodies") as proxy:
        for body in bodies.values():
            proxy.ask(body, key=OWN)
        assert proxy.stop(60) == 0
    assert [line["request"] for line in read(folder)] == [json.loads(body) for body in bodies.values()]


def texts_of(proxy: Running) -> str:
    """All that the page has of the last requests."""
    found = proxy.ask(path="/api/requests?limit=1000", admin=True, key=None).json["requests"]
    shown = [json.dumps(found)]
    for one in found:
        for path in (f"/api/requests/{one['id']}", f"/api/requests/{one['id']}/texts"):
            shown.append(proxy.ask(path=path, admin=True, key=None).body.decode())
    return "".join(shown)


def test_S3_no_spelling_of_a_key_is_on_the_page(up: Recorder) -> None:
    """Of texts of messages, of calls, and of what a cut leaves of them."""
    long = [said("")["messages"][0] | {"content": f"harbour {n} " * 400} for n in range(30)]
    with running(up.url, admin=True, PLIMSOLL_PAGE_CONTENT="1") as proxy:
        for body in bodies_with_keys().values():
            text = body.decode()
            call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}
            result = {"role": "tool", "tool_call_id": "c", "content": f"{text}\n{text}"}
            rest = [{"role": "assistant", "content": None, "tool_calls": [call]}, result]
            proxy.ask({**HELLO, "messages": [{"role": "user", "content": text}, *rest]}, key=OWN)
        proxy.ask({"model": "gpt-4", "messages": [*long, *rest, long[0]]}, key=OWN)
        proxy.ask({**HELLO, "model": "sk-proj-0123456789abcdef" + CANARY}, key=OWN)
        shown = texts_of(proxy)
    assert "gpt-4" in shown and "max_tokens" in shown and not is_told(shown)


def test_S6_a_dictionary_of_one_caller_reads_nothing_of_another(tmp_path: Path, up: Recorder) -> None:
    folder, words = tmp_path / "records", "Okafor 4711 lives at the harbour with a pilot and a lantern"
    with running(
        up.url, PLIMSOLL_RECORD=str(folder), PLIMSOLL_RECORD_CONTENT="redacted", PLIMSOLL_SECRET="s" * 32
    ) as proxy:
        for key in ("sk-one-4711-0001", "sk-two-4711-0002", "sk-one-4711-0001"):
            proxy.ask(said(words), key=key)
        assert proxy.stop(60) == 0
    one, two, again = (line["request"]["messages"][0]["content"] for line in read(folder))
    assert one == again != two
    assert len(set(one.split()) & set(two.split())) <= 1
    assert "4711" not in one + two


@pytest.mark.parametrize("content", ["meta", "redacted"])
def test_S6_a_model_that_no_table_knows_is_recorded_as_a_hash(tmp_path: Path, up: Recorder, content: str) -> None:
    folder, models = (
        tmp_path / "records",
        ("okafor@example.com", "okafor@example.com/gpt-4o", "my-okafor-model", "text-embedding-3-okafor"),
    )
    with running(up.url, PLIMSOLL_RECORD=str(folder), PLIMSOLL_RECORD_CONTENT=content) as proxy:
        for model in ("gpt-4o", *models):
            proxy.ask({**HELLO, "model": model}, key="sk-one-4711-0001")
        assert proxy.stop(60) == 0
    found = read(folder)
    assert found[0]["model"] == "gpt-4o" and "okafor" not in json.dumps(found)
    assert len({line["model"] for line in found if line["model"].startswith("model-")}) == 3


@pytest.mark.parametrize("kind", ["file", "dangling", "below a file", "no place"])
def test_S16_a_folder_that_cannot_be_is_refused_at_the_start(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    folder = "/proc/plimsoll" if kind == "no place" else str(tmp_path / kind.replace("below a file", "file/folder"))
    for command in ("serve", "check"):
        environment = {"PATH": "/usr/bin:/bin", "PLIMSOLL_RECORD": folder, "PLIMSOLL_PORT": "0"}
        code, told = warm.ran([command], environment)
        assert code != 0 and f"PLIMSOLL_RECORD: {folder} " in told


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_S16_a_folder_that_others_may_read_is_told_at_the_start(tmp_path: Path, up: Recorder, mode: int) -> None:
    folder = tmp_path / "records"
    folder.mkdir()
    folder.chmod(mode)
    with running(up.url, PLIMSOLL_RECORD=str(folder)) as proxy:
        assert proxy.log(f"other users may read or write in {folder} (mode {mode:04o})")

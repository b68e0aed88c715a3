"""Parts of a message that are no text."""

from typing import Any

import pytest

from proxy.tokens.content_parts import Cost, cost_of_part, text_of_part
from proxy.tokens.images import Tiles

IMAGES = Tiles(85, 170)
PNG = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"  # the header of one by one pixel


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ({"type": "text", "text": "a"}, "a"),
        ({"type": "refusal", "refusal": "no"}, "no"),
        ("a", "a"),
        ({"type": "image_url", "image_url": {"url": PNG}}, None),
        ({"type": "text", "text": 5}, None),
        (5, None),
    ],
)
def test_only_text_and_refusals_are_text(part: Any, text: str | None) -> None:
    assert text_of_part(part) == text


@pytest.mark.parametrize(
    ("part", "cost"),
    [
        ({"type": "image_url", "image_url": {"url": PNG}}, Cost(255, True)),
        ({"type": "image_url", "image_url": PNG, "detail": "low"}, Cost(85, True)),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, Cost(765, False)),
        ({"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}}, Cost(85, True)),
        ({"type": "image_url", "image_url": None}, Cost(765, False)),
        (None, Cost(0, True)),
    ],
)
def test_an_image_costs_by_its_size_and_detail(part: Any, cost: Cost) -> None:
    assert cost_of_part(part, IMAGES, 10) == cost


def test_sound_costs_by_its_length_and_never_for_sure() -> None:
    ten_seconds = {"type": "input_audio", "input_audio": {"data": "A" * 640_000, "format": "wav"}}
    assert cost_of_part(ten_seconds, IMAGES, 10) == Cost(105)
    assert cost_of_part(ten_seconds, IMAGES, 32).tokens > 300
    assert cost_of_part({"input_audio": None}, IMAGES, 10).tokens < 10


def test_a_file_costs_by_its_size_within_reason() -> None:
    def file(size: int) -> Cost:
        return cost_of_part({"type": "file", "file": {"file_data": "A" * size}}, IMAGES, 10)

    assert file(1_000) == Cost(1_100) == cost_of_part({"type": "file", "file": {"file_id": "f"}}, IMAGES, 10)
    assert file(1_000).tokens < file(200_000).tokens < file(10_000_000).tokens == file(90_000_000).tokens


def test_a_part_of_an_unknown_kind_costs_its_bytes_unless_it_holds_data() -> None:
    assert cost_of_part({"type": "thought", "thought": "hm"}, IMAGES, 10) == Cost(
        len('{"type":"thought","thought":"hm"}')
    )
    assert cost_of_part({"type": "video", "video": "A" * 900_000}, IMAGES, 10).tokens < 40_000

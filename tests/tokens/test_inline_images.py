"""Images inside texts: for whom they are images, and what they cost."""

from __future__ import annotations

import json
import random
import struct
from base64 import b64encode

import pytest

from proxy.model.oversized_json import OUTSIZE
from proxy.tokens.images import Tiles
from proxy.tokens.inline_images import with_inline_images
from proxy.tokens.meter import prompt_tokens

IMAGES = Tiles(256, 256)


def picture(width: int, height: int, size: int = 3_000) -> str:
    """A PNG of this size in pixels and in bytes as HTML."""
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height)
    data = b64encode(head + random.Random(7).randbytes(size)).decode()
    return f'<img src="data:image/png;base64,{data}" />'


def counted(model: str, text: str) -> int:
    message = json.dumps({"role": "user", "content": text}).encode()
    return prompt_tokens(model, {}, [[("user", message)]])


def test_a_data_uri_is_an_image_of_the_size_that_its_bytes_say_and_the_rest_is_text() -> None:
    text = f"What is this? {picture(500, 400)} And this? {picture(512, 1000)}"
    rest = 'What is this? <img src="" /> And this? <img src="" />'
    assert with_inline_images(len, IMAGES, 1.0, text) == len(rest) + (256 + 256) + (256 + 2 * 256)
    assert with_inline_images(len, IMAGES, 0.5, text) == len(rest) + (256 + 256 + 256 + 2 * 256) // 2


@pytest.mark.parametrize("text", ["", "data:image", "data:image/png;base64", "data:text/plain;base64,AAAA", "é" * 99])
def test_what_is_no_data_uri_of_an_image_is_text(text: str) -> None:
    assert with_inline_images(len, IMAGES, 1.0, text) == len(text)


def test_an_image_whose_bytes_say_no_size_costs_as_a_usual_one() -> None:
    assert with_inline_images(len, IMAGES, 1.0, "data:image/tiff;base64,AAAA") == IMAGES.cost(None, False)


@pytest.mark.parametrize("size", [3_000, 1_000_000, OUTSIZE])
def test_W14_an_image_in_a_text_is_counted_as_one_by_models_whose_servers_read_it_so(size: int) -> None:
    text = picture(1_000, 700, size)
    assert counted("nvidia/nemotron-parse", text) < 40
    assert 1_000 < counted("nvidia/llama-3.1-nemotron-nano-vl-8b-v1", text) < 1_400


@pytest.mark.parametrize("model", ["gpt-4o", "nvidia/nemotron-3-nano", "qwen3-vl-8b", "acme/harbour-9b"])
def test_W14_for_all_others_it_is_text(model: str) -> None:
    assert counted(model, picture(1_000, 700, 30_000)) > 20_000

"""What images of a size cost."""

import pytest

from proxy.model.image_size import Size
from proxy.tokens.images import Crops, Flat, Images, Patches, Tiles


@pytest.mark.parametrize(
    ("images", "size", "tokens"),
    [
        (Tiles(85, 170), (1, 1), 255),
        (Tiles(85, 170), (512, 512), 255),
        (Tiles(85, 170), (1024, 1024), 765),  # the figures of OpenAI's guide
        (Tiles(85, 170), (2048, 4096), 1105),
        (Tiles(85, 170), (10_000, 10), 765),
        (Tiles(2833, 5667), (16, 16), 8500),
        (Patches(32, 1536), (1024, 1024), 1025),
        (Patches(32, 1536), (1800, 2400), 1453),  # the guide's 1452, and what surrounds them
        (Patches(32, 1536, 1.5), (16, 16), 3),
        (Patches(32, 1536), (1_000_000, 1), 1537),
        (Patches(32, 2500, 1.2), (1245, 1395), 2061),  # gpt-5.5 was recorded to take 2,060
        (Patches(32, 2500, 1.2), (9000, 9000), 3001),
        (Patches(28, 1568, extra=3), (800, 440), 467),
        (Patches(32, 16384, extra=0, nearest=True), (330, 291), 90),
        (Patches(32, 16384, extra=0, nearest=True), (5, 5), 1),
        (Patches(28, 2600, min_tokens=256), (28, 28), 256),
        (Crops(), (384, 384), 258),
        (Crops(), (960, 540), 7 * 258),
        (Flat(1089), (5000, 5000), 1089),
    ],
)
def test_an_image_of_known_size_costs_what_was_recorded(images: Images, size: Size, tokens: int) -> None:
    assert images.cost(size, low=False) == tokens
    assert images.certain(size, low=False)


@pytest.mark.parametrize(
    ("images", "tokens"), [(Tiles(85, 170), 765), (Patches(32, 1536, 1.62), 1660), (Crops(), 1290), (Flat(9), 9)]
)
def test_an_image_of_unknown_size_is_taken_for_one_of_a_thousand_by_a_thousand(images: Images, tokens: int) -> None:
    assert images.cost(None, low=False) == tokens
    assert images.certain(None, low=False) is isinstance(images, Flat)


def test_low_detail_costs_the_base_whatever_the_size() -> None:
    assert Tiles(85, 170).cost(None, low=True) == Tiles(85, 170).cost((9000, 9000), low=True) == 85
    assert Tiles(85, 170).certain(None, low=True)


def test_different_costs_have_different_names() -> None:
    rows: list[Images] = [
        *(Tiles(85, 170), Tiles(70, 140), Crops(), Flat(1089), Patches(32, 1536), Patches(28, 1536)),
        *(Patches(32, 1536, 1.5), Patches(32, 1536, extra=3), Patches(32, 1568), Patches(32, 1536, min_tokens=256)),
    ]
    assert len({row.name for row in rows}) == len(rows)

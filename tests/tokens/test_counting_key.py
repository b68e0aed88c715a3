"""The terms that models count on, and the names of what is remembered."""

import pytest

from proxy.model.names import LONGEST_NAME
from proxy.tokens.counting_key import counting_key_for
from proxy.tokens.encodings import encoding


def test_models_that_count_alike_share_their_terms_name_and_seed() -> None:
    first, other = counting_key_for("gpt-4o", 0, False), counting_key_for("openai/gpt-4.1-mini", 0, False)
    assert (first.id, first.seed) == (other.id, other.seed)
    assert first.id == b"o200k_base|classic|0"
    assert counting_key_for("gpt-4", 0, False).seed != first.seed


def test_where_there_may_be_images_their_price_is_part_of_the_name() -> None:
    first, other = counting_key_for("gpt-4o", 0, True), counting_key_for("gpt-4.1-mini", 0, True)
    assert first.id != other.id and first.seed != other.seed


def test_a_schema_makes_assistant_messages_dearer_and_so_has_terms_of_its_own() -> None:
    assistant_text = [counting_key_for("gpt-4o", schema, False).rules.assistant_text for schema in (0, 1, 2)]
    assert assistant_text == [0, 3, 4]
    assert len({counting_key_for("gpt-4o", schema, False).id for schema in (0, 1, 2)}) == 3


def test_images_weigh_what_the_models_own_tokens_are_worth() -> None:
    counting = counting_key_for("claude-sonnet-4-5", 0, True)
    assert counting.family.ratio is not None and counting.rules.unit * counting.family.ratio == 1


def test_names_that_are_too_long_to_be_a_models_count_as_nobodys() -> None:
    long = counting_key_for("gpt-4o-".ljust(LONGEST_NAME + 1, "x"), 0, False)
    assert long is counting_key_for("claude" * 10_000, 0, False)
    assert (
        long.family.name == "other"
        and counting_key_for("gpt-4o-".ljust(LONGEST_NAME, "x"), 0, False).family.name == "gpt-4o"
    )


def test_the_terms_count_with_their_own_encoding() -> None:
    text = "お誕生日おめでとう"
    assert counting_key_for("gpt-4o", 0, False).rules.count(text) == 8
    assert counting_key_for("gpt-4", 0, False).rules.count(text) == 9


DENSE, PROSE, LONG = (
    "xq zk vj wq " * 100,
    "The keeper wrote down each ship. " * 40,
    " international responsibilities" * 60,
)
OLDER = ("claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-4-6", "claude-sonnet-4-0", "claude-3-haiku-20240307")


@pytest.mark.parametrize("model", OLDER)
def test_W16_short_tokens_cost_a_claude_up_to_4_6_more_than_long_ones(model: str) -> None:
    """Recorded on texts of 1.5, 4.6 and 8 bytes for each token of the encoding: 1.25, 1.13 and 1.00 tokens each."""
    counting = counting_key_for(model, 0, False, api="messages")
    for text, ratio in ((DENSE, 1.24), (PROSE, 1.11), (LONG, 1.0)):
        tokens = encoding("o200k_base").count(text)
        assert counting.family.factor * counting.rules.count(text) / tokens == pytest.approx(ratio, abs=0.02)


def test_W16_a_text_costs_what_its_pieces_do_and_never_nothing() -> None:
    count = counting_key_for(OLDER[0], 0, False, api="messages").rules.count
    pieces = PROSE.splitlines(keepends=True)
    assert count(PROSE) == pytest.approx(sum(map(count, pieces)), abs=len(pieces)) and count("") == 0
    assert count(" " * 100_000) > 0.8 * encoding("o200k_base").count(" " * 100_000) and count("\ud800") > 0


def test_W16_counts_by_density_are_remembered_apart() -> None:
    ids = {counting_key_for(model, 0, False, api="messages").id for model in ("claude-opus-4-8", "claude-opus-4-6")}
    assert len(ids) == 2 and not counting_key_for("gpt-4o", 0, False).family.density

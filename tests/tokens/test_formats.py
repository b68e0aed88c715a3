"""Every API whose requests are fitted has a recipe."""

from proxy.apis import apis
from proxy.apis.openai_chat import API
from proxy.model.conversation import CHAT
from proxy.tokens.formats import FORMATS


def test_every_api_is_counted_under_its_own_name() -> None:
    assert {api.name for api in apis()} == set(FORMATS) and API.name == CHAT


def test_the_fields_that_may_be_long_are_among_those_that_the_overhead_depends_on() -> None:
    assert all({*body.tools, *body.schemas} <= {*body.keys} for body in FORMATS.values())

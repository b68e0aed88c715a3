"""Which requests have their edits of context made by us."""

from __future__ import annotations

import pytest

from proxy.apis.anthropic_messages import API
from proxy.apis.openai_chat import API as CHAT
from proxy.model.plan import Mode
from proxy.request.context_edits import ContextEditor
from proxy.request.stages import Received
from tests.request.planned import services

ASKING = b'{"context_management":{}}'


@pytest.mark.parametrize(
    ("lacking", "mode", "api", "plain", "ours"),
    [
        (True, Mode.FIT, API, ASKING, True),
        (True, Mode.STRICT, API, ASKING, True),
        (True, Mode.OBSERVE, API, ASKING, False),
        (False, Mode.FIT, API, ASKING, False),
        (True, Mode.FIT, CHAT, ASKING, False),
        (True, Mode.FIT, API, b'{"metadata":{}}', False),
    ],
)
def test_edits_are_made_where_they_are_asked_for_and_the_upstream_lacks_them(
    lacking: bool, mode: Mode, api: object, plain: bytes, ours: bool
) -> None:
    planner = services().gateway.default.planner
    editor = ContextEditor(planner.knowledge, planner.plans.pool, lacking)
    assert api in (API, CHAT)
    found = editor.edits_of(Received(API if api is API else CHAT, mode), plain)
    assert (found is not None) is ours and not planner.editor.lacking

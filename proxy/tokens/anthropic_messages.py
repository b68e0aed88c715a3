"""Counts requests of the Messages API: its blocks, its system prompt, tools, images and documents.

Anthropic's encodings are not public: texts are counted with the family's encoding, and all figures were fitted to
recorded usage. A cost that a request does not show (a file by id, a tool that Anthropic runs) is estimated upwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from proxy.model.conversation import Message
from proxy.model.image_size import size_of
from proxy.model.lenient_json import Json, compact, mapping, read, string
from proxy.tokens.content_parts import Cost, key_of, unshown
from proxy.tokens.messages import CountingRules
from proxy.tokens.recipes import SCHEMA_RATE

KEYS = ("tools", "tool_choice", "thinking", "output_format", "output_config", "context_management", "mcp_servers")
FORCED, BARRED = ("any", "tool"), "none"  # kinds of tool_choice: a call is required, none is allowed
THINKS = "enabled"  # the type of thinking that costs tokens
CITATIONS = 560  # tokens of the instructions for citations
PAGE_BYTES, PAGE_TOKENS, MAX_PAGES = 60_000, 1_650, 100  # of a PDF; a page is its text and an image of it
BASE64_RATIO = 4 / 3
DEEPEST = 8  # levels of blocks inside blocks; real ones have three
HIDDEN_RATE = 6  # characters of encrypted content for one token
# Tokens of tools that Anthropic defines, by the beginning of their type. The first that fits counts.
TOOLS: tuple[tuple[str, int], ...] = (
    ("web_search_", 2_200),
    ("web_fetch_", 1_020),
    ("code_execution_20250522", 920),
    ("code_execution_", 2_235),
    ("memory_", 1_560),
    ("advisor_", 1_105),
    ("computer_", 1_235),
    ("text_editor_", 700),
    ("bash_", 245),
    ("tool_search_", 710),
)
REFERENCE = 300  # of a deferred tool that a search found: its definition is read where the block stands
OTHER_TOOL = 600  # of a type that is not known
# What the client's own tools have: no type, or this one.
CUSTOM = (None, "custom")
SYSTEM, OF_ONE_TURN = "system", b'"next_user_message"'  # a role, and a value of `clear_at`
ALL = "all"  # what an edit of thinking keeps then, and Claude Code asks for: nothing is cleared


def costs(messages: Sequence[Message], rules: CountingRules) -> tuple[int, ...]:
    """Tokens of the encoding that each message adds to the prompt."""
    return tuple([_cost(message, rules) for message in messages])


def certain(message: Message, rules: CountingRules) -> bool:
    """Whether the cost of every part of a message is known, not assumed. A system message of one turn is not read after
    it."""
    if message.role == SYSTEM and OF_ONE_TURN in message.raw:
        return False
    return all(cost.certain for cost in _media(_blocks(_content(message)[0]), rules))


def assumed(message: Message, rules: CountingRules) -> tuple[Cost, ...]:
    """The costs of a message's blocks that its body does not show."""
    return unshown(_media(_blocks(_content(message)[0]), rules))


def fixed_costs(head: Mapping[str, bytes], system: str | None, rules: CountingRules) -> tuple[int, int, int, int]:
    """Tokens of the encoding besides the messages: base, tools, tool choice, response schema."""
    recipe = rules.recipe
    thinks = mapping(read(head.get("thinking", b"null"))).get("type") == THINKS
    tools = [tool for tool in _tools(head) if not tool.get("defer_loading")]  # read once a search has found them
    base = recipe.base + (recipe.thinking + (recipe.thinking_tools if tools else 0) if thinks else 0)
    own = [tool for tool in tools if tool.get("type") in CUSTOM]
    hosted = sum(_hosted(string(tool.get("type"))) for tool in tools if tool.get("type") not in CUSTOM)
    written = sum(recipe.tool + (recipe.tool_json or 1) * rules.count(compact(_shown(tool))) for tool in own)
    tokens = round((recipe.tools if own else 0) + written + rules.unit * hosted)
    return base, tokens, _choice(head, rules) if own else 0, _schema(head, rules)


def _choice(head: Mapping[str, bytes], rules: CountingRules) -> int:
    """What more the tools cost where a call is required, or forbidden."""
    choice, recipe = mapping(read(head.get("tool_choice", b"null"))).get("type"), rules.recipe
    other = recipe.forced_tools if choice in FORCED else recipe.barred_tools if choice == BARRED else 0
    return other - recipe.tools if other else 0


def fixed_as_text(head: Mapping[str, bytes], rules: CountingRules) -> tuple[int, int, int, int]:
    """The same for JSON that nests too deep to parse: every field counts as text."""
    tools, schema = (rules.count(head.get(key, b"").decode("utf-8", "replace")) for key in ("tools", "output_format"))
    return rules.recipe.base, rules.recipe.tools + tools, 0, schema


def is_certain(head: Mapping[str, bytes], rules: CountingRules) -> bool:
    """Whether the request contains all that it costs, and its model reads JSON at all: how a server writes this API's
    requests for OpenAI's models is unknown."""
    return bool(rules.recipe.tool_json) and shows_all(head)


def shows_all(head: Mapping[str, bytes]) -> bool:
    """Whether the request contains all that it costs: no tools that Anthropic runs, no edit of what it reads."""
    if head.get("mcp_servers", b"null") not in (b"null", b"[]"):
        return False
    if _clears(head.get("context_management", b"null")):
        return False
    return all(tool.get("type") in CUSTOM for tool in _tools(head))


def _clears(management: bytes) -> bool:
    """Whether the upstream reads less than it is sent: after an edit, except one that keeps everything."""
    edits = mapping(read(management)).get("edits")
    keeps = [mapping(edit).get("keep") for edit in edits] if isinstance(edits, list) else []
    return any(kept != ALL and mapping(kept).get("type") != ALL for kept in keeps)


def _tools(head: Mapping[str, bytes]) -> list[Mapping[str, Json]]:
    found = read(head.get("tools", b"null"))
    return [mapping(tool) for tool in found] if isinstance(found, list) else []


def _shown(tool: Mapping[str, Json]) -> dict[str, Json]:
    """What the model reads of a tool."""
    return {key: tool[key] for key in ("name", "description", "input_schema") if key in tool}


def _hosted(kind: str) -> int:
    """Tokens of a tool that Anthropic defines."""
    return next((tokens for start, tokens in TOOLS if kind.startswith(start)), OTHER_TOOL)


def _schema(head: Mapping[str, bytes], rules: CountingRules) -> int:
    config = mapping(read(head.get("output_config", b"null")))
    form = mapping(read(head.get("output_format", b"null"))) or mapping(config.get("format"))
    if "schema" not in form:
        return 0
    return schema_cost(form["schema"], rules)


def schema_cost(schema: Json, rules: CountingRules) -> int:
    """Tokens of the encoding of a response schema."""
    return round(rules.unit * (rules.recipe.schema + SCHEMA_RATE * rules.count(compact(schema))))


def _content(message: Message) -> tuple[Json, bool]:
    """The content of a message, and whether it is one of the list; of the top-level system prompt its value."""
    found = read(message.raw)
    return (found.get("content"), True) if isinstance(found, dict) else (found, False)


def _blocks(content: Json, levels: int = DEEPEST) -> list[Json]:
    """The blocks of a content, those inside results and documents included. Below the last level they are texts."""
    found: list[Json] = []
    for block in content if isinstance(content, list) else ():
        inner = mapping(block)
        if not levels:
            found.append({"text": compact(block)})
            continue
        found.append(block)
        found += _blocks(inner.get("content"), levels - 1)
        found += _blocks(mapping(inner.get("content")).get("tool_references"), levels - 1)
        found += _blocks(mapping(inner.get("source")).get("content"), levels - 1)
    return found


def _cost(message: Message, rules: CountingRules) -> int:
    content, framed = _content(message)
    blocks, recipe = _blocks(content), rules.recipe
    text = "".join([content] if isinstance(content, str) else _texts(blocks))
    calls = [block for block in blocks if mapping(block).get("type") == "tool_use"]
    media = rules.unit * sum(cost.tokens for cost in _media(blocks, rules))
    cites = any(mapping(mapping(block).get("citations")).get("enabled") is True for block in blocks)
    more = rules.unit * CITATIONS if cites else 0
    return round(framed * recipe.frame + rules.count(text) + len(calls) * recipe.call + media + more)


def _texts(blocks: Iterable[Json]) -> Iterable[str]:
    for block in map(mapping, blocks):
        kind = block.get("type")
        if kind == "tool_addition":
            yield compact(block)
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            yield string(block.get("name"))
            yield compact(block.get("input"))
            continue
        for key in ("text", "thinking", "title", "context", "content"):
            yield string(block.get(key))
        source = mapping(block.get("source"))
        if source.get("type") in ("text", "content"):
            yield string(source.get("data")) + string(source.get("content"))


def _media(blocks: Iterable[Json], rules: CountingRules) -> list[Cost]:
    """The costs of images, documents and encrypted content, in the model's tokens."""
    return [cost for block in map(mapping, blocks) if (cost := _medium(block, rules)) is not None]


def _medium(block: Mapping[str, Json], rules: CountingRules) -> Cost | None:
    source, kind = mapping(block.get("source")), string(block.get("type"))
    data = string(source.get("data"))
    key = key_of(source.get("url"), source.get("file_id"), data)
    if kind == "image":
        size = size_of(f"data:{source.get('media_type')};base64,{data}") if data else None
        return Cost(rules.images.cost(size, False), rules.images.certain(size, False), key)
    if kind == "document" and source.get("type") not in ("text", "content"):
        pages = 1 + int(len(data) / BASE64_RATIO) // PAGE_BYTES
        return Cost(PAGE_TOKENS * min(MAX_PAGES, pages), key=key)
    if kind == "tool_reference":
        return Cost(REFERENCE)
    hidden = string(block.get("encrypted_content")) or string(block.get("data"))
    if hidden:
        return Cost(len(hidden) // HIDDEN_RATE)
    return None if kind != "container_upload" else Cost(PAGE_TOKENS, key=key_of(block.get("file_id")))

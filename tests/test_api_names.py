"""No module names an API in a condition, but those whose subject the APIs are. What others must know of an API is a
field of its `Api`, or of the `Server` that speaks it.

What counts as a name: the name of an API, of its package or of a kind of server, and what begins with one of their
paths, as text or bytes; an identifier that is one of these names; whatever is imported from the package of one API; and
a constant of a module whose value has any of them, also where another module imports it. Some names are everyday words
and keys of JSON, too (`EVERYDAY`): they count only beside an identifier that speaks of APIs, or as keys of a
dictionary.

What counts as a condition: what `if`, `while`, `assert` and conditional expressions test, comparisons, the operands of
`and`, `or` and `not`, filters of comprehensions and the constants that these run over, subjects and patterns of
`match`, what is looked up in a dictionary or by a dictionary, arguments of methods that compare, and dictionaries whose
keys are names: they decide for whoever reads them.

What it cannot see: a name that is put together when the program runs or stands in a longer text; one that reaches a
condition through a variable, an attribute or the result of a function; and a condition on a field of `Api` that only
one API sets, which is how it should be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

import pytest

from proxy.apis import apis, servers
from tests.test_imports import trees

MAY_NAME = ("proxy.apis", "proxy.simulator", "proxy.tokens.formats")
PACKAGES = frozenset(name.split(".")[2] for name in trees() if name.startswith("proxy.apis.") and name.count(".") == 3)
KINDS = frozenset(servers()) - {"litellm"}  # the name of a library, too
NAMES = PACKAGES | KINDS | {api.name for api in apis()}
EVERYDAY = frozenset({"chat", "completions", "embeddings", "generate", "messages", "responses"})
SPEAKS_OF_APIS = frozenset({"api", "apis", "api_name", "endpoint"})
PATHS = (
    *(path for api in apis() for path in api.paths),
    *(path.partition("{")[0] for api in apis() for path in api.named_paths),
    *(path for api in apis() for _, path in api.calls),
    *(root for server in servers().values() for root in server.roots),
)
COMPARING = frozenset({"startswith", "endswith", "removeprefix", "removesuffix", "fullmatch", "match", "get", "index"})

# What a module decides by a name that is not, or not only, that of an API; nothing may be added without its reason.
EXCUSED: Mapping[tuple[str, str], str] = {
    ("proxy.fit.money", "CACHES"): "providers, by the names that rows of rules/windows.toml have for them",
    ("proxy.fit.money", "DEFAULT_CACHE"): "the same",
    ("proxy.wire.openai.server", "OPENAI"): "the first segment of Azure's paths, in the value of a `Server`",
    ("proxy.config.price_table", "CACHE_OF"): "providers, by the names of litellm's table, with rows of `CACHES`",
    ("proxy.config.price_table", "SEARCHED_ONCE"): "the same providers, which bill searches in their own way",
    ("proxy.admin.page", "API"): "the page's own API stands under /api/",
    ("proxy.replay.readers.litellm", "CALLS"): "LiteLLM's names of calls in its logs, a format of their own",
}


class Module:
    """One module: the identifiers in it that name an API, and the conditions that use one."""

    def __init__(self, name: str, tree: ast.Module) -> None:
        self.name, self.tree = name, tree
        self.named: set[str] = set()
        self.everyday = set(EVERYDAY)  # and constants that are one of these names

    def learn(self, others: Mapping[str, Module]) -> bool:
        """Adds names that are imported and constants made of names. Whether there were any."""
        before = len(self.named) + len(self.everyday)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                self.named |= {a.asname or a.name for a in node.names if self._is_named(node.module, a.name, others)}
                self.everyday |= {a.asname or a.name for a in node.names if _is_everyday(node.module, a.name, others)}
        for statement in self.tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
                targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                assigned = {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                self.named |= assigned if self._values(statement.value) else set()
                self.everyday |= assigned if _text(statement.value) in EVERYDAY else set()
        self.named -= {excused for module, excused in EXCUSED if module == self.name}
        return len(self.named) + len(self.everyday) > before

    def _is_named(self, module: str, name: str, others: Mapping[str, Module]) -> bool:
        parts = f"{module}.{name}".split(".")
        if parts[:2] == ["proxy", "apis"] and parts[2] in PACKAGES:
            return True
        return module in others and name in others[module].named

    def _values(self, node: ast.expr) -> list[str]:
        """The names in a constant's value. What a dictionary has besides its keys decides nothing."""
        if isinstance(node, ast.Dict):
            return self._keys(node)
        inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]
        return [*self._own(node, self.everyday), *(found for one in inner for found in self._values(one))]

    def _keys(self, node: ast.Dict) -> list[str]:
        """The names among a dictionary's keys, if it is one of APIs: all its keys are names, or several."""
        keys = [one if one is not None else value for one, value in zip(node.keys, node.values, strict=True)]
        found = [name for key in keys for one in ast.walk(key) for name in self._own(one)]
        return found if len(found) > 1 or len(found) == len(keys) else []

    def _own(self, node: ast.AST, without: Iterable[str] = ()) -> list[str]:
        """The names that a node itself is."""
        if isinstance(node, ast.Name):
            known = self.named | (self.everyday - EVERYDAY - set(without)) | (NAMES - EVERYDAY)
            return [node.id] if node.id in known else []
        if isinstance(node, ast.Attribute):
            return [node.attr] if node.attr in NAMES - EVERYDAY else []
        text = _text(node)
        is_name = text in NAMES and text not in without
        return [text] if is_name or text.startswith(PATHS) else []

    def _in(self, node: ast.AST) -> list[str]:
        """The names in a condition."""
        said = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        said |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        without = () if said & SPEAKS_OF_APIS else self.everyday
        return [found for one in ast.walk(node) for found in self._own(one, without)]

    def wrong(self) -> Iterator[tuple[int, str]]:
        """The lines with a condition that names an API, each with the name."""
        for node in ast.walk(self.tree):
            for part in _conditions(node):
                yield from ((part.lineno, found) for found in self._in(part))
            if isinstance(node, ast.Dict) and not self._is_excused(node):
                module_level = any(node is n for s in self.tree.body if _is_constant(s) for n in ast.walk(s))
                several = len(self._keys(node)) > 1
                if module_level or several or _is_about_apis(node, self.tree):
                    yield from ((node.lineno, found) for found in self._keys(node))

    def _is_excused(self, node: ast.Dict) -> bool:
        return any(
            isinstance(n, ast.Name) and (self.name, n.id) in EXCUSED
            for statement in self.tree.body
            if _is_constant(statement) and any(node is inner for inner in ast.walk(statement))
            for n in ast.walk(statement)
        )


def _text(node: ast.AST) -> str:
    """A text, or bytes as one; empty for anything else."""
    if not isinstance(node, ast.Constant) or not isinstance(node.value, str | bytes):
        return ""
    return node.value if isinstance(node.value, str) else node.value.decode("latin-1")


def _is_everyday(module: str, name: str, others: Mapping[str, Module]) -> bool:
    return module in others and name in others[module].everyday - EVERYDAY


def _is_constant(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign | ast.AnnAssign)


def _is_about_apis(node: ast.Dict, tree: ast.Module) -> bool:
    """Whether a dictionary is given as a keyword that speaks of APIs."""
    keywords = (one for one in ast.walk(tree) if isinstance(one, ast.keyword) and one.value is node)
    return any(one.arg in SPEAKS_OF_APIS for one in keywords)


def _conditions(node: ast.AST) -> list[ast.expr]:
    """The expressions of a node that decide something."""
    match node:
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            return [node.test]
        case ast.Compare() | ast.BoolOp():
            return [node]
        case ast.UnaryOp(op=ast.Not()):
            return [node.operand]
        case ast.comprehension():
            return [*node.ifs, *([node.iter] if node.ifs and isinstance(node.iter, ast.Name) else [])]
        case ast.Match():
            patterns = [n.value for case in node.cases for n in ast.walk(case.pattern) if isinstance(n, ast.MatchValue)]
            return [ast.copy_location(ast.Tuple([node.subject, *patterns]), node)]
        case ast.Subscript(value=value, slice=key, ctx=ast.Load()):
            return [one for one in (value, key) if isinstance(one, ast.Name)]
        case ast.Call(func=ast.Attribute(value=value, attr=attribute), args=given) if attribute in COMPARING:
            return [value, *given]
    return []


def modules(sources: Mapping[str, ast.Module]) -> dict[str, Module]:
    """The modules that may not name an API in a condition, with all that names one in them."""
    found = {name: Module(name, tree) for name, tree in sources.items() if not _may_name(name)}
    while any([module.learn(found) for module in found.values()]):
        pass
    return found


def _may_name(name: str) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in MAY_NAME)


def test_no_condition_names_an_api() -> None:
    found = {name: sorted(set(module.wrong())) for name, module in modules(trees()).items()}
    assert {name: lines for name, lines in found.items() if lines} == {}


def wrong_in(**sources: str) -> list[str]:
    """The names in conditions of modules of the package."""
    found = modules({f"proxy.request.{name}": ast.parse(source) for name, source in sources.items()})
    return sorted({name for module in found.values() for _, name in module.wrong()})


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("if row.api == 'ollama': pass", "ollama"),
        ("if received.api.name in ('chat', 'x'): pass", "chat"),
        ("x = 1 if api == b'messages' else 2", "messages"),
        ("def f(endpoint):\n    while endpoint != 'generate': pass", "generate"),
        ("x = [p for p in paths if p.startswith('/v1/messages/')]", "/v1/messages/"),
        ("def f(path):\n    return path.startswith('/api/')", "/api/"),
        ("TABLE = (('/api/', 'x'),)\nx = next((y for start, y in TABLE if p.startswith(start)), 0)", "TABLE"),
        ("SET = frozenset({'openai', 'x'})\ndef f(a):\n    return a in SET", "SET"),
        ("FORMS = {'gemini': 1}\nx = FORMS.get(form)", "gemini"),
        ("COSTS = {'completions': 1, 'embeddings': 2}", "embeddings"),
        ("READ = {'messages': 1}", "messages"),
        ("x = f(apis={'responses': 1})", "responses"),
        ("from proxy.apis.openai_chat import API as CHAT\nx = found or CHAT", "CHAT"),
        ("from proxy.apis import ollama\nif api is ollama.API: pass", "ollama"),
        ("from proxy.apis.anthropic_messages.caching import MARK\nif MARK in body: pass", "MARK"),
        ("CHAT = 'chat'\nif api == CHAT: pass", "CHAT"),
        ("def f(anthropic):\n    if anthropic: pass", "anthropic"),
        ("match api:\n    case 'responses': pass", "responses"),
        ("x = {**{w: w for w in ('chat', 'messages')}}.get(w)\nX = {**{w: w for w in ('chat', 'embeddings')}}", "chat"),
    ],
)
def test_a_name_in_a_condition_is_found_however_it_is_written(source: str, name: str) -> None:
    assert name in wrong_in(one=source)


def test_a_constant_is_found_where_another_module_imports_it() -> None:
    one = "PATHS = ('/v1/chat/completions',)\nNAME = 'chat'"
    assert wrong_in(one=one, two="from proxy.request.one import PATHS as P\nif path in P: pass") == ["P"]
    assert wrong_in(one=one, two="from proxy.request.one import NAME\nif api == NAME: pass") == ["NAME"]


@pytest.mark.parametrize(
    "source",
    [
        "api: str = 'chat'",
        "def f(api='ollama'):\n    return g(api, 'ollama')",
        "if 'messages' in fields: pass",
        "body = {'model': m, 'messages': messages}",
        "def f():\n    return {'messages': []}",
        "HOSTS = {'api.anthropic.com': 'anthropic'}\nx = HOSTS[host]",
        "if api.numeric: pass",
        "if api.server.loaded is not None: pass",
    ],
)
def test_a_name_that_decides_nothing_and_a_field_of_a_body_are_not_found(source: str) -> None:
    assert wrong_in(one=source) == []


def test_every_excuse_is_still_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    excused = set(EXCUSED)
    monkeypatch.setattr("tests.test_api_names.EXCUSED", {})
    found = modules(trees())
    assert {one for one in excused if not set(found[one[0]].wrong())} == set()

"""Forty spellings of keys, and forty names that only look like one's. `CANARY` is what nobody may read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CANARY = "CANARY7391"
OWN = "sk/own-4711-abcdef"  # the client's own key

KEY_NAMES = (
    *("api_key", "apikey", "x_api_key", "OPENAI_API_KEY", "access_key", "aws_access_key_id", "aws_secret_access_key"),
    *("aws_session_token", "azure_ad_token", "client_secret", "secret", "secret_key", "private_key", "private_key_id"),
    *("password", "passwd", "db_password", "passphrase", "pwd", "token", "access_token", "refresh_token", "id_token"),
    *("auth_token", "authorization", "authorization_token", "proxy_authorization", "bearer_token", "github_token"),
    *("hf_token", "vertex_credentials", "credentials", "credential", "cookie", "set_cookie", "session_key"),
    *("signing_key", "encryption_key", "subscription_key", "ocp_apim_subscription_key", "connection_string"),
    *("shared_access_key", "basic_auth", "webhook_secret", "jwt_secret", "ssh_key", "account_key"),
)

HARMLESS_NAMES = (
    *("max_tokens", "token_count", "prompt_cache_key", "max_completion_tokens", "total_tokens", "input_tokens"),
    *("budget_tokens", "num_tokens", "tokens", "token_ids", "tokenizer", "token_type", "token_budget", "token_limit"),
    *("pad_token", "eos_token", "bos_token", "stop_token", "input_cost_per_token", "cached_tokens", "next_page_token"),
    *("key", "keys", "keywords", "key_name", "primary_key", "foreign_key", "sort_key", "public_key", "partition_key"),
    *("keyboard", "author", "authors", "authority", "authorized", "password_policy", "password_length", "passage"),
    *("secretary", "secret_name", "cookie_policy", "cookbook", "signature", "encrypted_content", "safety_identifier"),
    *("token_endpoint", "authorization_url", "header", "passenger", "compass", "session_id", "seed", "stop", "user"),
)


def _escaped(text: str) -> str:
    """JSON with the letters of all fields' names and texts as escapes."""
    return "".join(f"\\u{ord(c):04x}" if c.isalpha() or c == "_" else c for c in text)


def _raw() -> Mapping[str, str]:
    """Bodies' further fields, as they are written."""
    tool = {"type": "mcp", "server_label": "s", "server_url": "https://mcp.example/sse"}

    def said(text: str) -> str:
        return json.dumps({"metadata": text})[1:-1]

    def mcp(**fields: Any) -> str:
        return json.dumps({"mcp": {**tool, **fields}})[1:-1]

    return {
        "list": f'"api_key":["{CANARY}"]',
        "lists in lists": f'"api_keys":[["a",["{CANARY}"]]]',
        "object": json.dumps({"vertex_credentials": {"type": "a", "private": {"x": CANARY, "n": [CANARY]}}})[1:-1],
        "number": '"password":739173917391',
        "deep": json.dumps({"a": [{"b": [{"c": {"clientSecret": CANARY}}]}]})[1:-1],
        "escaped name": f'"api\\u005fkey":"{CANARY}"',
        "all of the name escaped": f'"{_escaped("api_key")}":"{CANARY}"',
        "spaces": f'"api_key"  \t:  \t"{CANARY}"',
        "lines": f'"api_key"\n:\n"{CANARY}"',
        "twice": f'"api_key":"{CANARY}","api_key":""',
        "long": f'"api_key":"{"k" * 5000}{CANARY}"',
        "quotes within": f'"api_key":"a\\"b\\\\{CANARY}"',
        "pair": json.dumps({"env": [{"name": "GITHUB_TOKEN", "value": CANARY}]})[1:-1],
        "pair of a header": json.dumps({"h": [{"key": "Authorization", "value": f"Bearer {CANARY}"}]})[1:-1],
        "headers": mcp(headers={"X-Custom": CANARY}),
        "headers with lists": mcp(headers={"X-Custom": ["a", CANARY]}),
        "headers as pairs": mcp(headers=[["X-Custom", CANARY]]),
        "headers with names": mcp(headers=[{"name": "X-Custom", "value": CANARY}]),
        "headers as lines": mcp(extra_headers=[f"Authorization: Bearer {CANARY}", f"X-Api-Key: {CANARY}"]),
        "user of a URL": mcp(server_url=f"https://me:{CANARY}@mcp.example/sse"),
        "password with signs": mcp(server_url=f"https://me:p@ss{CANARY}:@mcp.example/sse"),
        "token as user": said(f"git clone https://{CANARY}@github.com/a/b"),
        "query": mcp(server_url=f"https://mcp.example/sse?a=1&api_key={CANARY}&b=2"),
        "key in a query": said(f"see https://x.example/v1beta/models?key={CANARY}"),
        "escaped slashes": f'"server_url":"https:\\/\\/me:{CANARY}@mcp.example\\/"',
        "database": said(f"postgresql://app:{CANARY}@db:5432/app"),
        "curl": said(f'curl -H "Authorization: Bearer {CANARY}" https://x.example'),
        "curl with another header": said(f"curl -H 'X-Api-Key: {CANARY}' https://x.example"),
        "curl with a user": said(f"curl -u me:{CANARY} https://x.example"),
        "flag": said(f"plimsoll serve --api-key {CANARY} --port 1"),
        "flag with sign": said(f"tool --token={CANARY} -v"),
        "variable": said(f"export OPENAI_API_KEY={CANARY}\nrun"),
        "file of variables": said(f"A=1\nDB_PASSWORD={CANARY}\nB=2"),
        "yaml": said(f"db:\n  password: {CANARY}\n  port: 1"),
        "code": said(f"client = OpenAI(api_key='{CANARY}')"),
        "sentence with quotes": said(f'the "api_key" : "{CANARY}" is wrong'),
        "prose": said(f"My API key: {CANARY} please"),
        "arguments": json.dumps({"arguments": json.dumps({"apiKey": CANARY})})[1:-1],
        "arguments in arguments": json.dumps({"a": json.dumps({"b": json.dumps({"api_key": [CANARY]})})})[1:-1],
        "escapes in arguments": json.dumps({"arguments": f'{{"api\\u005fkey":"{CANARY}"}}'})[1:-1],
        "JSON within words": said(f'Result:\n{{"client_secret": "{CANARY}"}}\nDone'),
        "escaped JSON within words": said(f'Result: {{\\"client\\u005fsecret\\": \\"{CANARY}\\"}}'),
        "JSON that ends early": said(f'{{"a": 1, "password": "{CANARY}'),
        "default of a schema": json.dumps({"properties": {"api_key": {"type": "string", "default": CANARY}}})[1:-1],
        "bearer": said(f"it sends Bearer {CANARY}."),
        "cookie": said(f"Cookie: a=b; session={CANARY}"),
        "private key": said(f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----"),
        "a key that looks like one": said(f"found sk-proj-abcdefgh{CANARY} in it"),
        "own": said(f"my key is {OWN}."),
        "own escaped": f'"metadata":"{OWN.replace("-", chr(92) + "u002d").replace("/", chr(92) + "/")}"',
        "own in arguments": json.dumps({"a": json.dumps({"b": OWN}).replace("-", "\\u002d")})[1:-1],
        "own within words": json.dumps({"a": "say " + OWN.replace("-", "\\u002d")})[1:-1],
        "own as a name": json.dumps({"a": {OWN: 1}})[1:-1],
    }


RAW = _raw()
HARMLESS_TEXTS = (
    *("max_tokens: 1000 and token_count = 7", "the key is to keep the password policy short", "def f(token: str): ..."),
    *("token = tokenizer.decode(ids)", "const token = useToken();", "if (password === undefined) return"),
    *("git@github.com:a/b", "https://git@github.com/a/b", "docker run -u 1000:1000 image", "bearer certificates"),
    *("basic understanding of things", "see https://x.example/a?q=1&page_token=abc", "sorted(rows, key=len)"),
    *("api_key=os.environ['X']", "$TOKEN: ${TOKEN}", "password: string;", "a mail to me@x.example"),
    *("keyboard: qwerty1 or dvorak2", "Authorization and cookies are explained"),
)


def body_with(field: str) -> bytes:
    """A chat with a further field, as it is written."""
    return b'{"model":"gpt-4o","messages":[{"role":"user","content":"hi"}],"max_tokens":16,%b}' % field.encode()


def bodies_with_keys() -> dict[str, bytes]:
    """A body for each spelling, by its name."""
    named = {name: body_with(f'"{name}":"{CANARY}"') for name in KEY_NAMES}
    return {**named, **{name: body_with(raw) for name, raw in RAW.items()}}


def harmless_bodies() -> dict[str, bytes]:
    """A body for each harmless name and text."""
    named = {name: body_with(f'"metadata":{{"{name}":"Word4711"}}') for name in HARMLESS_NAMES}
    return {**named, **{text: body_with(json.dumps({"metadata": text})[1:-1]) for text in HARMLESS_TEXTS}}


def is_told(text: str) -> bool:
    """Whether a text has a key, or most of one."""
    return any(part in text for part in (CANARY, "739173917391", "own-4711", "4711-abcdef", "kkkk"))

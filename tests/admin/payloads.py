"""200 hostile texts: what a client could send so that a page runs it, loads it or shows something else."""

from __future__ import annotations

CODE = "window.hit=1"
ELEMENTS = (
    f"<script>{CODE}</script>",
    f"<img src=x onerror={CODE}>",
    f"<svg onload={CODE}>",
    f"<svg><script>{CODE}</script></svg>",
    f"<iframe srcdoc='<script>parent.{CODE}</script>'></iframe>",
    f"<iframe src=javascript:{CODE}>",
    f"<body onload={CODE}>",
    f"<details open ontoggle={CODE}>",
    f"<video><source onerror={CODE}></video>",
    f"<audio src=x onerror={CODE}>",
    f"<input autofocus onfocus={CODE}>",
    f"<a href=javascript:{CODE}>x</a>",
    f"<form action=javascript:{CODE}><button>x</button></form>",
    f"<math><mi xlink:href=javascript:{CODE}>x</mi></math>",
    f"<object data=javascript:{CODE}>",
    f"<embed src=javascript:{CODE}>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<style>*{background:url(//evil.example)}</style>",
)
BREAKOUTS = (
    *('">{}', "'>{}", "</td>{}", "</script>{}", "</textarea>{}", "</title>{}", "-->{}"),
    *("]]>{}", "`${{{}}}`", "\\u003c{}", "%3C{}", "&lt;{}", "\n\n{}", "{{{{{}}}}}"),
)
ADDRESSES = (
    f"javascript:{CODE}",
    f"JaVaScRiPt:{CODE}//",
    f"java\tscript:{CODE}",
    "data:text/html,<script>window.hit=1</script>",
    "//evil.example/x",
    "https://evil.example/x.png",
    "#/system",
    "#token=stolen",
    "../../etc/passwd",
    "api/forget",
)
ATTRIBUTES = (
    f'" onmouseover="{CODE}',
    f"' onfocus='{CODE}' autofocus='",
    '" style="position:fixed;inset:0',
    '"></a><a href="//evil.example',
    "class=x id=main",
)
STREAMS = (
    "event: overview\ndata: {}\n\n",
    "\n\nevent: requests\ndata: {}\n\n",
    "id: 1\nretry: 1\n\n",
    "data: x\r\n\r\ndata: y",
    ": comment\n\n",
)
SCRIPTS = (
    "__proto__",
    "constructor",
    "toString",
    "hasOwnProperty",
    f"{{{{constructor.constructor('{CODE}')()}}}}",
    f"${{{CODE}}}",
    f"#{{{CODE}}}",
    f"<%= {CODE} %>",
    f"';{CODE};'",
    f'";{CODE};"',
    f"\\';{CODE};//",
    f"eval('{CODE}')",
    f"Function('{CODE}')()",
    f"setTimeout('{CODE}')",
    '{"__proto__": {"hit": 1}}',
    "null",
    "undefined",
    "NaN",
    "-0",
    "1e999",
)
LOOKS = (
    "\u202egpj.exe",
    "\u2066a\u2069b",
    "a\u200bb",
    "\ufeffstart",
    "zero\u0000byte",
    "\u001b[31mred\u001b[0m",
    "line\u2028break",
    "a" * 5000,
    "Z\u0351\u036b\u0343a" * 40,
    "\U0001f469\u200d\U0001f4bb",
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "== HTTP 200 ==",
    "kept\ndropped\nfitted",
    "\t\t\t\t",
    " ",
    "⟨202e⟩",
    "=cmd|' /C calc'!A0",
    "@import url(//evil.example)",
    "} * { display: none }",
    "/* */ expression(alert(1))",
)


def payloads() -> list[str]:
    """All of them, no two alike."""
    broken = [outer.format(inner) for inner in ELEMENTS[:9] for outer in BREAKOUTS]
    plain = [*ELEMENTS, *ADDRESSES, *ATTRIBUTES, *STREAMS, *SCRIPTS, *LOOKS]
    return [*plain, *broken][:200]

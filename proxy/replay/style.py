"""The style of the report as HTML: light and dark, for narrow and wide screens."""

from __future__ import annotations

STYLE = """
:root { color-scheme: light dark; --bg: #fff; --fg: #1b1f24; --dim: #5b6570; --line: #d8dde3; --soft: #f4f6f8;
  --over: #b42318; --near: #8a5a00; --good: #1a7f37; --kept: #2e6fb7; --cut: #d98c3f; --sent: #2e6fb7; --was: #a9b4c0 }
@media (prefers-color-scheme: dark) { :root { --bg: #14181d; --fg: #e4e9ee; --dim: #9aa6b2; --line: #313a44;
  --soft: #1c222a; --over: #ff8f80; --near: #e5b95c; --good: #62d08c; --kept: #5aa2ec; --cut: #e0a063; --sent: #5aa2ec;
  --was: #566270 } }
* { box-sizing: border-box }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 84rem; margin: 0 auto; padding: 1rem; background: var(--bg);
  color: var(--fg) }
h1 { font-size: 1.4rem; margin: .2rem 0 } h2 { font-size: 1.1rem; margin: 1.8rem 0 .6rem }
p { margin: .3rem 0 } section { min-width: 0 }
code { font: .9em/1.4 ui-monospace, monospace; white-space: nowrap; user-select: all }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .45rem; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top }
th { font-weight: 600; font-size: .85rem; color: var(--dim); vertical-align: bottom }
th:first-child, td:first-child { text-align: left; min-width: 8rem; padding-left: 0 }
td.text, th.text { text-align: left }
.note { color: var(--dim); font-size: .9rem }
.say { border-left: 3px solid var(--near); padding: .1rem .7rem; margin: .5rem 0 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); gap: .6rem; margin: .8rem 0 }
.tile { background: var(--soft); border-radius: .4rem; padding: .6rem; color: var(--dim); font-size: .9rem }
.tile b { display: block; font-size: 1.3rem; white-space: nowrap; color: var(--fg) }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem }
figure { margin: 0; border: 1px solid var(--line); border-radius: .4rem; padding: .7rem .9rem; min-width: 0 }
figcaption { font-weight: 600 }
.legend { color: var(--dim); font-size: .85rem } .legend span { margin-right: 1rem; white-space: nowrap }
.legend i { display: inline-block; width: .7rem; height: .7rem; margin-right: .35rem; border-radius: 2px }
.top { color: var(--dim); font-size: .8rem; margin: .3rem 0 0 }
.axis { display: flex; justify-content: space-between; color: var(--dim); font-size: .8rem; margin: .1rem 0 0 }
.bar { display: flex; justify-content: space-between; gap: .2rem 1rem; flex-wrap: wrap; margin: .5rem 0 .1rem }
.bar code { overflow-x: auto; max-width: 100% } .bar span { color: var(--dim); font-size: .85rem }
svg { display: block; width: 100%; background: var(--soft) }
svg.columns { height: 9rem } svg.row { height: .7rem }
i.kept { background: var(--kept) } i.cut { background: var(--cut) } i.was { background: var(--was) }
i.refused { background: var(--over) }
rect.kept, rect.sent { fill: var(--kept) } rect.cut { fill: var(--cut) } rect.was, rect.before { fill: var(--was) }
rect.line, rect.refused { fill: var(--over) }
b.over, .over { color: var(--over) } b.near, .near { color: var(--near) } b.good, .good { color: var(--good) }
td b { font-weight: 600 }
details { margin: .6rem 0; border: 1px solid var(--line); border-radius: .4rem; padding: .4rem .8rem }
summary { cursor: pointer; overflow-wrap: anywhere; font-weight: 600 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; margin: .2rem 0; text-align: left;
  min-width: 14rem }
pre.row { white-space: pre; overflow-x: auto }
pre.dropped, pre.summarised, pre.recalled { text-decoration: line-through }
.shortened, .excerpted { color: var(--near) } .added { color: var(--good) } b.dropped { color: var(--over) }
@media print { details { break-inside: avoid } }
"""

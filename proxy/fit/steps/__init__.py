"""One module per step: its file's name is its name in a ladder; each is a pure function from a Draft to a Draft.

A step module defines `Params` (a frozen dataclass: what a ladder's row may set) and
`apply(draft, facts, params) -> Draft | Want`; `OF_ORIGINAL = True` makes its `at` compare what the client sent.
"""

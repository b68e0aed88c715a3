"""The steps of a ladder, one module each.

A step is a pure function from a Draft to a Draft. Its file's name is its name in a ladder. A step module defines
`Params` (a frozen dataclass of the parameters that a ladder may set) and `apply(draft, facts, params) -> Draft | Want`.
With `OF_ORIGINAL = True`, its `at` is compared with the load of what the client sent.
"""

"""The engines `selector` and `constraint`: a condition language over the index, and compiled single conditions.

Each module says what an event shows to its language, checks a constraint, and gives `covers`. `compiled` serves
`matching.compile_selector` and `matching.compile_constraint` without an engine.
May import: base, condition, index, tags, xpath, simple.
"""

"""The two condition languages (SQL selectors and Trader constraints): text to tree, meaning, and logic.

`lexer`, `parser`, `selector_parser` and `constraint_parser` read text with exact positions of errors; `tree` evaluates
with three-valued logic; `closures` compiles; `like` matches patterns; `normal_form`, `formula` and `formula_merge`
rewrite into tests under ALL and ANY; `cover` decides whether one condition implies another; `explain` puts a condition
and its failure into words.
How many conditions are tested at once is in `index`; XPath has a room of its own.
May import: base.
"""

"""`veena pipeline VERB` and `veena cluster`: one module a verb, `group` has what all verbs share.

Each module has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

"""Commands of the collaboratory: `dictionary`, `trader`, `services`, `dashboard`.

Each module has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

"""Commands that measure: `sim`, `bench`, `experiment`.

Each module has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

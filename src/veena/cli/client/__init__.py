"""Commands that act as a client: `pub`, `sub`, `advertise`, `query`, `trace`, `explain`.

Each module has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

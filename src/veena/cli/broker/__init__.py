"""Commands for those who run brokers: `broker`, `network`, `users`, `locate`, `status`, `topology`, `advise`.

Each module has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

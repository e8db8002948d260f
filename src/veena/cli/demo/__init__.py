"""`veena demo` and `veena demo collaboratory`: the stories, their sites, and the page that they leave.

`demo` has `register(app)`. May import: `completion`, `connection`, `stdin`.
"""

"""`veena demo` and `veena demo collaboratory`: the stories, their sites, and the page that they leave.

`demo` has `register(app)`; `folder` gives a demo its folder, and clears what an earlier one left.
May import: `completion`, `connection`, `stdin`.
"""

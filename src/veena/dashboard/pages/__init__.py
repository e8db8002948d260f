"""The pages themselves (NiceGUI): one module a page, panels that pages share, and the frame around all.

Each page has `register`. What it shows is computed in `pictures` and kept in `sessions`.
May import: pictures, sessions.
"""

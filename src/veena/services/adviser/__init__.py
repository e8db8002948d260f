"""Where a network should grow: far clients, far publishers, slow links.

`rules` proposes from `facts`, purely; `live` asks running brokers and carries proposals out.
May import: no other room of services.
"""

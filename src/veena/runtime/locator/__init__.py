"""Parts of the question "which broker should this client use?".

`load` measures how full a broker is; `regions` maps network addresses to units; `client` asks one broker one question
over one connection. The server that ranks brokers and moves clients is in `broker.locator`.
May import: all rooms from supervision to export.
"""

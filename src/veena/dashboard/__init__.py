"""The portal: pages that show a network and what runs on it, for whoever a broker lets in (NiceGUI).

It is a client like any other. It asks brokers what they say of themselves (`status`, `topology`, `trace`, `explain`,
`query`) and takes part in collaboratories through `collaboratory.Member`; nothing in the network depends on it. What is
computed (`pictures`) knows nothing of pages, so it is tested without a browser.
"""

"""A person in a collaboratory: watching and steering applications, talking, and looking over a shoulder.

`member` is the person's client, `feed` what arrives, `history` what was consumed and produced, `chat` and `shadow` are
what members do with each other.
May import: `structured`, `wording`, dictionary, trading, domain, application.
"""

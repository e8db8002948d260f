"""One signed-in person: sign-in, what that person's observer reads from brokers, what is watched, heard and recorded.

`collaboratory` lists what others must provide (members, adviser).
May import: pictures.
"""

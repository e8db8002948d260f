"""The services that every domain runs: access, aggregation and subscriptions, in one process.

`services` starts them; `categories` and `access_service` say who may do what; `aggregate` joins the constraints of many
users into one, `aggregation` subscribes for them; `subscriptions` serves users.
May import: `structured`, `wording`, dictionary, trading.
"""

"""The broker's side of client connections: greeting, every request frame, delivery, staging and table readers.

`conversation` is one client, and ends it when it is silent or does not read; `gives` is what it uses of others;
`service` is all of them and what the core tells them; `revocation` judges them again when rights change.
`requests` handles each frame that a client sends, checked against rights and limits; `explain` answers trace and
explain; `staging` and `staging_requests` collect batches; `table_service` serves readers of tables; `redirect` moves
clients; `traffic` measures who hears whom; `pace` says how much of a read is dealt with at once.
Users and rights are in `access`; the client library is `veena.client`; decisions are in `veena.core.sessions`.
May import: all rooms from supervision to config.
"""

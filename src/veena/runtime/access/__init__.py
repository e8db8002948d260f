"""Who may attach and what they may do: users, passwords, rights and rate limits.

`users` reads the users file and says who somebody is, `revoke` changes it; `log_ins` is the one way in, where
`attempts` slows guesses and `turns` shares the checks of passwords fairly; `rights` applies allow and deny rules to
publishing and reading; `suspects` refuses for a while whose frames broke the core; `limits` holds a user's rates with
token buckets; `access_events` publishes who came in or was refused. TLS contexts are in `transports.tls`, trust in
other brokers in `links.trust`.
May import: supervision, logging, networks, transports, pki, links, fleet, store.
"""

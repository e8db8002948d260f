"""How fast the pipeline is, beside something plainer in the same run (`veena bench pipeline`).

`suite` has figures and bars; `match`, `read`, `push` and `aggregate` measure one section each; `plain_match` and
`plain_socket` are the plain sides as processes; `cores` confines processes and counts CPU time.
May import: log, launch, source, archive, matching, audit, analyze.
"""

"""Starting and watching Spark: the session, Java, a local cluster, and failures in one line.

`session` has the settings of every job and ships the package to workers; `java` finds a JVM; `cluster` starts a master
and workers, `guard` ends them, `cluster_secret` lets only their user in; `progress` shows a running job; `queries`
stops streams; `failures` finds Python's own words in a Java stack trace. Nothing here knows events.
May import: log.
"""

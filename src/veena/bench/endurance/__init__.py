"""Real broker processes in trouble: kills, cut links, abuse, and a whole day with its archive and audit.

May import: matching, load, latency, collaboratory.
"""

"""Takeback, the physical limit and the peers, interleaved in one run.

``python -m benchmarks`` (or ``make bench``) runs every group and writes ``docs/benchmarks.md``. The idea
of each group: a machine's absolute times mean nothing, so every arm does the same work on the same disk
in the same minutes, in small blocks of random order, and only the ratio to the limit is judged. The
limit is the least that could do the job: one bare SQLite statement, one bare decode. A busy disk pulls
every ratio toward 1 and so flatters: publish runs of a quiet machine only. Nothing here asserts a time;
a missed limit is printed like a reached one.
"""

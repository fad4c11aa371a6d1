"""Intervals (in seconds) and limits of the engine, each with the reason for its size."""

LEASE_SECONDS = 20.0
"""How long a lease is valid without renewal: at least 15 s, so that a short stall does not end it."""

HAND_OVER_SECONDS = 3.0
"""How long a failed process tries to give up its lease. The next process can then lead before the lease ends."""

RENEW_SECONDS = 5.0
"""The interval between two renewals of the lease: three renewals may fail before it ends."""

MOST_MISSED_CHECKS = 3
"""How many checks in a row the API server may leave unanswered before a leader gives up. They come every 15 s (see
control/operator.py), so this is 45 s: longer than a restart of an API server. A number of checks instead of a time, so
that a process that was paused does not count its own pause."""

POLL_SECONDS = 1.0
"""How often each job is searched from the start of its order. This finds tasks that a claim or a NOTIFY missed."""

REWIND_SECONDS = 0.2
"""The minimum time between two searches from the start, if a claim returns fewer tasks than it asked for."""

DROPPED_SECONDS = 0.02
"""The pause before the next claim, if other transactions had locked some chunks."""

TAKEOVER_SECONDS = 5.0
"""The interval between two searches for runs of ended engines."""

STARTS_AT_ONCE = 16
"""How many runs are started concurrently."""

COMMIT_BATCH = 200
"""The maximum number of outcomes in one commit."""

REFUSED_SECONDS = 600.0
"""How long a program with active runs retries if Postgres refuses access. A person can fix a password meanwhile."""

GATHER_SECONDS = 0.001
"""How long ends are gathered after a commit for the next one, for each active run. A commit, and the claim that follows
it, cost little more for ten runs than for one. With many active runs a short pause of one slot costs nothing. The first
end after a while is committed at once."""

MOST_GATHER_SECONDS = 0.1
"""The longest time that ends are gathered."""

RECONNECT_SECONDS = 0.5
"""The pause after the database did not answer."""

FIRST_STARTS = 4
"""How many runs of a job may be claimed and not yet started, at first. Each successful start doubles this number."""

MOST_STARTS = 64
"""The upper limit of that number."""

FIRST_PAUSE_SECONDS = 0.2
"""The pause before the first retry of a failed start. Each further pause is twice as long."""

LONGEST_PAUSE_SECONDS = 15.0
"""The upper limit of that pause."""

CLAIM_REFUSED_SECONDS = 30.0
"""How long an operator claims no task of a job after Postgres has refused a claim."""

OUTCOME_REFUSED_SECONDS = 30.0
"""How long an operator waits after Postgres has refused the outcome of a run, before it commits this outcome again."""

NOT_CREATABLE_SECONDS = 30.0
"""How long no task of a job is claimed after the cluster refused its pod. An administrator can fix it meanwhile."""

"""The engine's pauses and bounds, in seconds and counts; each with the reason for its size."""

LEASE_SECONDS = 20.0
"""How long a lease lives without renewal: at least 15 s, so that a short stall costs nothing."""

HAND_OVER_SECONDS = 3.0
"""How long a process that has failed tries to give its lease up, so that the next one need not wait for its end."""

RENEW_SECONDS = 5.0
"""How often it is renewed: three renewals may fail before it ends."""

PROBE_SECONDS = 1.0
"""How often every job is asked for tasks from the start of its order. Finds what was passed by or woken elsewhere."""

REWIND_SECONDS = 0.2
"""How soon after such a search a short batch may lead to the next one."""

DROPPED_SECONDS = 0.02
"""The pause before a job is asked again whose chunks were locked by somebody at that moment."""

TAKEOVER_SECONDS = 5.0
"""How often runs of engines that have ended are looked for."""

STARTS_AT_ONCE = 16
"""How many runs are being started at the same time."""

COMMIT_BATCH = 200
"""The most outcomes in one commit."""

REFUSED_SECONDS = 600.0
"""How long a program with runs asks again where Postgres refuses it: a person can mend a password in this time."""

GATHER_SECONDS = 0.001
"""For each run that lives: how long after a commit ends are gathered for the next one. A commit and the claim behind it
cost little more for ten runs than for one, and where many runs live, nobody notices a short pause of one slot. The
first end after a while is committed at once."""

MOST_GATHER_SECONDS = 0.1
"""The longest that ends are gathered."""

RECONNECT_SECONDS = 0.5
"""The pause after the database did not answer."""

FIRST_STARTS = 4
"""How many runs of a job are claimed and not yet started at first; twice as many after each that was started."""

MOST_STARTS = 64
"""The most of them."""

FIRST_PAUSE_SECONDS = 0.2
"""The pause before a start that failed is tried again, at first; then twice as long each time."""

LONGEST_PAUSE_SECONDS = 15.0
"""The longest such pause."""

NOT_CREATABLE_SECONDS = 30.0
"""How long nothing of a job is claimed when the cluster has refused its pod: an admin may mend it meanwhile."""

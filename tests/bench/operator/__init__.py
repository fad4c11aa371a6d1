"""How fast the operator is, beside what Kubernetes has itself: `make bench-operator`.

    operator   chunk runs of zero length, then longer ones, then many that live at the same time
    default    an Indexed Job of as many pods, its controller and the scheduler as they are when nobody tunes them
    tuned      the same, both with 500 requests a second
    bare       the API calls that the operator sends for its runs, sent by a plain loop without Postgres

All of them, one after the other, on one cluster of their own with fake nodes (`tests.kube.cluster`), at the same
parallelism, with pods that do the same. Times are those of this machine and of whatever else it does: compare what one
run prints, nothing else.
"""

"""How many tasks are claimed and finished in a second, beside what Postgres could do and what other queues do.

`ours`: claim and complete; `plain`: statements that write the same rows in the same batches, without choosing or
checking anything: the ceiling. `procrastinate` has no batches. One line for each batch size, number of clients, number
of jobs and size of the database. Both sides of a ratio are measured one right after the other, and beside other queues
every one of them has as many jobs.

They promise less, and write less. For a job, pgqueuer updates and deletes its row and adds two to its log;
procrastinate updates its row twice and adds two events. Neither knows inputs and outputs, nor locks them. A task of
ours, with one input and one output, is twelve rows: its run, itself and two chunks, each at its claim and at its end,
and four of its history.
"""

from dataclasses import dataclass, field
from statistics import geometric_mean

from tests.bench import peers
from tests.bench.clients import Load, ours, plain, rate, without_triggers
from tests.bench.server import JOBS, database, seed, server

BATCHES = (1, 10, 50)
CLIENTS = ((1, False), (4, False), (16, False), (4, True), (16, True))
"""How many, and whether on sixteen jobs instead of one."""
SIZES = {"10 k": (10_000, 1.0), "1 M": (1_000_000, 3.0)}
"""Chunks of the database, and seconds for each figure: in one there must be enough for all of them."""
BESIDE = 200_000
"""Jobs of each queue, where queues are compared: enough for all figures."""


@dataclass
class Figures:
    """Tasks in a second, by (size, batch, clients, on sixteen jobs)."""

    ours: dict[tuple[str, int, int, bool], float] = field(default_factory=dict)
    plain: dict[tuple[str, int, int, bool], float] = field(default_factory=dict)


def main() -> None:
    """Measure and print."""
    figures = Figures()
    with server() as dsn:
        print("tasks claimed and finished in a second")
        print(f"{'chunks':>6} {'batch':>5} {'clients':>7} {'jobs':>4} {'ours':>8} {'plain':>8} {'ours/plain':>10}")
        for size in SIZES:
            _measure(dsn, size, figures)
        _conclude(figures)
        _beside_peers(dsn)


def _measure(dsn: str, size: str, figures: Figures) -> None:
    chunks, seconds = SIZES[size]
    with database(dsn, "bench_seed") as seeded:
        seed(seeded, chunks)
        for batch, some in _shares(chunks):
            with database(dsn, "bench_ours", "bench_seed") as a, database(dsn, "bench_plain", "bench_seed") as b:
                without_triggers(b)
                used = {True: 0, False: 0}  # batches of the plain statements, which choose by number
                for clients, spread in some:
                    key = (size, batch, clients, spread)
                    figures.ours[key] = rate(ours, _loads(a, batch, clients, spread, seconds))
                    figures.plain[key] = rate(plain, _loads(b, batch, clients, spread, seconds, used[spread]))
                    used[spread] += (
                        int(figures.plain[key] * seconds * 1.5 / batch / (JOBS if spread else 1)) + 20 * clients
                    )
                    _print(key, figures)


def _shares(chunks: int) -> list[tuple[int, tuple[tuple[int, bool], ...]]]:
    """What is measured on one copy of a database, before its tasks are used up: all clients, or each on its own."""
    if chunks >= 1_000_000:
        return [(batch, CLIENTS) for batch in BATCHES]
    return [(batch, (client,)) for batch in BATCHES for client in CLIENTS]


def _loads(dsn: str, batch: int, clients: int, spread: bool, seconds: float, first: int = 0) -> list[Load]:
    """On one job the clients share the batches; on sixteen each has jobs of its own."""
    if not spread:
        return [Load(dsn, (0,), batch, seconds, c, first + c, clients) for c in range(clients)]
    return [Load(dsn, tuple(range(c + 1, JOBS + 1, clients)), batch, seconds, c, first, 1) for c in range(clients)]


def _print(key: tuple[str, int, int, bool], figures: Figures) -> None:
    size, batch, clients, spread = key
    our, ceiling = figures.ours[key], figures.plain[key]
    jobs = JOBS if spread else 1
    print(f"{size:>6} {batch:>5} {clients:>7} {jobs:>4} {our:>8.0f} {ceiling:>8.0f} {our / ceiling:>10.2f}", flush=True)


def _conclude(figures: Figures) -> None:
    many = [key for key in figures.ours if key[:2] == ("1 M", 50)]
    share = geometric_mean(figures.ours[key] / figures.plain[key] for key in many)
    flat = geometric_mean(figures.ours[key] / figures.ours["10 k", *key[1:]] for key in many)
    print(f"batches of 50 at 1 M: {share:.2f} of the ceiling (goal: 0.65), {flat:.2f} of the rate at 10 k (goal: 0.90)")


def _beside_peers(dsn: str) -> None:
    print(f"{'batch':>5} {'clients':>7} {'ours':>8} {'procrastinate':>13} {'pgqueuer':>8}")
    with database(dsn, "bench_seed") as seeded, database(dsn, "bench_peers", empty=True) as queues:
        seed(seeded, BESIDE, jobs=0)
        peers.fill(queues, BESIDE)
        for batch in BATCHES:
            with database(dsn, "bench_ours", "bench_seed") as own:
                for clients in (1, 4, 16):
                    sides = ((ours, own), (peers.procrastinate_client, queues), (peers.pgqueuer_client, queues))
                    rates = [
                        rate(side, _loads(where, batch, clients, spread=False, seconds=2)) for side, where in sides
                    ]
                    print(f"{batch:>5} {clients:>7} {rates[0]:>8.0f} {rates[1]:>13.0f} {rates[2]:>8.0f}", flush=True)


if __name__ == "__main__":
    main()

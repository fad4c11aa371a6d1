"""The cells of a grid: when they are read again; and their colours, as colour-blind people see them."""

import re
from itertools import combinations
from pathlib import Path

import pytest

import opendataflow
from opendataflow.dashboard.grid import Cells
from opendataflow.store import dashboard
from opendataflow.store.dashboard import Part
from opendataflow.store.database import Database

STATIC = Path(opendataflow.__file__).parent / "dashboard" / "static"
STATES = ("done", "stale", "running", "queued", "retrying", "failed", "waiting", "held", "skipped")
EYES = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "without red cones": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "without green cones": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "without blue cones": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""What is left of linear red, green and blue (Machado, Oliveira and Fernandes, 2009)."""
JUST_SEEN = 2.3
"""The distance in CIELAB that a person just sees."""

Triple = tuple[float, float, float]


class Db(Database):
    """A database whose answers a test sets. It counts how often the cells were read."""

    def __init__(self) -> None:
        self.now, self.version, self.reads, self.takes = 0.0, "1", 0, 0.0


@pytest.fixture
def db(monkeypatch: pytest.MonkeyPatch) -> Db:
    db = Db()

    async def version(_: Database) -> str:
        return db.version

    async def cells(_: Database, job: str, part: Part) -> tuple[str, bytes]:
        assert part == Part()
        db.reads += 1
        db.now += db.takes
        return db.version, f"{job}{db.version}".encode()

    monkeypatch.setattr(dashboard, "version", version)
    monkeypatch.setattr(dashboard, "cells", cells)
    return db


async def test_a_grid_is_read_again_only_after_a_change(db: Db) -> None:
    cells = Cells(db, lambda: db.now)
    first = await cells.of_job("D", Part())
    assert await cells.of_job("D", Part()) == first
    db.version = "2"
    second = await cells.of_job("D", Part())
    assert (second[0].letters, db.reads) == (b"D2", 2)
    assert second[0].tag != first[0].tag


async def test_a_grid_that_takes_long_to_read_rests_ten_times_as_long(db: Db) -> None:
    db.takes = 1.0
    cells = Cells(db, lambda: db.now)
    await cells.of_job("D", Part())
    db.version, db.now = "2", db.now + 9
    older, wait = await cells.of_job("D", Part())
    assert (older.version, wait) == ("1", 1.0)
    db.now += wait
    newest, wait = await cells.of_job("D", Part())
    assert (newest.version, wait) == ("2", 0.0)


async def test_a_grid_is_never_older_than_a_minute(db: Db) -> None:
    cells = Cells(db, lambda: db.now)
    await cells.of_job("D", Part())
    db.now += 61
    await cells.of_job("D", Part())
    assert db.reads == 2


async def test_only_the_grids_that_were_looked_at_last_are_kept(db: Db) -> None:
    cells = Cells(db, lambda: db.now)
    for number in range(10):
        await cells.of_job(str(number), Part())
    await cells.of_job("9", Part())
    assert db.reads == 10
    await cells.of_job("0", Part())
    assert db.reads == 11


def _palette(*, dark: bool) -> dict[str, Triple]:
    """The colours of states in the style sheet, as linear red, green and blue."""
    text = (STATIC / "style.css").read_text("utf-8")
    found = re.findall(r"--(\w+): #([0-9a-f]{6});", text)
    chosen = dict(reversed(found)) if not dark else dict(found)
    return {name: _linear(chosen[name]) for name in STATES}


def _linear(digits: str) -> Triple:
    red, green, blue = (
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    )
    return red, green, blue


def _seen(colour: Triple, eyes: tuple[Triple, ...]) -> Triple:
    """Return a colour in CIELAB, as these eyes see it."""
    red, green, blue = (min(max(sum(a * b for a, b in zip(row, colour, strict=True)), 0.0), 1.0) for row in eyes)
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (value ** (1 / 3) if value > 0.008856 else 7.787 * value + 16 / 116 for value in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", EYES.values(), ids=EYES)
def test_everybody_can_distinguish_the_colours_of_two_states(eyes: tuple[Triple, ...], dark: bool) -> None:
    seen = {state: _seen(colour, eyes) for state, colour in _palette(dark=dark).items()}
    close = {}
    for one, other in combinations(seen, 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen[one], seen[other], strict=True)) ** 0.5
        if distance < 4 * JUST_SEEN:
            close[f"{one} {other}"] = round(distance, 1)
    assert close == {}

"""An engine's presence ends with its process and is never guessed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opendataflow.launch.process.host import this_host
from opendataflow.launch.process.presence import Presence
from opendataflow.model.records.run import Host

LEASE = "0d0a5a2e-6f0b-4a52-9d2b-0a6c3f3f3f3f"

ENGINE = """
import subprocess, sys
from pathlib import Path
from opendataflow.launch.process.presence import Presence
presence = Presence(Path(sys.argv[1]))
presence.hold(sys.argv[2])
subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def engine(tmp_path: Path) -> subprocess.Popen[str]:
    """Another process that holds a presence and has a child."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENGINE, str(tmp_path), LEASE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def _end(engine: subprocess.Popen[str]) -> None:
    os.killpg(engine.pid, signal.SIGKILL)
    engine.communicate()


def test_an_engine_that_lives_is_not_gone(tmp_path: Path, engine: subprocess.Popen[str]) -> None:
    proof = Presence(tmp_path).prove_owner_dead(LEASE, this_host())
    _end(engine)
    assert (proof.dead, proof.alive, proof.reason) == (False, True, "its engine is alive")


def test_a_killed_engine_is_gone_though_its_child_lives(tmp_path: Path, engine: subprocess.Popen[str]) -> None:
    engine.kill()
    engine.wait()
    proof = Presence(tmp_path).prove_owner_dead(LEASE, this_host())
    _end(engine)
    assert (proof.dead, proof.reason) == (True, "its engine has ended")


def test_an_engine_of_another_host_is_never_reported_as_gone(tmp_path: Path) -> None:
    Presence(tmp_path).hold(LEASE)
    proof = Presence(tmp_path).prove_owner_dead(LEASE, Host("elsewhere", this_host().boot))
    assert not proof.dead
    assert "another host, elsewhere" in proof.reason


def test_an_engine_from_before_a_restart_is_gone(tmp_path: Path, engine: subprocess.Popen[str]) -> None:
    _end(engine)
    proof = Presence(tmp_path).prove_owner_dead(LEASE, Host(this_host().name, "another-boot/pid:[1]"))
    assert (proof.dead, proof.reason) == (True, "its engine has ended")


def test_an_engine_that_has_left_leaves_nothing(tmp_path: Path) -> None:
    presence = Presence(tmp_path)
    presence.hold(LEASE)
    presence.release(LEASE)
    assert list(tmp_path.rglob("*.lock")) == []


def test_a_machine_with_the_same_name_is_not_taken_for_this_one_after_a_restart(tmp_path: Path) -> None:
    proof = Presence(tmp_path).prove_owner_dead(LEASE, Host(this_host().name, "another-boot/pid:[1]"))
    assert not proof.dead
    assert "it is unknown whether its engine is alive" in proof.reason

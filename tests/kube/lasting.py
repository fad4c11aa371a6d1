"""One scene and its operator for many tests, none of which may end it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field

import pytest

from tests.kube.conftest import FAILED
from tests.kube.scene import Running, Scene


@dataclass
class Lasting:
    """`make` opens a scene. After a test that fails it is closed, and the next test opens another one."""

    make: Callable[[], AbstractContextManager[Scene]]
    _open: ExitStack = field(default_factory=ExitStack)
    _made: tuple[Scene, Running] | None = None

    def lend(self, request: pytest.FixtureRequest) -> Iterator[Scene]:
        """Yield the scene to a test, and check afterwards that its operator is healthy."""
        scene, operator = self._get()
        yield scene
        right = operator.healthy and "Traceback" not in operator.operator.output()
        if not right or request.node.stash.get(FAILED, False):
            self.leave()
        assert right, operator.operator.output()[-3000:]

    def leave(self) -> None:
        self._made = None
        self._open.close()

    def _get(self) -> tuple[Scene, Running]:
        if self._made is None:
            scene = self._open.enter_context(self.make())
            operator = scene.start()
            self._made = scene, operator
            operator.until_ready()
        return self._made

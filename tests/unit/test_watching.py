"""How errors inside of kopf are reported."""

import asyncio

import pytest

from opendataflow.control.resources.watching import log_callback_error


def test_a_callback_that_fails_is_reported_in_one_line_but_for_kopf_s_own_that_always_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def request_cancel_callback() -> None:
        assert asyncio.current_task() is not None

    def other() -> None:
        raise ValueError("broken")

    async def call() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(log_callback_error)
        for callback in (request_cancel_callback, other):
            loop.call_soon(callback)
        await asyncio.sleep(0)

    asyncio.run(call())
    [record] = caplog.records
    assert "ValueError('broken')" in record.getMessage()
    assert record.exc_info is None

"""Programs that end without closing the app: they end, and no driver complains."""

import subprocess
import sys
import textwrap

import pytest

PROGRAM = """
    import asyncio, sys
    from holdfast import Holdfast
    app = Holdfast(sys.argv[1])

    async def opened():
        await app.open()
        await app.enqueue("noop")

    def on_a_bare_loop():
        loop = asyncio.new_event_loop()
        loop.run_until_complete(opened())
        loop.close()

    {how}
"""
HOW = {
    "blocking": 'app.sync.enqueue("noop")',
    "implicitly": 'asyncio.run(app.enqueue("noop"))',
    "opened": "asyncio.run(opened())",
    "on a bare loop": "on_a_bare_loop()",
}


@pytest.mark.parametrize("how", HOW)
def test_a_program_that_leaves_the_app_open_ends_without_a_complaint(store_url, how):
    code = textwrap.dedent(PROGRAM).replace("{how}", HOW[how])
    done = subprocess.run(
        # Not `-X dev`: it also has asyncio report each step that took long, as any may on a busy machine.
        [sys.executable, "-W", "default", "-c", code, store_url],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")

"""`holdfast signal` in a terminal."""

TASKS = """
from holdfast import Context, Holdfast

app = Holdfast()


@app.task
async def order(ctx: Context, number: int) -> object:
    await ctx.step("charge", lambda: {"paid": number})
    return await ctx.wait_for(f"approval-{number}", timeout=3600)


@app.task
def nap(ctx: Context) -> None:
    ctx.step("count sheep", lambda: 3)
    ctx.sleep(days=3)
"""


def test_a_job_waits_until_it_is_signalled(terminal):
    (terminal.folder / "shop.py").write_text(TASKS)
    terminal("-A", "shop:app", "enqueue", '{"task": "order", "id": "o-42", "args": {"number": 42}}')
    terminal("-A", "shop:app", "enqueue", '{"task": "nap", "id": "nap"}')
    terminal("-A", "shop:app", "worker", "start", "--count", "1")
    terminal.until(lambda: terminal.job("o-42")["waiting_for"], 30)
    terminal.until(lambda: terminal.job("nap")["state"] == "scheduled", 30)
    output = terminal("explain", "o-42")
    assert "it waits for signal 'approval-42', at most until" in output
    assert "1 step is done: charge" in output
    assert "waits for signal approval-42 until" in terminal("show", "o-42")
    assert [step["name"] for step in terminal.json("show", "o-42")["steps"]] == ["charge", "approval-42"]
    assert "it sleeps until" in terminal("explain", "nap")
    assert "sleep until" in terminal("show", "nap")
    assert "Signal approval-42 sent; it woke 1 job." in terminal("signal", "approval-42", '{"by": "ann"}')
    terminal.until(lambda: terminal.job("o-42")["state"] == "succeeded", 30)
    assert terminal.job("o-42")["result"] == {"by": "ann"}
    assert "signal approval-42, received at" in terminal("show", "o-42")
    assert "Signal approval-42 sent; it woke 0 jobs." in terminal("signal", "approval-42")
    terminal("worker", "stop")


def test_errors_are_reported_and_nothing_is_sent(terminal):
    assert "its value must be JSON" in terminal("signal", "x", "{", code=2)
    assert """a string needs quotes: '"ann"'""" in terminal("signal", "x", "ann", code=2)
    assert "a signal name must be 1 to 128" in terminal("signal", " x", code=2)
    terminal("config", "set", "max_payload", "1000")
    assert "is over max_payload (1000)" in terminal("signal", "x", f'"{"y" * 1000}"', code=2)

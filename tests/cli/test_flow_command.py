"""`holdfast flow` in a terminal."""

import subprocess
import sys

SHOP = """
from holdfast import Flow, Holdfast

app = Holdfast()


@app.task
def price(item: str) -> int:
    return len(item)


@app.task(max_attempts=1)
def total(prices: list[int]) -> int:
    raise ValueError("no change")


def order() -> str:
    flow = Flow("order")
    flow.add(total, [flow.add(price, item) for item in ("pen", "ink")])
    return app.sync.enqueue_flow(flow).id


if __name__ == "__main__":
    print(order())
"""


def test_a_flow_is_listed_and_shown(terminal):
    (terminal.folder / "shop.py").write_text(SHOP)
    assert terminal("flow", "list").startswith("There are no flows in sqlite:///holdfast.db")
    made = subprocess.run(
        [sys.executable, "shop.py"], cwd=terminal.folder, env=terminal.env, capture_output=True, check=True
    )
    id = made.stdout.decode().strip()
    assert f"Flow {id} (order): blocked, 0 of 3 jobs have ended." in terminal("flow", "show", id)
    assert terminal("flow", "list", "-s", "dead").startswith("There are no dead flows in sqlite:///holdfast.db")
    assert "never queued" in terminal("flow", "list", "--state", "queued", code=2)
    terminal("-A", "shop:app", "worker", "start", "--count", "1")
    watched = terminal("flow", "show", id, "--watch")
    assert "3 of 3 jobs have ended" in watched
    shown = terminal("flow", "show", id)
    assert "│ 2   │ total │ dead      │ 0, 1  │ ValueError: no change │" in shown
    assert "│ 0   │ price │ succeeded │       │                       │" in shown
    members = terminal.json("flow", "show", id)["members"]
    assert [(one["number"], one["after"]) for one in members] == [(0, []), (1, []), (2, [0, 1])]
    assert f"Flow {id} is dead" in (output := terminal("explain", id))
    assert f"`holdfast retry {id}` resumes the flow at the jobs that failed" in output
    [listed] = terminal.json("flow", "list", "--state", "dead")["flows"]
    assert (listed["id"], listed["jobs"]) == (id, 3)
    assert f"Flow {id} continues" in terminal("retry", id)
    assert "is not a flow" in terminal("flow", "show", f"{id}.0", code=2)


WIDE = """
import asyncio, sys
from holdfast import Flow, Holdfast

app = Holdfast()


@app.task
async def stay(number: int) -> None:
    while number == 0:
        await asyncio.sleep(0.1)


if __name__ == "__main__":
    flow = Flow("wide")
    for number in range(int(sys.argv[1])):
        flow.add(stay, number)
    print(app.sync.enqueue_flow(flow).id)
"""


def test_a_large_flow_is_truncated_except_in_json(terminal):
    id = made(terminal, 60)
    shown = terminal("flow", "show", id)
    assert "│ 49  │" in shown
    assert "│ 50  │" not in shown
    assert "10 more jobs are not shown" in shown
    assert len(terminal.json("flow", "show", id)["members"]) == 60


def test_a_flow_that_is_being_cancelled_is_shown_as_such(terminal):
    id = made(terminal, 2)
    claimed = terminal.store.claim(["default"])  # a running job that ignores the cancellation
    assert claimed is not None
    assert terminal("cancel", id) == f"Flow {id} was asked to stop.\n"
    assert "The flow is being cancelled" in terminal("flow", "show", id)
    assert terminal.json("flow", "show", id)["cancelling"] is True
    assert "it is being cancelled" in terminal("explain", id)


def made(terminal, jobs):
    (terminal.folder / "wide.py").write_text(WIDE)
    words = [sys.executable, "wide.py", str(jobs)]
    done = subprocess.run(words, cwd=terminal.folder, env=terminal.env, capture_output=True, check=True)
    return done.stdout.decode().strip()

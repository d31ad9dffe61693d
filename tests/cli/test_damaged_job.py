"""A damaged job is listed, shown and deleted without a traceback."""

import sqlite3


def damage(terminal, column, value):
    connection = sqlite3.connect(terminal.folder / "holdfast.db")
    with connection:
        connection.execute(f"UPDATE holdfast_job SET {column} = ? WHERE id = 'odd'", (value,))
    connection.close()


def test_a_damaged_job_is_listed_shown_and_deleted(terminal):
    terminal("enqueue", '{"id": "odd", "cmd": "true"}')
    terminal("enqueue", '{"id": "sound", "cmd": "true"}')
    damage(terminal, "extra", b"\xffno json")
    damage(terminal, "state", "nowhere")
    output = terminal("list")
    assert "blocked (damaged)" in output
    assert "sound" in output
    shown = terminal("show", "odd")
    assert "damaged extra \\xffno json" in shown
    assert "damaged state nowhere" in shown
    assert terminal.json("show", "odd")["damage"]["state"] == "nowhere"
    assert "cannot be decoded" in terminal("explain", "odd")
    assert "delete the job" in terminal("retry", "odd", code=1)
    terminal("status")
    assert terminal("delete", "odd") == "Job odd deleted.\n"
    assert "no job 'odd'" in terminal("show", "odd", code=1)
    assert [job["id"] for job in terminal.json("list")["jobs"]] == ["sound"]


def test_a_payload_of_any_shape_can_be_listed(terminal):
    terminal("enqueue", '{"id": "odd", "cmd": "true"}')
    for payload in (b'{"*": 5}', b"[1]", b"\xff", b""):
        damage(terminal, "payload", payload)
        assert "odd" in terminal("list")
        terminal("show", "odd")

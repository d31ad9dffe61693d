"""`holdfast init`: write a starter project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import ConfigError

FILES = {
    "app.py": """\
from holdfast import Holdfast

# The store is that of HOLDFAST_URL, such as postgresql://host/db, else the file holdfast.db in the current folder.
app = Holdfast(imports=["tasks"])
""",
    "tasks.py": '''\
from app import app
from holdfast import Backoff, Context


@app.task
def add(a: int, b: int) -> int:
    """A plain function runs in a thread of the worker."""
    return a + b


@app.task(max_attempts=3, retry=Backoff(base=1))
async def greet(ctx: Context, name: str) -> str:
    """An async function runs on the worker's event loop. This one fails once, and is retried after about a second."""
    if ctx.attempt == 1:
        raise ConnectionError("the first attempt fails")
    return f"Hello, {name}!"
''',
    "main.py": """\
from tasks import add, greet

print("1 + 2 =", add.sync.enqueue(1, 2).result(timeout=30))
print(greet.sync.enqueue("Ada").result(timeout=30))
""",
    "README.md": """\
# A Holdfast project

`app.py` has the app and its store, `tasks.py` the tasks, and `main.py` enqueues two jobs and prints their results.
Start a worker, then run the program:

```console
$ holdfast worker start -A app:app
Started 1 worker on sqlite:///holdfast.db: …
Log: …
$ python main.py
1 + 2 = 3
Hello, Ada!
$ holdfast list
Jobs
…
$ holdfast worker stop
Stopping 1 worker …
Stopped.
```

`holdfast worker start -A app:app --foreground --reload` runs the worker in this terminal, and restarts it when a
file changes. `holdfast explain ID` says why a job does not run; `holdfast --help` lists all commands.
""",
    ".gitignore": "holdfast.db*\n__pycache__/\n",
}
"""The files of a starter project, by name."""


def init(
    folder: Annotated[Path, typer.Argument(metavar="[FOLDER]", help="Where to write; created if missing.")] = Path(),
) -> None:
    """Write a starter project: an app, two tasks, a program that enqueues them, and a README.

    Nothing is written if one of its files exists.
    """
    if exist := [name for name in FILES if (folder / name).exists()]:
        raise ConfigError(f"nothing was written: {folder / exist[0]} exists; name another folder: holdfast init FOLDER")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in FILES.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{error.filename} cannot be written: {error.strerror}; name another folder") from None
    print(f"Wrote {', '.join(FILES)} in {folder.resolve()}. Next: {folder / 'README.md'}")

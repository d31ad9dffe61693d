"""A shop that confirms orders in the background.

uvicorn shop:web          the shop, a worker in the same process, the dashboard on /queue/ (user admin, password secret)
python -m pytest          its tests
"""

import os
import secrets
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from fastapi.security import HTTPBasic, HTTPBasicCredentials

from holdfast import Holdfast, Worker
from holdfast.contrib.fastapi import HoldfastDep, dashboard, lifespan

DATABASE = os.environ.get("SHOP_DATABASE", "shop.db")
PASSWORD = os.environ.get("SHOP_PASSWORD", "secret")

queue = Holdfast(f"sqlite:///{DATABASE}")


@queue.task
def confirm(order_id: int) -> str:
    """Send the confirmation of an order."""
    return f"confirmed order {order_id}"


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    """The shop's own lifespan."""
    with sqlite3.connect(DATABASE) as db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL)")
    db.close()
    yield


async def get_db() -> AsyncIterator[sqlite3.Connection]:
    """A transaction for one request: committed before its response is sent, or rolled back."""
    db = sqlite3.connect(DATABASE)
    try:
        with db:
            db.execute("BEGIN IMMEDIATE")
            yield db
    finally:
        db.close()


Db = Annotated[sqlite3.Connection, Depends(get_db, scope="function")]


def admin(given: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())]) -> None:
    """Who may see and change jobs."""
    right = secrets.compare_digest(given.password.encode(), PASSWORD.encode())
    if given.username != "admin" or not right:
        raise HTTPException(401, headers={"WWW-Authenticate": "Basic"})


web = FastAPI(lifespan=lifespan(queue, tables, worker=Worker))
web.include_router(dashboard(queue, dependencies=[Depends(admin)]), prefix="/queue")


@web.post("/orders", status_code=201)
async def order(item: str, db: Db) -> dict[str, str | int]:
    """Store an order and the job that confirms it: both, or neither."""
    order_id = db.execute("INSERT INTO orders (item) VALUES (?) RETURNING id", [item]).fetchone()[0]
    job = await confirm.using(connection=db).enqueue(order_id)
    if not item:
        raise HTTPException(422, "which item?")
    return {"order": order_id, "job": job.id}


@web.get("/jobs/{job_id}")
async def state(job_id: str, queue: HoldfastDep) -> str:
    return (await queue.job(job_id)).state

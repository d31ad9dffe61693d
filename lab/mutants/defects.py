"""The defects, one by one: where, what stands there, what is put in its place, and who catches it.

`test` names a pytest selection; `seeds` is a number of simulated schedules, of which one must fail.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Defect:
    """One planted defect."""

    promise: str
    what: str
    file: str
    old: str
    new: str
    test: str = ""
    seeds: int = 0
    place: str = "server"
    """Where the schedules of these seeds take place."""

    @property
    def caught_by(self) -> str:
        return self.test or f"simulation on a {self.place}, seeds 0 to {self.seeds - 1}"


SQLITE = "tests/conformance/test_sqlite.py -k "
POSTGRES = "tests/conformance/test_postgres.py -k "
REDIS = "tests/conformance/test_redis.py -k "
MEMORY = "tests/conformance/test_memory.py -k "
LIFECYCLE = "tests/unit/test_lifecycle.py -k "
COMMIT = "tests/unit/test_commit.py -k "
COMMIT_BYTES = "tests/unit/test_commit_bytes.py -k "
MANY_LARGE = "tests/app/test_many_large.py -k "
BLOCKING = "tests/app/test_blocking_connection.py -k "
STEPS = "tests/worker/test_steps.py -k "
WAITING = "tests/worker/test_waiting.py -k "
REFUSED = "tests/worker/test_refused_ends.py -k "
MAKING = "tests/app/test_flow_making.py -k "
FLOW_WRITES = "tests/faults/test_flow_writes.py -k "
DAMAGED = "tests/faults/test_damaged_jobs.py -k "
PAUSING = "tests/app/test_pausing.py -k "
HALF = "tests/faults/test_half_written.py -k "
IDLE = "tests/worker/test_idle.py -k "
REFUSALS = "tests/worker/test_refused_jobs.py -k "
FOLLOW_UPS = "tests/app/test_follow_ups.py -k "
OUTSIDE = "tests/app/test_flow_outside.py -k "
CANCELLING = "tests/worker/test_cancelling.py -k "
NOTIFIED = "test_a_holder_is_notified_of_each_request_to_cancel_one_of_its_jobs"
TASK_LOGS = "tests/worker/test_task_logs.py -k "
STREAMS = "tests/worker/test_streams.py -k "
AUDIT = "tests/app/test_audit.py -k "
UNDO = "tests/app/test_undo.py -k "
EDITING = "tests/app/test_editing.py -k "
HTTP_AUDIT = "tests/http/test_http_audit.py -k "

CONTROL = "tests/worker/test_control.py -k "
DEADLINES = "tests/worker/test_deadlines.py -k "

DEFECTS = (
    # -- the reference store, and so every rule of the protocol, by simulation
    Defect(
        "F", "fence and token are not compared when a claim ends", "store/reference/jobs.py",
        "record.state != State.RUNNING or record.fence != fence or record.token != token",
        "record.state != State.RUNNING",
        seeds=400,
    ),
    Defect(
        "F", "a sweep is not refused when the holder has beaten since", "store/reference/jobs.py",
        "if end.expected_heartbeat is not None and self.holders[record.holder].heartbeat != end.expected_heartbeat:",
        "if end.expected_heartbeat is not None and self.holders[record.holder].heartbeat < 0:",
        MEMORY + "test_a_sweeper_is_refused_when_the_holder_has_renewed_since",
    ),
    Defect(
        "U", "a settlement that is sent again is refused", "store/reference/jobs.py",
        "return self.settled.get(end.id) == end.nonce", "return False",
        MEMORY + "test_a_settlement_sent_again_is_recognised",
    ),
    Defect(
        "U", "an insert that is sent again is another job's", "store/reference/jobs.py",
        """            ours = self.nonces.get(new.id, 0) == new.nonce
            return ops.Inserted("created" if ours else "exists", new.id)""",
        """            return ops.Inserted("exists", new.id)""",
        MEMORY + "test_an_insert_sent_again_is_created_once",
    ),
    Defect(
        "I", "a key is not remembered", "store/reference/jobs.py",
        "            self.keys[new.key] = Key(record.id, new.fingerprint, None, now)\n", "            pass\n",
        seeds=200,
    ),
    Defect(
        "L", "a lease counts as ended half-way", "store/reference/memory.py",
        "self.silent(known.holder.id) >= int(known.lease * MICROS)",
        "self.silent(known.holder.id) >= int(known.lease * MICROS / 2)",
        seeds=400,
    ),
    Defect(
        "L", "a claim does not raise the fence", "store/reference/jobs.py",
        "            record.fence += 1\n", "            record.fence = max(1, record.fence)\n",
        seeds=200,
    ),
    Defect(
        "B", "a claim does not count the attempt", "store/reference/jobs.py",
        "            record.attempt += 1\n", "            record.attempt += 0\n",
        MEMORY + "test_an_attempt_is_counted_at_the_claim",
    ),
    Defect(
        "O", "the order of a queue is reversed", "store/reference/ready_queues.py",
        "for _, run_at, seq in places:", "for _, run_at, seq in reversed(list(places)):",
        seeds=200,
    ),
    Defect(
        "O", "priority is left out of the order", "store/reference/sorted_queue.py",
        "    return (record.priority, record.run_at, record.seq)", "    return (0, record.run_at, record.seq)",
        seeds=300,
    ),
    # -- the core, by simulation
    Defect(
        "N", "workers do not look for lost leases", "worker/maintenance.py",
        "await self._claims.recover(max_age=0.0 if pause == self._every else 2 * pause)", "pass",
        seeds=200,
    ),
    Defect(
        "N", "a lease that expires between two lists of holders is found late", "client/session.py",
        "if now >= min(self._listed_at + max_age, self._first_expiry):", "if now >= self._listed_at + max_age:",
        IDLE + "before_the_holders_are_listed_again",
    ),
    Defect(
        "N", "a change that is notified during a read is missed", "client/watched_records.py",
        "oldest = max(asked - max_age, self._changed_at.get(kind, -math.inf))", "oldest = asked - max_age",
        IDLE + "test_a_change_during_a_read_is_read_again",
    ),
    Defect(
        "N", "a watcher relies on events that do not arrive", "store/sqlite/wake.py",
        "(events.ended or self._missed >= MISSED_LIMIT)", "events.ended",
        "tests/sqlite/test_sqlite_wake.py -k not_reliable_after_commits_without_events",
    ),
    Defect(
        "N", "Postgres notifies nobody of jobs that a claim releases for others",
        "store/postgres/migrations/0001_initial/07_pick.sql",
        "IF cardinality(released) > ask_limit OR NOT released <@ ask_queues THEN", "IF false THEN",
        POSTGRES + "test_a_reliable_listener",
    ),
    Defect(
        "N", "Redis notifies nobody of jobs that a claim releases for others", "store/redis/lua/limiter.lua",
        "if limiters.room < 0 or not limiters.asked[queue] then", "if false then",
        REDIS + "test_a_reliable_listener",
    ),
    Defect(
        "L", "who lives is taken for lost when a store comes back", "client/session.py",
        "self._gives_way_until = self.clock.monotonic() + seconds", "self._gives_way_until = self.clock.monotonic()",
        "tests/worker/test_store_trouble.py -k live_worker_is_not_taken_for_lost",
    ),
    Defect(
        "N", "a rate waits for a time that a wrong clock has set", "store/stalls.py",
        "if at - self._seen[name][1] >= span:", "if at < 0:",
        "tests/app/test_rates_by_wrong_clocks.py -k goes_on",
    ),
    Defect(
        "N", "whether a job of a flow is needed is decided before all in front of it have ended", "core/flow_rules.py",
        "useless = f\"not needed, because {name} was not needed\"",
        "return unrun(child, f\"not needed, because {name} was not needed\")",
        "tests/app/test_flows.py -k does_not_depend_on_which_job_ended_first",
    ),
    Defect(
        "C", "how long a flow was not started is measured by the wall clock", "flows/creation.py",
        """        now = self._clock.monotonic()
        watched, self._looked_at = min(now - self._looked_at, LONGEST_GAP), now""",
        """        now = self._clock.now() / 1_000_000
        watched, self._looked_at = now - self._looked_at, now""",
        MAKING + "test_a_wall_clock_that_is_off_gives_up_no_flow",
    ),
    Defect(
        "C", "a stopped process counts the stopped time as watching a flow", "flows/creation.py",
        "min(now - self._looked_at, LONGEST_GAP), now", "now - self._looked_at, now",
        MAKING + "test_a_process_that_was_stopped_for_hours_has_watched_nothing",
    ),
    Defect(
        "C", "a slow clock delays jobs that a flow releases", "core/flow_rules.py",
        "child.run_at > max(now, child.created_at)", "child.run_at > now",
        MAKING + "test_a_wall_clock_that_is_off_gives_up_no_flow",
    ),
    Defect(
        "C", "a limit key that has room opens by the clock of its creator", "store/reference/ready_queues.py",
        "self._opens(record.limit_key.name, AT_ONCE)",
        "self._opens(record.limit_key.name, record.finished_at or AT_ONCE)",
        MEMORY + "test_capacity_freed_by_a_process_whose_clock_is_ahead",
    ),
    Defect(
        "U", "the answer to the insert that starts a flow is ignored", "flows/creation.py",
        """        if isinstance(answer, HoldfastError):
            try:""",
        """        if not answer:
            try:""",
        MAKING + "test_starting_an_abandoned_flow_raises",
    ),
    Defect(
        "U", "a running flow is reported as not stored", "flows/release.py",
        "except Exception as error:  # noqa: BLE001  # a driver may raise anything; the pending work is written",
        "except ZeroDivisionError as error:",
        FLOW_WRITES + "test_a_flow_that_is_said_to_be_enqueued and sqlite",
    ),
    Defect(
        "U", "the jobs of a flow that is enqueued again are not recognised", "flows/service.py",
        "nonce_of(id, digest), msgspec", "session.entropy.token(), msgspec",
        FLOW_WRITES + "test_a_flow_that_is_enqueued_again and sqlite",
    ),
    Defect(
        "U", "an interrupted retry of a flow is reported as not written", "flows/service.py",
        "raise OutcomeUnknown(text, (id,)) from error", "raise StoreUnavailable(text) from error",
        FLOW_WRITES + "test_a_flow_that_is_said_to_be_retried and sqlite",
    ),
    Defect(
        "N", "a claim whose answer was lost is never released", "worker/lease.py",
        "now - since > self.holder.lease / 6", "now - since > self.holder.lease * 1e9",
        seeds=600,
    ),
    Defect(
        "L", "a worker releases a claim whose answer has not arrived yet", "worker/lease.py",
        "if held[key].token not in self._unanswered", "if held[key].token",
        "tests/worker/test_late_claims.py -k does_not_release_a_claim_that_is_on_its_way",
    ),
    Defect(
        "L", "a job starts after a late claim answer without a check that the claim is valid", "client/claims.py",
        "(now := clock.monotonic()) - asked < holder.lease / 2",
        "(now := clock.monotonic()) - asked < holder.lease * 1e9",
        "tests/worker/test_late_claims.py -k another_took_while_the_answer_was_late",
    ),
    Defect(
        "L", "heartbeats are sent too late", "client/heartbeat.py",
        "pause = self.holder.lease / 3", "pause = self.holder.lease * 3",
        seeds=400,
    ),
    Defect(
        "L", "after one failed heartbeat no further heartbeat is sent", "client/heartbeat.py",
        "                pause = min(1.0, pause / 4)\n",
        "                break\n",
        "tests/worker/test_store_trouble.py -k test_a_failed_heartbeat_does_not_stop_later_heartbeats",
    ),
    Defect(
        "F", "a worker reports a refused completion as a success", "worker/settle.py",
        "        if answer:\n            self._events.settled(",
        "        if True:\n            self._events.settled(",
        REFUSED + "by_a_worker",
    ),
    Defect(
        "F", "a refused completion of a manual claim is reported as a success", "client/claims.py",
        "        if written:\n            self._runtime.events.settled(",
        "        if True:\n            self._runtime.events.settled(",
        REFUSED + "by_hand",
    ),
    Defect(
        "F", "the outcome of a run is dropped when the store does not answer", "worker/settle.py",
        "            self._loop.call_later(RESEND_PAUSE, self._again, run, end)\n", "",
        seeds=600,
    ),
    Defect(
        "F", "a repeated settlement gets another nonce", "worker/settle.py",
        "            self._write(run, end)\n",
        "            self._write(run, self._end(run.record, Outcome.succeeded(None)))\n",
        seeds=600,
    ),
    Defect(
        "U", "a batch whose answer was lost is answered as unwritten", "store/group_commit.py",
        "            await self._resend(group, error)\n            return\n",
        '            group.fail(StoreUnavailable("no answer"))\n            return\n',
        seeds=400,
    ),
    Defect(
        "U", "an ask is sent again with the batch whose answer was lost", "store/group_commit.py",
        "        group.asks.clear()\n", "",
        COMMIT + "unknown or claim or ask",
    ),
    Defect(
        "N", "jobs are not released if their claim call was cancelled before the answer", "store/group_commit.py",
        """            if waiter.done():
                self.give_back(claims)
            else:""",
        """            if not waiter.done():""",
        COMMIT + "test_jobs_of_a_claimer_that_is_cancelled_in_flight_go_back",
    ),
    Defect(
        "", "a settlement overtakes the notes of its claim", "store/group_commit.py",
        "_Room().take(self._settles, group.settles, settlement_bytes, after=unwritten)",
        "_Room().take(self._settles, group.settles, settlement_bytes)",
        COMMIT_BYTES + "test_a_settlement_never_overtakes_the_notes_of_its_claim",
    ),
    Defect(
        "", "a write is not bounded by bytes", "store/group_commit.py",
        "self._bytes -= needed", "self._bytes -= 0",
        COMMIT_BYTES + "test_operations_that_wait_share_writes_of_bounded_bytes",
    ),
    Defect(
        "", "enqueue_many takes all calls before it writes", "client/many_calls.py",
        "while self._bytes < AHEAD_BYTES and", "while",
        MANY_LARGE + "test_calls_are_taken_a_bounded_way_ahead_of_bounded_writes",
    ),
    Defect(
        "U", "an earlier refusal hides the unknown outcome of enqueue_many", "client/many_calls.py",
        "refused.sort(key=lambda error: not isinstance(error, OutcomeUnknown))", "pass",
        "tests/app/test_partial_bulk.py -k test_an_unknown_outcome_is_not_hidden_by_an_earlier_refusal",
    ),
    Defect(
        "D", "an enqueue answers before its write", "client/enqueue.py",
        "        return await session.commit.insert(jobs, unknown)\n",
        """        import asyncio

        answers = [Inserted("created", job.id) for job in jobs]
        asyncio.ensure_future(session.commit.insert(jobs)).add_done_callback(lambda done: done.exception())
        return answers
""",
        seeds=200,
    ),
    Defect(
        "U", "a job is reported as not written after a blocking caller lost the answer", "client/enqueue.py",
        "            answers, unknown = None, error\n", "            answers = None\n",
        BLOCKING + "test_a_job_that_may_be_stored_is_never_called_unwritten",
    ),
    Defect(
        "D", "after an interrupted blocking call, the next call reads its answer", "store/blocking.py",
        """            except BaseException as error:  # whatever it is, the next caller must not read this answer
                self._drop()
""",
        """            except BaseException as error:
""",
        BLOCKING + "test_an_interrupted_caller_leaves_no_answer_to_the_next",
    ),
    Defect(
        "D", "a forked child keeps the parent's connection for blocking callers", "store/redis/store.py",
        """        for part in (self._link, self._listeners, self._blocking):
            if part is not None:
                part.forget()
        self._link = self._listeners = self._blocking = None
""",
        """        for part in (self._link, self._listeners):
            if part is not None:
                part.forget()
        self._link = self._listeners = None
""",
        BLOCKING + "test_a_forked_child_has_a_connection_of_its_own",
    ),
    Defect(
        "B", "a stopping worker charges the jobs that it releases", "worker/run/runner.py",
        """        if run.why in ("release", "lost") or isinstance(error, NotStarted):
            return Outcome.released()""",
        """        if run.why in ("release", "lost") or isinstance(error, NotStarted):
            return Outcome.failed("stopped")""",
        "tests/worker/test_stopping.py -k test_after_the_grace_period_a_job_goes_back_uncharged",
    ),
    # -- the job lifecycle
    Defect(
        "B", "one attempt too many", "core/lifecycle.py",
        "record.attempt >= record.max_attempts", "record.attempt > record.max_attempts",
        LIFECYCLE + "test_at_most_max_attempts_starts_are_charged",
    ),
    Defect(
        "B", "a release is charged", "core/lifecycle.py",
        "        attempt, error, traceback = attempt - 1, record.error, record.traceback\n        quarantined, crashes",
        "        attempt, error, traceback = attempt, record.error, record.traceback\n        quarantined, crashes",
        LIFECYCLE + "test_what_is_given_back_is_not_charged",
    ),
    Defect(
        "Q", "a crash counts for all jobs of the process", "core/lifecycle.py",
        "crashes = -COMPANY if not record.quarantined else", "crashes = 1 if not record.quarantined else",
        LIFECYCLE + "test_a_neighbour_that_died_with_its_process_is_quarantined_but_not_counted",
    ),
    Defect(
        "Q", "no job becomes dead because of crashes", "core/lifecycle.py",
        "if crashes >= rules.max_crashes:", "if crashes >= rules.max_crashes * 1000:",
        seeds=100,
    ),
    Defect(
        "Q", "other jobs are claimed beside a quarantined job", "worker/slots.py",
        "if self._quarantined or self.closed:", "if self.closed:",
        "tests/unit/test_worker_slots.py",
    ),
    Defect(
        "F", "a lost claim that was cancelled runs again", "core/lifecycle.py",
        'if kind == "cancelled" or (kind == "lost" and record.cancel):', 'if kind == "cancelled":',
        LIFECYCLE + "cancel",
    ),
    # -- SQLite
    Defect(
        "F", "SQLite ends a claim without comparing the fence", "store/sqlite/sql.py",
        '_CLAIMED = "seq = ? AND id = ? AND fence = ? AND token = ?',
        '_CLAIMED = "seq = ? AND id = ? AND coalesce(?, 0) >= 0 AND token = ?',
        SQLITE + "TestFences",
    ),
    Defect(
        "F", "SQLite ends plain successes without comparing the token", "store/sqlite/sql.py",
        "AND fence = ended.column6 AND token = ended.column7",
        "AND fence = ended.column6 AND ended.column7 IS NOT NULL",
        SQLITE + "TestFences",
    ),
    Defect(
        "F", "SQLite completes a job in its task's transaction without its fence", "store/sqlite/transaction.py",
        "    if not settle_all(step, [end])[0]:\n        raise LeaseLost(end.id, end.fence)\n",
        "    settle_all(step, [end])\n",
        SQLITE + "test_a_block_that_fails_or_whose_claim_has_ended_keeps_nothing",
    ),
    Defect(
        "L", "SQLite's claim leaves its jobs queued", "store/sqlite/sql.py",
        "UPDATE holdfast_job SET state = 'running', attempt = attempt + 1",
        "UPDATE holdfast_job SET state = 'queued', attempt = attempt + 1",
        SQLITE + "test_a_running_job_is_not_claimed_again",
    ),
    Defect(
        "N", "SQLite treats leases of an earlier boot as valid", "store/sqlite/sql.py",
        "AND (expires IS NULL OR expires <= ? OR boot_id <> ?) LIMIT ?",
        "AND (expires IS NULL OR expires <= ? OR ? IS NULL) LIMIT ?",
        SQLITE + "test_a_reboot_ends_every_lease",
    ),
    Defect(
        "C", "SQLite measures leases by the wall clock", "store/sqlite/holders.py",
        "        step.boot + int(holder.lease * MICROS),\n", "        step.now + int(holder.lease * MICROS),\n",
        SQLITE + "TestLeases",
    ),
    Defect(
        "L", "SQLite's lock delays heartbeats until their leases expire", "store/sqlite/store.py",
        "if lost and holder is None and await self._kept_waiting():", "if lost and holder is None and limit < 0:",
        "tests/sqlite/test_sqlite_locks.py -k while_its_heartbeat_waits_there",
    ),
    Defect(
        "I", "SQLite looks up no key", "store/sqlite/enqueue.py",
        "if new.key is not None and (known := step.one(sql.KEY, new.key, step.now)) is not None:",
        "if new.key is not None and (known := step.one(sql.KEY, new.key + '?', step.now)) is not None:",
        SQLITE + "TestKeys",
    ),
    Defect(
        "D", "SQLite gives all jobs of a batch the values of one", "store/sqlite/enqueue.py",
        "if len(shared) == 1 else None", "if shared else None",
        "tests/conformance/test_sqlite.py -k large_batch_is_stored",
    ),
    Defect(
        "I", "SQLite looks up no key of a batch", "store/sqlite/enqueue.py",
        "msgspec.json.encode(keys).decode(), step.now) == 1", "msgspec.json.encode(keys).decode(), step.now) == 2",
        SQLITE + "TestKeys",
    ),
    Defect(
        "D", "SQLite's durability is not as asked", "store/sqlite/connection.py",
        'connection.execute(f"PRAGMA synchronous = {synchronous}")', 'connection.execute("PRAGMA synchronous = OFF")',
        "tests/sqlite/test_sqlite_place.py -k durability",
    ),
    Defect(
        "N", "SQLite never makes due jobs ready", "store/sqlite/claim.py",
        "(queue, step.now, PROMOTE_LIMIT)", "(queue, step.now, 0)",
        SQLITE + "TestDue",
    ),
    Defect(
        "U", "SQLite does not remove the data of a failed commit from its log", "store/sqlite/sql.py",
        "SET applied_at = applied_at + 1 WHERE", "SET applied_at = applied_at WHERE",
        "tests/lab/test_disk.py -k sqlite",
    ),
    # -- a bucket, by simulation of its own code
    Defect(
        "D", "a bucket's writer that paused reuses a log number whose entry was deleted", "store/bucket/log.py",
        "or any(number_of(each.key) >= number for each in listed):", "or number < 0:",
        seeds=300, place="bucket",
    ),
    Defect(
        "D", "a bucket's put that is answered `exists` is treated as a success", "store/bucket/writer.py",
        """                if await self._bucket.put_if_absent(log_key(number), data):
                    return None
""",
        """                await self._bucket.put_if_absent(log_key(number), data)
                return None
""",
        seeds=300, place="bucket",
    ),
    Defect(
        "C", "one process's wall clock decides when a bucket's ended jobs are moved", "store/bucket/compactor.py",
        "for place, job in ended.items() if now",
        "for place, job in ended.items() if (job.finished_at or 0) < self._clock.now() - 86400 * MICROS or now",
        "tests/bucket/test_bucket_ended.py -k wrong_clock",
    ),
    Defect(
        "", "a heartbeat under way replaces a newer description of its worker", "client/heartbeat.py",
        "        await self._answered.wait()\n", "",
        "tests/unit/test_heartbeat.py -k new_description",
    ),
    Defect(
        "L", "a heartbeat on Redis is repeated on a connection that does not answer", "store/redis/store.py",
        "            link.drop_if_silent()  #", "            pass  #",
        "tests/redis/test_redis_trouble.py -k silent_connection",
    ),
    Defect(
        "L", "a bucket's lease expires after half of its time", "store/bucket/watch.py",
        "return known.left or self.silent(replica, known) >= known.lease",
        "return known.left or self.silent(replica, known) >= known.lease / 2",
        seeds=300, place="bucket",
    ),
    Defect(
        "L", "in a bucket two processes count the same time without a heartbeat", "store/bucket/replica.py",
        "if since >= before.until:", "if since >= 0:",
        seeds=300, place="bucket",
    ),
    Defect(
        "N", "a bucket's engine keeps running when its app could not be opened", "client/runtime.py",
        """                with suppress(Exception):
                    await session.store.close()
            session.store.release()""",
        """                pass
            pass""",
        "tests/bucket/test_bucket_processes.py -k cannot_be_read_leaves_no_thread",
    ),
    # -- Postgres
    Defect(
        "F", "Postgres ends claims in bulk without comparing the fence",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "WHERE j.seq = u.seq AND j.fence = u.fence AND j.token = u.token AND j.state || '' = 'running'",
        "WHERE j.seq = u.seq AND j.token = u.token AND j.state || '' = 'running'",
        POSTGRES + "TestFences",
    ),
    Defect(
        "F", "Postgres ends a claim without comparing the token",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "j.state <> 'running' OR j.fence <> e.fence OR j.token <> e.token THEN",
        "j.state <> 'running' OR j.fence <> e.fence THEN",
        POSTGRES + "TestFences",
    ),
    # -- steps and signals
    Defect(
        "D", "a finished step runs again", "tasks/durable_steps.py",
        "        if done is not None:\n", "        if done is not None and not done.at:\n",
        STEPS + "test_a_step_that_is_done_is_not_run_again",
    ),
    Defect(
        "D", "the result of a step that ends while its worker stops is lost", "tasks/durable_steps.py",
        "await asyncio.shield(keeping)", "await keeping",
        STEPS + "test_a_step_that_is_done_as_its_worker_stops_is_remembered",
    ),
    Defect(
        "D", "an attempt restarts a sleep from the beginning", "tasks/durable_steps.py",
        'step = self._memory.find("sleep", str(self._sleeps))', 'step = self._memory.find("sleep", "")',
        "tests/worker/test_sleeping.py -k test_a_sleep_is_not_begun_anew_by_a_crash_a_failure_or_a_retry",
    ),
    Defect(
        "N", "a signal that was sent first is missed", "worker/settle.py",
        'if answer and end.waiting_for is not None and end.waiting_for.kind == "signal":',
        "if answer and end.waiting_for is None and end.record_end:",
        WAITING + "test_a_signal_that_was_sent_first_is_not_missed",
    ),
    Defect(
        "N", "a job whose worker crashed while suspending it never checks for its signal", "tasks/durable_steps.py",
        "raise Suspended(min(left, RECHECK_AFTER), ", "raise Suspended(left, ",
        WAITING + "test_a_worker_that_dies_before_its_second_look_leaves_a_job_that_looks_by_itself",
    ),
    Defect(
        "N", "a signal that a dead sender did not deliver is never delivered", "client/signals.py",
        "if at is not None and (sent := await _sent(session, name, at)) is not None:",
        "if at == 0 and (sent := await _sent(session, name, at)) is not None:",
        WAITING + "test_a_sender_that_dies_at_any_of_its_writes_has_not_sent_or_is_finished_by_maintenance",
    ),
    Defect(
        "N", "a job that changed while it was woken is not woken again", "client/signals.py",
        "refused or not all(written)", "refused",
        WAITING + "test_a_job_that_is_put_to_rest_while_its_signal_is_sent_is_woken_all_the_same",
    ),
    Defect(
        "N", "maintenance removes a signal that was sent again", "client/signals.py",
        "if sent_again or entered not in still[kind] or still[kind][entered].version != kept.version:",
        "if entered not in still[kind]:",
        WAITING + "test_maintenance_that_is_late_does_not_forget_what_was_sent_again",
    ),
    Defect(
        "C", "a fast clock removes a signal too early", "client/signals.py",
        "return self._session.clock.monotonic() - self._seen[name][1] >= WATCHED", "return True",
        WAITING + "test_a_clock_that_is_ahead_forgets_no_signal_that_it_has_just_seen",
    ),
    # -- pauses
    Defect(
        "N", "a job is deferred by a pause that was read before its claim", "client/pauses.py",
        "if self._read <= begun:", "if not self._read:",
        PAUSING + "test_a_worker_that_missed_the_end_of_a_pause_does_not_defer_a_job",
    ),
    Defect(
        "N", "a read of the pauses that failed counts as made", "client/pauses.py",
        "if self._read <= begun:", "if self._reads == begun:",
        PAUSING + "test_a_read_that_failed_for_one_job_confirms_no_pause_for_the_next",
    ),
    Defect(
        "N", "the record of a lifted pause is removed too early", "client/pauses.py",
        "if not claims and not (await", "if not (await",
        PAUSING + "test_a_job_deferred_after_its_pause_was_lifted_is_freed_whatever_the_clocks_say",
    ),
    Defect(
        "N", "a record version is reused after a removal", "store/reference/jobs.py",
        "            self.versions += 1\n", "            self.versions = version + 1\n",
        MEMORY + "test_a_version_is_not_given_again_after_a_removal",
    ),
    # -- operations made of several writes
    Defect(
        "U", "an operation that is written in part says that nothing was written", "core/writes.py",
        "if self.made and isinstance(error, StoreUnavailable | ConfigError):", "if self.made < 0:",
        HALF + "sqlite",
    ),
    Defect(
        "U", "a stored signal is reported as not written", "client/signals.py",
        'with Writes(f"signal {name!r}", then, made=1):', 'with Writes(f"signal {name!r}", then):',
        HALF + "sqlite",
    ),
    Defect(
        "U", "the end of a pause is reported as not written", "client/pauses.py",
        """            freed = await self._free(pause)
        except HoldfastError as error:""",
        """            freed = await self._free(pause)
        except ZeroDivisionError as error:""",
        HALF + "sqlite",
    ),
    Defect(
        "U", "a bulk change does not count the changed jobs", "client/bulk_change.py",
        "                    writes.made += 1\n", "",
        HALF + "sqlite",
    ),
    Defect(
        "U", "a repeated change that is refused is reported as not made", "store/group_commit.py",
        "if not all(answers.changes[at : at + len(changes)]):", "if not changes:",
        COMMIT + "test_a_change_that_is_refused_when_it_is_sent_again_may_have_been_made",
    ),
    # -- limits
    Defect(
        "", "the concurrency of a limit key is not counted", "store/reference/ready_queues.py",
        "limiter.starts(limit_key, self.running.get(limit_key.name, 0), picking.now) <= before",
        "limiter.starts(limit_key, 0, picking.now) <= before",
        seeds=400,
    ),
    Defect(
        "", "a rate limit is ignored", "core/limiter.py",
        "self.tat = max(self.tat, now) + limit_key.interval", "self.tat = max(self.tat, now)",
        seeds=400,
    ),
    Defect(
        "N", "a limiter is not opened again when a job leaves", "store/reference/ready_queues.py",
        "            self._opens(record.limit_key.name, AT_ONCE)\n        return deferred",
        "            pass\n        return deferred",
        seeds=400,
    ),
    Defect(
        "", "a weight is ignored", "core/limiter.py",
        "step = max(1, STEP // limit_key.weight)", "step = STEP",
        MEMORY + "TestFairOrder",
    ),
    Defect(
        "", "Postgres counts ended jobs that were removed", "store/postgres/migrations/0001_initial/03_transitions.sql",
        "IF TG_OP <> 'INSERT' THEN", "IF TG_OP = 'UPDATE' THEN",
        POSTGRES + "test_counts_follow_state_changes",
    ),
    Defect(
        "", "Postgres loses counts of ended jobs when it adds them up",
        "store/postgres/migrations/0001_initial/03_transitions.sql",
        "SELECT p.queue, p.state, sum(p.count) FROM parts AS p GROUP BY",
        "SELECT p.queue, p.state, max(p.count) FROM parts AS p GROUP BY",
        "tests/postgres/test_ended_counts.py -k test_tidy_adds_the_counts_up",
    ),
    Defect(
        "", "Postgres ignores the concurrency of a limit key", "store/postgres/migrations/0001_initial/04_limits.sql",
        "greatest(0, (limit_key ->> 'concurrency')::bigint - running)",
        "greatest(0, (limit_key ->> 'concurrency')::bigint)",
        POSTGRES + "TestRunningAtOnce",
    ),
    Defect(
        "", "Redis ignores a rate limit", "store/redis/lua/limiter.lua",
        "text(math.max(limiters.tat[limit_key], now) + used)", "text(math.max(limiters.tat[limit_key], now))",
        REDIS + "TestRates",
    ),
    # -- flows
    Defect(
        "", "a job of a flow is released before its last parent has ended", "core/flow_rules.py",
        "            waiting_for = end_of(id)\n            continue\n", "            continue\n",
        seeds=400,
    ),
    Defect(
        "N", "a compensation ignores an earlier dead job of the flow", "core/flow_rules.py",
        "died = died or not (well or idle)", "died = not (well or idle)",
        "tests/app/test_flow_retries.py -k test_one_compensation_for_several",
    ),
    Defect(
        "N", "a job of a flow that is run again still says that it was not run", "core/internal.py",
        "\"deadline_in\", \"not_run\"))", "\"deadline_in\"))",
        "tests/app/test_flow_ends.py -k test_a_job_that_was_retried_and_then_cancelled_does_not_fail_its_flow",
    ),
    Defect(
        "N", "the error texts of its jobs decide the state of a flow", "core/flow_rules.py",
        'return _not_run(record) == "failed_parent"', 'return (record.error or "").startswith("not run: job")',
        "tests/app/test_flow_ends.py -k whatever_its_error_says",
    ),
    Defect(
        "N", "a small flow ends without a check for added jobs", "flows/small_flows.py",
        "if about.grown or has_grown(own.meta):", "if about.grown:",
        "tests/app/test_flow_ends.py -k test_a_small_flow_does_not_end",
    ),
    Defect(
        "N", "a small flow that ended does not see that it has grown meanwhile", "flows/small_flows.py",
        "for flow in over if grown[counting(flow)]}", "for flow in over if False}",
        "tests/app/test_flow_ends.py -k added_just_before_it_ended",
    ),
    Defect(
        "N", "a flow ends before a job whose number was already reserved", "flows/completion.py",
        "if kept is not None and (number_kept(kept) or 0) > about.jobs + about.grown:", "if kept is UNKNOWN:",
        "tests/app/test_flow_ends.py -k number_was_taken_before_it_ended",
    ),
    Defect(
        "N", "a flow is ended by a process that read its jobs before a retry", "flows/completion.py",
        "Patch(meta=GOING_ON, reset_count=own.reset_count + 1)", "Patch(meta=GOING_ON)",
        "tests/app/test_flow_retries.py -k read_its_jobs_before_a_retry",
    ),
    Defect(
        "N", "a retried flow waits for its jobs before they are reset", "flows/completion.py",
        "        done, *made = await self._jobs.change([_reopened(own), *changes])\n",
        "        [done], made = await self._jobs.change([_reopened(own)]), await self._jobs.change(changes)\n",
        "tests/app/test_flow_retries.py -k from_the_commit_that_resets_them",
    ),
    Defect(
        "L", "a job that waited for a thread starts after its lease may be over", "worker/run/ahead.py",
        "if not self.take() or late:", "if not self.take():",
        "tests/unit/test_prefetched.py -k after_its_deadline",
    ),
    Defect(
        "L", "a job that waits for a thread starts though its claim is lost", "worker/run/run.py",
        "        if self.ahead is not None:\n            self.ahead.take_back()\n", "",
        "tests/unit/test_prefetched.py -k taken_back",
    ),
    Defect(
        "N", "a worker keeps jobs that wait for a thread from other workers", "worker/prefetch.py",
        "if now <= run.ahead.deadline:", "if run.why is None:",
        "tests/unit/test_prefetched.py -k does_not_start_in_time",
    ),
    Defect(
        "Q", "a job that waited for a thread is charged for the crash of its process", "worker/supervisor.py",
        "unstarted=child.unstarted.covers", "unstarted=lambda record: False",
        "tests/worker/test_prefetch.py -k charges_only_what_had_started",
    ),
    Defect(
        "N", "a claim whose caller is gone is kept", "client/claims.py",
        "    @unless_delivered(_give_back)\n    async def claim(\n", "    async def claim(\n",
        "tests/app/test_waiting_claims.py -k was_cancelled_is_given_back",
    ),
    Defect(
        "N", "an end is not recorded with its commit", "store/reference/jobs.py",
        "        if end.record_end:\n            self._record_ended(record)\n", "",
        MEMORY + "TestRecordedEnds",
    ),
    Defect(
        "N", "SQLite does not record ends in bulk", "store/sqlite/settle.py",
        "    transitions.ended(step, [end.id for end in ends if end.record_end])\n", "",
        SQLITE + "TestRecordedEnds",
    ),
    Defect(
        "N", "the end of a job with a follow-up is not recorded", "core/lifecycle.py",
        "recorded = in_flow or (record.extra is not None and follow_ups.recorded(record.extra, State.SUCCEEDED))",
        "recorded = in_flow",
        FOLLOW_UPS + "test_another_worker_stores_it_if_the_process_dies_after_the_end",
    ),
    Defect(
        "N", "a retry drops a follow-up that is not stored yet", "client/operations.py",
        "failed = await self._flows().store_follow_ups([record])", "failed = None",
        FOLLOW_UPS + "test_a_retry_or_delete_after_the_end_stores_it_first",
    ),
    Defect(
        "I", "a follow-up gets a new id whenever it is stored", "core/follow_ups.py",
        "digest = hashlib.blake2b(end, digest_size=16).digest()", 'digest = __import__("os").urandom(16)',
        FOLLOW_UPS + "test_it_is_stored_once_though_several_workers_store_it",
    ),
    Defect(
        "I", "a follow-up that ran and was deleted is stored again", "flows/release.py",
        "owing = [(record, job) for record, job in owing if record.id in recorded]", "pass",
        FOLLOW_UPS + "test_one_that_ran_and_was_deleted",
    ),
    Defect(
        "N", "a parent outside of the flow that is retried before the second check is not awaited", "flows/release.py",
        "await self._await_outside(outside & unfinished)", "pass",
        OUTSIDE + "test_a_parent_that_is_retried_before_it_is_checked_again_stays_awaited",
    ),
    Defect(
        "N", "a flow does not wait for an outside parent that is retried", "flows/release.py",
        "if _life(before.get(id)) == _life(after.get(id)):", "if id:",
        OUTSIDE + "test_a_parent_that_is_retried_before_its_end_is_processed_stays_awaited",
    ),
    # -- one job for many calls, and one call for many jobs
    Defect(
        "I", 'a key with unique="until_end" is free once its job runs', "store/reference/jobs.py",
        "return not new.unique or (record is not None and record.state not in TERMINAL)",
        "return not new.unique or (record is not None and record.state in WAITING)",
        seeds=400,
    ),
    Defect(
        "I", "SQLite frees a key while its job waits for a retry", "store/sqlite/enqueue.py",
        'return state in WAITING if new.unique == "until_start"',
        'return state == "queued" if new.unique == "until_start"',
        SQLITE + "TestUnique",
    ),
    Defect(
        "I", "an ended job still has its key", "store/reference/jobs.py",
        "return None if record is None or record.state in TERMINAL else record.id",
        "return None if record is None else record.id",
        "tests/conformance/test_memory.py -k TestKeyOwners",
    ),
    Defect(
        "I", "SQLite gives a key to a job that has ended", "store/sqlite/sql.py",
        "AND state NOT IN ({_FINAL})", "AND state NOT IN ('succeeded', 'cancelled')",
        SQLITE + "TestKeyOwners",
    ),
    Defect(
        "F", "a requested cancellation replaces the final state of a lost job",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "IF j.cancel AND state NOT IN ({FINAL_STATES}) THEN", "IF j.cancel THEN",
        POSTGRES + "TestFinalStates",
    ),
    Defect(
        "I", "Redis takes a dead job for unfinished", "store/redis/lua/owner.lua",
        "ENDED[state] or", "state == STATE.succeeded or", REDIS + "TestFinalStates",
    ),
    Defect(
        "I", "Postgres gives a key to a job that has ended", "store/postgres/sql.py",
        "(SELECT j.id FROM holdfast.job AS j WHERE j.id = k.id)", "k.id",
        POSTGRES + "TestKeyOwners",
    ),
    Defect(
        "I", "Redis gives a key to a job that has ended", "store/redis/lua/key_owners.lua",
        "id and is_unfinished(id) and id or false", "id or false",
        REDIS + "TestKeyOwners",
    ),
    Defect(
        "F", "a job of a batch gets the result of another job", "worker/run/batch.py",
        "for share, part in zip(shares, found, strict=True):",
        "for share, part in zip(shares[::-1], found, strict=True):",
        "tests/worker/test_batches.py -k test_each_job_has_a_result_of_its_own",
    ),
    # -- checkpoints
    Defect(
        "D", "an older checkpoint that arrives late overwrites the newer one", "store/reference/apply.py",
        "if new.checkpoint is not UNSET and new.saves > record.saves:", "if new.checkpoint is not UNSET:",
        MEMORY + "test_a_late_checkpoint_is_ignored",
    ),
    Defect(
        "D", "Postgres overwrites a checkpoint with an older one that arrives late",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "checkpoint = CASE WHEN s.saves > j.saves THEN s.checkpoint",
        "checkpoint = CASE WHEN s.saves > 0 THEN s.checkpoint",
        POSTGRES + "test_a_late_checkpoint_is_ignored",
    ),
    Defect(
        "D", "a task continues before the result of its step is stored", "tasks/durable_steps.py",
        "        await asyncio.shield(keeping)  # the step is done, even if the run is stopped now\n", "",
        seeds=1500,
    ),
    Defect(
        "N", "a signal is stored only after the lookup of waiting jobs", "client/signals.py",
        """    await store.put_record(kind_of(name), str(at), msgspec.json.encode(Sent(Raw(data))))
    then = "its value is stored, and workers wake the jobs that wait for it; sending it again is safe"
    with Writes(f"signal {name!r}", then, made=1):
        woken = await _wake(session, name, data)
""",
        """    woken = await _wake(session, name, data)
    await store.put_record(kind_of(name), str(at), msgspec.json.encode(Sent(Raw(data))))
""",
        WAITING + "test_a_job_that_begins_to_wait_while_its_signal_is_sent_does_not_miss_it",
    ),
    # -- Redis
    Defect(
        "F", "Redis ends a claim without comparing the token", "store/redis/lua/settle.lua",
        "mutable.fence == e.fence and mutable.token == e.token\n", "mutable.fence == e.fence\n",
        REDIS + "TestFences",
    ),
    Defect(
        "U", "Redis does not recognise a settlement that is sent again", "store/redis/lua/settle.lua",
        "    return mutable.nonce == e.nonce\n", "    return false\n",
        REDIS + "test_a_settlement_sent_again_is_recognised",
    ),
    Defect(
        "L", "Redis does not renew the holder's lease with a claim", "store/redis/lua/claim.lua",
        "call('ZADD', P .. 'holders', text(now + lease), holder)", "call('ZADD', P .. 'holders', text(now), holder)",
        REDIS + "TestLeases",
    ),
    # -- what cannot be decoded harms one job
    Defect(
        "N", "a worker fails on a job whose internal metadata cannot be decoded", "core/internal.py",
        """    try:
        return decode(data)
    except ValueError:
        return _NOTHING
""",
        "    return decode(data)\n",
        DAMAGED + "test_a_job_with_fields_that_only_the_core_can_decode",
    ),
    Defect(
        "N", "a damaged job runs like a valid one", "core/damage.py",
        "    if not found:\n        return None\n", "    if found:\n        return None\n",
        DAMAGED + "test_a_damaged_job_that_waits",
    ),
    Defect(
        "N", "an undecodable `waiting_for` is accepted", "core/waiting.py",
        'if name and kind in _KINDS else Waiting("unknown", text)', 'if name else Waiting("signal", text)',
        DAMAGED + "test_a_job_that_waits_for_what_cannot_be_parsed",
    ),
    Defect(
        "N", "SQLite accepts any type in a column", "store/sqlite/rows.py",
        "    return all(map(_fits, FEW, kinds))\n", "    return True\n",
        DAMAGED + "test_a_damaged_job_that_waits and sqlite",
    ),
    Defect(
        "N", "Redis reads the mutable part of a job without a check of its types", "store/redis/lua/job.lua",
        "      sound = sound and (not KINDS[letter] or type(value) == KINDS[letter])\n", "",
        DAMAGED + "test_a_damaged_job_that and redis",
    ),
    Defect(
        "N", "Redis counts the crashes of a quarantined job from unchecked bytes", "store/redis/lua/claim.lua",
        "mutable_of(mutable)[MUTABLE.crashes] or 0", "cmsgpack.unpack(mutable)[MUTABLE.crashes] or 0",
        DAMAGED + "test_a_damaged_quarantined and redis-mutable",
    ),
    Defect(
        "N", "SQLite never ends a lease that cannot be decoded", "store/sqlite/sql.py",
        "CAST(expires AS INTEGER) AS expires, boot_id", "expires, boot_id",
        DAMAGED + "test_a_process_that_sqlite",
    ),
    Defect(
        "N", "Redis treats any member of an index as the number of a job", "store/redis/lua/common.lua",
        "(tonumber(seq) or 0) / PER_CHUNK", "seq / PER_CHUNK",
        DAMAGED + "test_an_index_of_redis",
    ),
    Defect(
        "N", "a count in Redis that is not a number stops a script half-way", "store/redis/lua/head.lua",
        "redis.pcall('HINCRBY'", "call('HINCRBY'",
        DAMAGED + "test_a_count_that_redis",
    ),
    Defect(
        "I", "the server accepts internal metadata that cannot be decoded", "http/rpc_validation.py",
        "    _check_extra(id, job.extra, max_payload)\n", "",
        "tests/http/test_http_store_checks.py",
    ),
    Defect(
        "I", "a change of a shell job's payload is not checked", "http/job_policy.py",
        "    return isinstance(patch.payload, bytes) or ", "    return ",
        "tests/http/test_http_job_policy.py",
    ),
    Defect(
        "I", "the new task of a job is not checked", "http/job_policy.py",
        "            task = patch.task\n", "            pass\n",
        "tests/http/test_http_job_policy.py -k not_moved",
    ),
    Defect(
        "I", "a job is moved to the shell task without its payload", "http/job_policy.py",
        "if task == SHELL_TASK and not isinstance(patch.payload, bytes):", "if task != task:",
        "tests/http/test_http_job_policy.py -k payload_and_then_the_task",
    ),
    # -- cancellation
    Defect(
        "N", "the memory store notifies no holder of a cancellation", "store/reference/jobs.py",
        "        if apply.asks_to_stop(record, change.patch):\n", "        if False:\n",
        MEMORY + NOTIFIED,
    ),
    Defect(
        "N", "SQLite does not count a request to cancel, so other processes are not notified", "store/sqlite/change.py",
        "                self._asked.append((kept.holder,))\n", "",
        SQLITE + NOTIFIED,
    ),
    Defect(
        "N", "Postgres notifies no holder of a cancellation", "store/postgres/change.py",
        "            self.holders.add(kept.holder)\n", "            pass\n",
        POSTGRES + NOTIFIED,
    ),
    Defect(
        "N", "Redis notifies no holder of a cancellation", "store/redis/lua/change.lua",
        "      notified['holder/' .. mutable.holder] = true\n", "      notified['queue/' .. queue] = true\n",
        REDIS + NOTIFIED,
    ),
    Defect(
        "N", "a worker does not listen for cancellations", "worker/worker.py",
        "        leases.watch(heartbeat.soon)\n", "",
        CANCELLING + "test_a_thread_hears_of_a_cancellation_long_before_the_next_heartbeat",
    ),
    Defect(
        "N", "a notification is treated as a cancellation", "worker/lease.py",
        "                    heartbeat_soon()\n",
        "                    [self._cancel(key) for key in list(self._slots.runs)]\n",
        CANCELLING + "test_a_notification_without_a_cancellation_stops_nothing",
    ),
    Defect(
        "N", "a cancellation is missed if it arrives before its claim", "worker/lease.py",
        "                    if ((record.id, record.fence), record.token) in self._cancelled:\n",
        "                    if False:\n",
        CANCELLING + "test_a_job_is_cancelled_whose_claim_has_not_arrived_yet",
    ),
    Defect(
        "U", "a write of a blocking caller is called unwritten though it has begun", "store/sqlite/thread.py",
        "if self._loop.time() > late and ticket.take():", "if self._loop.time() > late:",
        "tests/sqlite/test_sqlite_blocking.py -k has_begun_is_waited_for",
    ),
    Defect(
        "U", "a write whose blocking caller was interrupted is made later", "store/sqlite/thread.py",
        "            ticket.take()  # if the wait was interrupted\n", "            pass\n",
        "tests/sqlite/test_sqlite_blocking.py -k interrupted",
    ),
    Defect(
        "U", "a blocking caller that is interrupted leaves its transaction open", "store/sqlite/writer.py",
        "                    self._roll_back(connection)\n                    connection.execute(self._wait)\n",
        "                    connection.execute(self._wait)\n",
        "tests/sqlite/test_sqlite_blocking.py -k interrupted_at_any_point",
    ),
    Defect(
        "N", "a blocking caller that is interrupted leaves the lock file locked", "store/sqlite/writer.py",
        "fcntl.flock(lock.file, fcntl.LOCK_UN)  #", "lock.release()  #",
        "tests/sqlite/test_sqlite_blocking.py -k interrupted_at_any_point",
    ),
    Defect(
        "D", "two blocking callers write in one transaction", "store/sqlite/thread.py",
        "            if not lock.acquire(blocking=False):\n                return None\n",
        "            lock.acquire(blocking=False)\n",
        "tests/sqlite/test_sqlite_blocking.py -k two_callers",
    ),
    Defect(
        "N", "a blocking caller waits for SQLite's lock, and no signal can interrupt it", "store/sqlite/writer.py",
        "not self._begin_at_once(connection)", "not connection.execute(sql.BEGIN_WRITE)",
        "tests/sqlite/test_sqlite_blocking.py -k foreign_transaction",
    ),
    Defect(
        "U", "the error of a failed commit is hidden by a later one", "store/sqlite/writer.py",
        "            if connection is self._connection:\n                with suppress(sqlite3.Error, HoldfastError):",
        "            if True:\n                with suppress():",
        "tests/sqlite/test_sqlite_blocking.py -k hidden",
    ),
    Defect(
        "N", "a blocking caller keeps out operations that wait for the connection", "store/sqlite/thread.py",
        "if self._busy or self._pending or", "if self._pending or",
        "tests/sqlite/test_sqlite_blocking.py -k keep_out",
    ),
    Defect(
        "N", "a fork during a blocking caller's write waits for itself", "store/sqlite/fork.py",
        "key=lambda one: one is not writing", "key=lambda one: one is writing",
        "tests/sqlite/test_sqlite_blocking.py -k fork_during",
    ),
    Defect(
        "N", "the log of a program that only enqueues blocking grows for ever", "store/sqlite/thread.py",
        "                self._queue.put(BlockingTicket(lambda _: None))\n", "                pass\n",
        "tests/sqlite/test_sqlite_blocking.py -k long_log",
    ),
    # -- threads, heartbeats, log lines
    Defect(
        "N", "the loop is notified only of the first ended call", "worker/run/thread.py",
        "        self._notified = False\n        while self._ended:", "        while self._ended:",
        "tests/unit/test_threads.py -k test_an_end_is_not_kept_back",
    ),
    Defect(
        "N", "the end of a call is lost if the task ends its thread", "worker/run/thread.py",
        "except BaseException as raised:", "except Exception as raised:",
        "tests/unit/test_threads.py -k test_values_and_exceptions",
    ),
    Defect(
        "N", "a call that was cancelled while it waited for a thread is made", "worker/run/thread.py",
        "        elif not future.cancelled():\n", "        elif future is not None:\n",
        "tests/unit/test_threads.py -k test_a_call_that_was_cancelled",
    ),
    Defect(
        "L", "a heartbeat waits for a store that does not open for longer than its lease", "client/heartbeat.py",
        "await self._answer(self._store.open())", "await self._store.open()",
        "tests/unit/test_heartbeat.py -k test_a_store_that_does_not_open",
    ),
    Defect(
        "N", "a bucket's writer takes a pause of its process for the time of a put", "store/bucket/writer.py",
        "min(self._time() - began, TRIP_MAX)", "(self._time() - began)",
        "tests/bucket/test_bucket_requests.py -k a_put_of_a_suspended_process",
    ),
    Defect(
        "N", "a warning waits in the batch of log lines", "observe/logs.py",
        "level >= logging.WARNING or len", "len",
        "tests/observe/test_log_lines.py -k test_a_warning_is_written_at_once",
    ),
    Defect(
        "N", "the line of an event bypasses another handler of its process", "observe/events.py",
        "if len(handlers) != 1 or (write", "if (write",
        "tests/observe/test_log_lines.py -k everything_that_wants_one",
    ),
    Defect(
        "N", "the line of an event bypasses the instrumentation of its process", "observe/events.py",
        " or logging.Logger.callHandlers is not _call_handlers else", " else",
        "tests/observe/test_log_lines.py -k everything_that_wants_one",
    ),
    Defect(
        "N", "an answer is written to a client that does not read", "http/protocol.py",
        "cycle.flow.write_paused or cycle.disconnected", "cycle.disconnected",
        "tests/http/test_http_answers.py -k does_not_read",
    ),
    Defect(
        "N", "a forked worker keeps the connections of its supervisor open", "worker/prefork.py",
        "descriptor > 2 and descriptor != connection.fileno()", "descriptor > 1000",
        "tests/cli/test_prefork.py -k one_connection",
    ),
    Defect(
        "L", "a supervisor sends no heartbeats while it loads the jobs of a folder", "worker/supervisor.py",
        """            if not self._opening.done():  # loading all jobs must not delay heartbeats
                return
""",
        "",
        "tests/worker/test_stopping.py -k while_it_loads",
    ),
    Defect(
        "B", "a refused job is charged an attempt", "core/lifecycle.py",
        "state, attempt, waiting_for = State.SCHEDULED, attempt - 1, COMPATIBLE",
        "state, waiting_for = State.SCHEDULED, COMPATIBLE",
        REFUSALS + "delayed_uncharged",
    ),
    Defect(
        "N", "a job that is refused for ever is never dead", "core/lifecycle.py",
        "if refused >= rules.refusal_timeout and", "if refused < 0 and",
        REFUSALS + "it_is_dead_once",
    ),
    Defect(
        "N", "refusals before a run are counted after it", "core/lifecycle.py",
        "return at if refused else None", "return at",
        REFUSALS + "counted_anew",
    ),
    Defect(
        "L", "a heartbeat that the bucket's log refuses is taken for sent", "store/bucket/replica.py",
        "if self._is_old(batched):", "if self._keeps_jobs and self._is_old(batched):",
        "tests/bucket/test_bucket_heartbeats.py -k refused_as_old",
    ),
    # -- minute statistics
    Defect(
        "D", "SQLite replaces the histograms of a minute instead of adding to them", "store/sqlite/transitions.py",
        "sums.merge(count, waited, ran, _counts(waits), _counts(runs))", "sums.merge(count, waited, ran, (), ())",
        SQLITE + "test_waiting_and_running_times_are_in_histograms",
    ),
    Defect(
        "D", "Redis counts a duration in the bucket below", "store/redis/lua/record_transition.lua",
        "bits < BUCKETS and bits + 1 or BUCKETS", "bits < BUCKETS and bits or BUCKETS",
        "tests/redis/test_redis_keys.py -k test_durations",
    ),
    Defect(
        "D", "Postgres counts the letters of a minute without the last bucket",
        "store/postgres/migrations/0001_initial/03_transitions.sql",
        "generate_series(0, {BUCKETS} - 1)", "generate_series(0, {BUCKETS} - 22)",
        "tests/postgres/test_transitions.py -k test_minutes_are_added_up",
    ),
    Defect(
        "D", "a claim is counted for the queue alone, not for its task", "store/reference/jobs.py",
        "place = (apply.minute(now), record.queue, record.task, outcome)",
        'place = (apply.minute(now), record.queue, "", outcome)',
        MEMORY + "test_ends_are_counted_by_task",
    ),
    # -- what tasks print and log
    Defect(
        "D", "the last lines of a run are not sent again with its outcome", "worker/settle.py",
        "            run.last_notes = notes\n",
        "            for note in notes:\n                self._commit.note_soon(note)\n",
        TASK_LOGS + "an_outcome_that_is_repeated",
    ),
    Defect(
        "D", "output whose write is not answered is left out of what is written with the outcome",
        "worker/processes/output.py",
        "return list(self._unanswered)", "return self._unanswered[-1:]",
        "tests/unit/test_job_output.py -k what_is_not_answered",
    ),
    Defect(
        "D", "what a job prints during an outage of the store is lost", "worker/processes/output.py",
        "away = isinstance(error, StoreUnavailable | OutcomeUnknown) and not self._finishing", "away = False",
        "tests/unit/test_job_output.py -k once_the_store_is_back",
    ),
    Defect(
        "D", "only the first job of a batch gets the lines of its call", "worker/run/run_log.py",
        "for log in self._logs:", "for log in self._logs[:1]:",
        TASK_LOGS + "each_job_of_a_batch",
    ),
    Defect(
        "U", "a log record that a handler writes to a stream is stored twice", "observe/task_output.py",
        "if not _handling_a_record():", "if self.active:",
        TASK_LOGS + "does_not_store_a_record_twice",
    ),
    Defect(
        "D", "the last output of a task's own transaction is lost", "store/sqlite/transaction.py",
        "    for new in notes:\n        note(step, new)\n", "",
        SQLITE + "test_the_last_output_of_a_block",
    ),
    Defect(
        "D", "the parts of a batch that failed are written with ends before notes", "store/group_commit.py",
        '("inserts", "notes", "settles", "changes",', '("settles", "inserts", "notes", "changes",',
        "tests/unit/test_commit.py -k its_batch_had_to_be_split",
    ),
    # -- streams
    Defect(
        "F", "a stream is trimmed with the limit of the output", "store/reference/jobs.py",
        "piece.end > first or piece.printed.stream != output.stream", "piece.end > first",
        MEMORY + "test_stream_and_output_have_their_own_positions_and_limits",
    ),
    Defect(
        "U", "a piece of a stream is compared with the last output", "store/reference/jobs.py",
        "next((piece for piece in reversed(pieces) if piece.printed.stream == output.stream), None)",
        "pieces[-1] if pieces else None",
        MEMORY + "test_a_repeated_piece_is_stored_once",
    ),
    Defect(
        "D", "a stream is not read from the archive of a bucket", "store/bucket/store.py",
        "read_output(ended[3], position, limit, stream)", "read_output(ended[3], position, limit, False)",
        "tests/bucket/test_bucket_ended.py -k read_as_before",
    ),
    Defect(
        "N", "no listener is notified of a chunk (memory)", "store/reference/apply.py",
        "return new.progress is not UNSET or (new.output is not UNSET and new.output.stream)",
        "return new.progress is not UNSET",
        MEMORY + "test_a_listener_is_notified_of_each_chunk_and_progress",
    ),
    Defect(
        "N", "a chunk of another process notifies no listener (SQLite)", "store/sqlite/sql.py",
        "SELECT (SELECT max(position) FROM holdfast_output AS o WHERE o.seq = j.seq AND o.stream = 1), progress",
        "SELECT 0, progress",
        SQLITE + "test_a_listener_is_notified_of_each_chunk_and_progress",
    ),
    Defect(
        "F", "stream and output share their positions (SQLite)", "store/sqlite/sql.py",
        "FROM holdfast_output WHERE seq = ? AND stream = ?\nORDER BY",
        "FROM holdfast_output WHERE seq = ? AND ? < 2\nORDER BY",
        SQLITE + "test_stream_and_output_have_their_own_positions",
    ),
    Defect(
        "F", "stream and output share their positions (Postgres)",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "FROM holdfast.output AS o WHERE o.seq = of_seq AND o.stream = of_stream",
        "FROM holdfast.output AS o WHERE o.seq = of_seq",
        POSTGRES + "test_stream_and_output_have_their_own_positions",
    ),
    Defect(
        "N", "a chunk notifies no listener (Postgres)", "store/postgres/migrations/0001_initial/09_write.sql",
        "num_nonnulls(note_progress, out_streams) > 0", "num_nonnulls(note_progress) > 0",
        POSTGRES + "test_a_listener_is_notified_of_each_chunk_and_progress",
    ),
    Defect(
        "D", "the stream of a removed job is left (Redis)", "store/redis/lua/place.lua",
        "call('DEL', P .. 'output:' .. seq, P .. 'stream:' .. seq)", "call('DEL', P .. 'output:' .. seq)",
        "tests/redis/test_redis_keys.py -k every_key_has_an_owner",
    ),
    Defect(
        "D", "chunks that are not written yet are dropped when the run ends", "tasks/stream_writer.py",
        "return [] if lost else self.pending()", "return []",
        STREAMS + "stored_before_the_end",
    ),
    Defect(
        "F", "a claim that has ended emits without an error", "tasks/stream_writer.py",
        """            if self._ended:
                raise LeaseLost(self._record.id, self._record.fence)
""",
        """            if self._ended:
                return
""",
        STREAMS + "test_a_lost_claim_emits_no_more",
    ),
    Defect(
        "D", "a failed write of chunks is not repeated", "tasks/stream_writer.py",
        "pause, failed = REPEAT_PAUSE, True", "pause, failed = REPEAT_PAUSE, bool(self._unanswered.pop(0))",
        STREAMS + "test_an_emitter_waits",
    ),
    Defect(
        "D", "the chunks of a job that completes itself are not written with its success", "tasks/completion.py",
        "unwritten if log is None else lambda: [*log.pending(), *unwritten()]",
        "tuple if log is None else log.pending",
        STREAMS + "completes_itself",
    ),
    Defect(
        "F", "a reader that resumes is told that an attempt begins", "core/chunks.py",
        "not seen and piece.fence != self._fence", "piece.fence != self._fence",
        "tests/http/test_http_stream.py -k three_readers",
    ),
    Defect(
        "D", "chunks that are written between two reads are missed at the end", "client/handles.py",
        """                return await session.store.output(id, position, OUTPUT_PAGE, stream=True)
            await""",
        """                return []
            await""",
        "tests/unit/test_stream_reader.py",
    ),
    # -- the audit log, edits and retries at a rate
    Defect(
        "", "an action that is part of another has an entry of its own", "client/audited.py",
        'if action.get() is not None or kwargs.get("dry_run"):', 'if kwargs.get("dry_run"):',
        AUDIT + "test_an_action_of_a_flow_has_one_entry",
    ),
    Defect(
        "", "an action begins although its entry could not be stored", "client/audit_log.py",
        "                if isinstance(done, BaseException):\n                    raise done", "                pass",
        AUDIT + "test_an_action_does_not_begin_without_its_entry",
    ),
    Defect(
        "", "the second of an entry is not listed", "client/audit_log.py",
        "if second != listed[1]:", "if second != listed[1] and hour != listed[0]:",
        AUDIT + "test_a_page_reads_few_of_many_entries",
    ),
    Defect(
        "", "a refused action has no outcome", "client/audited.py",
        "await self._ended(actor, begun, now, outcome, count=count, error=storable(text[:ENTRY_TEXT]))", "pass",
        AUDIT + "test_refused_and_failed_actions_have_their_errors",
    ),
    Defect(
        "", "an entry without an outcome is running for ever", "client/audit.py",
        'status = "interrupted" if', 'status = "interrupted" if False and',
        AUDIT + "test_an_action_whose_outcome_cannot_be_stored_has_happened",
    ),
    Defect(
        "C", "a process with a wrong clock removes the audit log", "client/audit_log.py",
        "if now - self._seen[hour] >= WATCHED:", "if True:",
        AUDIT + "test_a_process_that_has_just_started_removes_nothing",
    ),
    Defect(
        "", "entries with an outcome are rewritten over HTTP", "client/audit_log.py",
        "before is not None and before.outcome is not None and", "False and before is not None and",
        HTTP_AUDIT + "test_a_remote_app_records_its_actions",
    ),
    Defect(
        "F", "a renewal that arrives late replaces the outcome", "client/audit_log.py",
        "begun.name, seen.encoded(), kept.version)", "begun.name, seen.encoded())",
        AUDIT + "test_a_renewal_without_an_answer_that_arrives_late",
    ),
    Defect(
        "", "a request that no worker applied is done", "client/control.py",
        "if failed := [one.error for one in replies if one.error is not None]:", "if failed := list[str]():",
        CONTROL + "test_the_audit_log_says_which_requests_were_not_applied",
    ),
    Defect(
        "", "workers read the audit log over HTTP", "client/audit_log.py",
        "check=_only_added, worker_reads=False", "check=_only_added",
        HTTP_AUDIT + "test_a_remote_app_records_its_actions",
    ),
    Defect(
        "F", "a later cancellation is undone for an earlier one", "core/undo.py",
        '"reset_count": before.reset_count + 1}', '"reset_count": before.reset_count}',
        UNDO + "test_a_cancel_is_undone_once_and_never_a_later_one",
    ),
    Defect(
        "F", "a pause that replaced another is lifted with it", "client/undo.py",
        '"pause")).get(queue)\n            if kept is not None and kept.value == left:',
        '"pause")).get(queue)\n            if kept is not None:',
        UNDO + "test_a_pause_is_undone_while_it_is_in_force",
    ),
    Defect(
        "N", "a heartbeat waits for one lost connection after the other", "store/postgres/pool.py",
        "                self._pool.drop_idle()", "                pass",
        "tests/postgres/test_trouble.py -k test_no_idle_connection_is_used_after_a_statement_without_an_answer",
    ),
    Defect(
        "F", "a job that has started is edited", "core/lifecycle.py",
        "    if record.state not in WAITING:\n        wanted_state", "    if False:\n        wanted_state",
        EDITING + "test_a_job_that_has_started_or_ended_is_not_edited",
    ),
    Defect(
        "I", "an edit changes the call that a key belongs to", "store/sqlite/change.py",
        "if kept.key is not None and fingerprint:", "if kept.key is not None:",
        SQLITE + "test_a_payload_without_a_fingerprint_keeps_that_of_the_key",
    ),
    Defect(
        "N", "an edited job of SQLite keeps its queue", "store/sqlite/change.py",
        "if not patch.queue is patch.priority is UNSET:", "if False:",
        SQLITE + "test_a_ready_job_gets_another_queue",
    ),
    Defect(
        "N", "an edited job of Redis is counted in its former queue", "store/redis/lua/change.lua",
        "    count(TOTAL, queue, 1)\n  end\n  local stays", "  end\n  local stays",
        REDIS + "test_a_ready_job_gets_another_queue",
    ),
    Defect(
        "O", "an edited job of Postgres keeps its priority", "store/postgres/sql.py",
        '"task", "queue", "priority",\n', '"task", "queue",\n',
        POSTGRES + "test_a_ready_job_gets_another_priority",
    ),
    Defect(
        "O", "two jobs of a retry at a rate are due together", "client/bulk_change.py",
        "        self._spaced += 1\n", "",
        EDITING + "test_dead_jobs_become_due_at_a_rate",
    ),
    # -- remote control of workers
    Defect(
        "U", "a worker applies a request that was withdrawn", "worker/control.py",
        "and await store.put_record(CONTROL, name, None, kept.version):",
        "and (await store.put_record(CONTROL, name, None, kept.version) or True):",
        CONTROL + "takes_it_or_not_at_all",
    ),
    Defect(
        "U", "a client leaves its request behind", "client/control.py",
        "if name in sent and await self._store.put_record(CONTROL, name, None, sent[name].version)", "if name in sent",
        CONTROL + "without_an_answer_is_withdrawn",
    ),
    Defect(
        "U", "an interrupted client leaves its request behind", "client/control.py",
        "                async with asyncio.timeout(ANSWER_MARGIN):\n                    await self._remove()",
        "                pass",
        CONTROL + "whose_client_was_interrupted",
    ),
    Defect(
        "D", "chunks before a damaged one are not read", "client/stream.py",
        "            if not found:  #", "            if True:  #",
        STREAMS + "before_a_damaged_chunk",
    ),
    Defect(
        "U", "an answer that could not be stored is forgotten", "worker/control.py",
        "                await store.put_record(CONTROL_REPLY, name, answer)\n",
        "                del self._unsent[name]\n                await store.put_record(CONTROL_REPLY, name, answer)\n"
        "                continue\n",
        CONTROL + "could_not_be_stored_is_stored_later",
    ),
    Defect(
        "N", "requests to workers that have ended are kept", "client/control.py",
        "if holder_in(name) not in live:", "if False:",
        CONTROL + "maintenance_removes_requests",
    ),
    Defect(
        "N", "a quiet worker goes on claiming for its batches", "worker/lease.py",
        "        if self._slots.closed:\n            return Claims([])\n", "",
        CONTROL + "a_batch_of_a_quiet_worker",
    ),
    Defect(
        "N", "a process that an operator has stopped is replaced", "worker/supervisor.py",
        "if self._stops or child.retired or child.leaving", "if self._stops or child.leaving",
        "tests/cli/test_control_command.py -k a_stopped_worker_stays_stopped",
    ),
    Defect(
        "C", "a request to a worker of another process does not notify it on SQLite", "store/sqlite/observe.py",
        "if kind == CONTROL:", "if False:",
        SQLITE + "test_a_holder_is_notified_of_each_request_to_it",
    ),
    Defect(
        "C", "a request to a worker does not notify it on Postgres", "store/postgres/sql.py",
        "WHERE holdfast.has_listener($2)", "WHERE holdfast.has_listener(1) AND $2 > 0",
        POSTGRES + "test_a_holder_is_notified_of_each_request_to_it",
    ),
    Defect(
        "L", "a heartbeat of Postgres lists claims as they were before it", "store/postgres/sql.py",
        "FROM holdfast.heartbeat($1, $2, $3)\n",
        "FROM holdfast.heartbeat($1, $2, $3) WHERE job IS NULL\nUNION ALL SELECT holder, NULL, NULL, id, seq, fence,"
        " token, cancel FROM holdfast.job\nWHERE holder = ANY ($1) AND state = 'running'\n",
        "tests/postgres/test_late_claim.py",
    ),
    # -- deadlines
    Defect(
        "B", "a job runs after its deadline", "client/session.py",
        "(too_late(record) or overdue(record)) is not None", "too_late(record) is not None",
        DEADLINES + "is_dead_without_a_run",
    ),
    Defect(
        "B", "a failure is retried after the deadline", "core/lifecycle.py",
        "(left := time_left(record)) is not None and delay >= left:", "False:",
        DEADLINES + "a_failure_is_not_retried",
    ),
    Defect(
        "N", "a wait for a signal outlasts the deadline", "client/signals.py",
        "limits = (None if step is None else step.until, deadline(record))",
        "limits = (None if step is None else step.until,)",
        DEADLINES + "a_wait_for_a_signal",
    ),
    Defect(
        "C", "the rest of a deadline is measured by the wall clock of the worker", "core/lifecycle.py",
        "return None if limit is None or record.started_at is None else (limit - record.started_at) / MICROS",
        "return None if limit is None else 0.04",
        DEADLINES + "a_wall_clock_that_jumps",
    ),
    Defect(
        "F", "a run that passes its deadline is retried", "worker/run/runner.py",
        "return Outcome.dead(f\"TimeoutError", "return Outcome.failed(f\"TimeoutError",
        DEADLINES + "interrupted_at_the_deadline",
    ),
    Defect(
        "D", "output does not count as activity", "worker/run/runner.py",
        "self._logs = RunLogs(session, write_note)", "self._logs = RunLogs(session, session.commit.note)",
        DEADLINES + "has_not_stalled",
    ),
)  # fmt: skip

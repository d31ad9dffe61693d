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
        "await self._claims.recover(max_age=0.0 if pause == self._every else pause)", "pass",
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
        "C", "a process that was stopped has watched a flow all the while", "flows/creation.py",
        "min(now - self._looked_at, LONGEST_GAP), now", "now - self._looked_at, now",
        MAKING + "test_a_process_that_was_stopped_for_hours_has_watched_nothing",
    ),
    Defect(
        "C", "a clock that is behind delays what a flow frees", "core/flow_rules.py",
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
        "U", "a flow that runs is said not to be stored", "flows/release.py",
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
        "U", "a retry of a flow that stopped half-way is said not to be written", "flows/service.py",
        "raise OutcomeUnknown(text, (id,)) from error", "raise StoreUnavailable(text) from error",
        FLOW_WRITES + "test_a_flow_that_is_said_to_be_retried and sqlite",
    ),
    Defect(
        "N", "a claim whose answer was lost is never given back", "worker/lease.py",
        "now - since > self.holder.lease / 6", "now - since > self.holder.lease * 1e9",
        seeds=600,
    ),
    Defect(
        "L", "a claim that is on its way to its worker is released for unknown", "worker/lease.py",
        "if held[key].token not in self._unanswered", "if held[key].token",
        "tests/worker/test_late_claims.py -k does_not_release_a_claim_that_is_on_its_way",
    ),
    Defect(
        "L", "a claim that was answered late is started without looking whether it is still held", "client/claims.py",
        "(now := clock.monotonic()) - asked < holder.lease / 2",
        "(now := clock.monotonic()) - asked < holder.lease * 1e9",
        "tests/worker/test_late_claims.py -k another_took_while_the_answer_was_late",
    ),
    Defect(
        "L", "the heartbeat beats too late", "client/heartbeat.py",
        "pause = self._holder.lease / 3", "pause = self._holder.lease * 3",
        seeds=400,
    ),
    Defect(
        "L", "a failed heartbeat ends the heartbeat", "client/heartbeat.py",
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
        "F", "a refused completion by hand is reported as a success", "client/claims.py",
        "        if written:\n            self._runtime.events.settled(",
        "        if True:\n            self._runtime.events.settled(",
        REFUSED + "by_hand",
    ),
    Defect(
        "F", "the end of a run is forgotten when the store does not answer", "worker/settle.py",
        "            self._loop.call_later(RESEND_PAUSE, self._again, run, end)\n", "",
        seeds=600,
    ),
    Defect(
        "F", "an end that is written again gets another nonce", "worker/settle.py",
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
        "N", "the jobs of a claimer that was cancelled in flight are kept", "store/group_commit.py",
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
        "U", "a job whose answer a blocking caller lost is called unwritten", "client/enqueue.py",
        "            answers, unknown = None, error\n", "            answers = None\n",
        BLOCKING + "test_a_job_that_may_be_stored_is_never_called_unwritten",
    ),
    Defect(
        "D", "an interrupted blocking caller leaves its answer to the next one", "store/blocking.py",
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
        "B", "what a stopping worker gives back is charged", "worker/run/runner.py",
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
        "Q", "neighbours are blamed", "core/lifecycle.py",
        "crashes = -COMPANY if not record.quarantined else", "crashes = 1 if not record.quarantined else",
        LIFECYCLE + "test_a_neighbour_that_died_with_its_process_is_quarantined_but_not_counted",
    ),
    Defect(
        "Q", "a job is never called poisonous", "core/lifecycle.py",
        "if crashes >= rules.max_crashes:", "if crashes >= rules.max_crashes * 1000:",
        seeds=100,
    ),
    Defect(
        "Q", "other jobs are claimed beside a quarantined job", "worker/slots.py",
        "return 0 if self._quarantined else self.size + ahead - len(self.runs) + self._batch_extra - self.owed",
        "return self.size + ahead - len(self.runs) + self._batch_extra - self.owed",
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
        "N", "SQLite takes leases of an earlier boot for alive", "store/sqlite/sql.py",
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
        "L", "SQLite's lock keeps heartbeats out until their leases are lost", "store/sqlite/store.py",
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
        "U", "SQLite leaves in its log what a failed commit wrote there", "store/sqlite/sql.py",
        "SET applied_at = applied_at + 1 WHERE", "SET applied_at = applied_at WHERE",
        "tests/lab/test_disk.py -k sqlite",
    ),
    # -- a bucket, by simulation of its own code
    Defect(
        "D", "a bucket's writer that slept believes a number that was cleaned away", "store/bucket/log.py",
        "or any(number_of(each.key) >= number for each in listed):", "or number < 0:",
        seeds=300, place="bucket",
    ),
    Defect(
        "D", "a bucket's put that is answered `exists` is taken for a success", "store/bucket/writer.py",
        """                if await self._bucket.put_if_absent(log_key(number), data):
                    return None
""",
        """                await self._bucket.put_if_absent(log_key(number), data)
                return None
""",
        seeds=300, place="bucket",
    ),
    Defect(
        "C", "a bucket's ended jobs are put away by one process's wall clock", "store/bucket/compactor.py",
        "for place, job in ended.items() if now",
        "for place, job in ended.items() if (job.finished_at or 0) < self._clock.now() - 86400 * MICROS or now",
        "tests/bucket/test_bucket_ended.py -k wrong_clock",
    ),
    Defect(
        "L", "a bucket's lease counts as ended half-way", "store/bucket/watch.py",
        "return known.left or self.silent(replica, known) >= known.lease",
        "return known.left or self.silent(replica, known) >= known.lease / 2",
        seeds=300, place="bucket",
    ),
    Defect(
        "L", "in a bucket two watchers count the same silence", "store/bucket/replica.py",
        "if since >= before.until:", "if since >= 0:",
        seeds=300, place="bucket",
    ),
    Defect(
        "N", "a bucket's engine lives on when its app could not be opened", "client/runtime.py",
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
        "D", "a step that is done is run again", "tasks/durable_steps.py",
        "        if done is not None:\n", "        if done is not None and not done.at:\n",
        STEPS + "test_a_step_that_is_done_is_not_run_again",
    ),
    Defect(
        "D", "a step that is done as its worker stops is forgotten", "tasks/durable_steps.py",
        "await asyncio.shield(keeping)", "await keeping",
        STEPS + "test_a_step_that_is_done_as_its_worker_stops_is_remembered",
    ),
    Defect(
        "D", "an attempt begins a sleep anew", "tasks/durable_steps.py",
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
        "N", "a job whose worker died as it suspended it does not look by itself", "tasks/durable_steps.py",
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
        "N", "a waiter that moved while it was woken is let be", "client/signals.py",
        "refused or not all(written)", "refused",
        WAITING + "test_a_job_that_is_put_to_rest_while_its_signal_is_sent_is_woken_all_the_same",
    ),
    Defect(
        "N", "a process that forgets a signal removes one that was sent again", "client/signals.py",
        "if sent_again or entered not in still[kind] or still[kind][entered].version != kept.version:",
        "if entered not in still[kind]:",
        WAITING + "test_maintenance_that_is_late_does_not_forget_what_was_sent_again",
    ),
    Defect(
        "C", "a clock that is ahead forgets a signal", "client/signals.py",
        "return self._session.clock.monotonic() - self._seen[name][1] >= WATCHED", "return True",
        WAITING + "test_a_clock_that_is_ahead_forgets_no_signal_that_it_has_just_seen",
    ),
    # -- pauses
    Defect(
        "N", "a job is deferred by what was read before it was claimed", "client/pauses.py",
        "if self._read <= begun:", "if not self._read:",
        PAUSING + "test_a_worker_that_missed_the_end_of_a_pause_does_not_defer_a_job",
    ),
    Defect(
        "N", "a read of the pauses that failed counts as made", "client/pauses.py",
        "if self._read <= begun:", "if self._reads == begun:",
        PAUSING + "test_a_read_that_failed_for_one_job_confirms_no_pause_for_the_next",
    ),
    Defect(
        "N", "a lifted pause is forgotten while a claim may still defer a job for it", "client/pauses.py",
        "if not claims and not (await", "if not (await",
        PAUSING + "test_a_job_deferred_after_its_pause_was_lifted_is_freed_whatever_the_clocks_say",
    ),
    Defect(
        "N", "a version is given again after a removal", "store/reference/jobs.py",
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
        "U", "a signal that is kept is said to be unwritten", "client/signals.py",
        'with Writes(f"signal {name!r}", then, made=1):', 'with Writes(f"signal {name!r}", then):',
        HALF + "sqlite",
    ),
    Defect(
        "U", "a pause that is lifted is said to be unwritten", "client/pauses.py",
        """            freed = await self._free(pause)
        except HoldfastError as error:""",
        """            freed = await self._free(pause)
        except ZeroDivisionError as error:""",
        HALF + "sqlite",
    ),
    Defect(
        "U", "a bulk change does not count what it has changed", "client/bulk_change.py",
        "                    writes.made += 1\n", "",
        HALF + "sqlite",
    ),
    Defect(
        "U", "a change that is refused when it is sent again is called unmade", "store/group_commit.py",
        "if not all(answers.changes[at : at + len(changes)]):", "if not changes:",
        COMMIT + "test_a_change_that_is_refused_when_it_is_sent_again_may_have_been_made",
    ),
    # -- limits
    Defect(
        "", "a limit key's room is not counted", "store/reference/ready_queues.py",
        "limiter.starts(limit_key, self.running.get(limit_key.name, 0), picking.now) <= before",
        "limiter.starts(limit_key, 0, picking.now) <= before",
        seeds=400,
    ),
    Defect(
        "", "a rate is not kept", "core/limiter.py",
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
        "", "a weight is not minded", "core/limiter.py",
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
        "", "Postgres does not count a limit key's room", "store/postgres/migrations/0001_initial/04_limits.sql",
        "greatest(0, (limit_key ->> 'concurrency')::bigint - running)",
        "greatest(0, (limit_key ->> 'concurrency')::bigint)",
        POSTGRES + "TestRunningAtOnce",
    ),
    Defect(
        "", "Redis does not keep a rate", "store/redis/lua/limiter.lua",
        "text(math.max(limiters.tat[limit_key], now) + used)", "text(math.max(limiters.tat[limit_key], now))",
        REDIS + "TestRates",
    ),
    # -- flows
    Defect(
        "", "a flow's job is freed before the last of those before it has ended", "core/flow_rules.py",
        "            waiting_for = end_of(id)\n            continue\n", "            continue\n",
        seeds=400,
    ),
    Defect(
        "N", "a compensation forgets an earlier death in the flow", "core/flow_rules.py",
        "died = died or not (well or idle)", "died = not (well or idle)",
        "tests/app/test_flow_retries.py -k test_one_compensation_for_several",
    ),
    Defect(
        "N", "a job of a flow that is run again still says that it was not run", "core/internal.py",
        "expires_in=None, not_run=None)", "expires_in=None)",
        "tests/app/test_flow_ends.py -k test_a_job_that_was_retried_and_then_cancelled_does_not_fail_its_flow",
    ),
    Defect(
        "N", "a flow goes by what the errors of its jobs say", "core/flow_rules.py",
        'return _not_run(record) == "failed_parent"', 'return (record.error or "").startswith("not run: job")',
        "tests/app/test_flow_ends.py -k whatever_its_error_says",
    ),
    Defect(
        "N", "a small flow ends without a look at whether it has grown", "flows/small_flows.py",
        "if about.grown or has_grown(own.meta):", "if about.grown:",
        "tests/app/test_flow_ends.py -k test_a_small_flow_does_not_end",
    ),
    Defect(
        "N", "a small flow that ended does not see that it has grown meanwhile", "flows/small_flows.py",
        "for flow in over if grown[counting(flow)]}", "for flow in over if False}",
        "tests/app/test_flow_ends.py -k added_just_before_it_ended",
    ),
    Defect(
        "N", "a flow that ended forgets a job whose number was taken before", "flows/completion.py",
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
        seeds=400,
    ),
    Defect(
        "N", "SQLite does not record ends in bulk", "store/sqlite/settle.py",
        "    transitions.ended(step, [end.id for end in ends if end.record_end])\n", "",
        SQLITE + "TestRecordedEnds",
    ),
    Defect(
        "N", "the end of a job with a follow-up is not recorded", "core/lifecycle.py",
        "recorded = in_flow or follow_ups.recorded(record.extra, State.SUCCEEDED)", "recorded = in_flow",
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
        "N", "a parent outside of the flow that is retried meanwhile is forgotten", "flows/release.py",
        "if _life(before.get(id)) == _life(after.get(id)):", "if id:",
        OUTSIDE + "test_a_parent_that_is_retried_before_its_end_is_processed_stays_awaited",
    ),
    # -- one job for many calls, and one call for many jobs
    Defect(
        "I", "a key that stands while its job lives is free once it runs", "store/reference/jobs.py",
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
        "AND state NOT IN ('succeeded', 'dead', 'cancelled')", "AND state NOT IN ('succeeded', 'cancelled')",
        SQLITE + "TestKeyOwners",
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
        "F", "a job of a batch ends with another's part", "worker/run/batch.py",
        "for share, part in zip(shares, found, strict=True):",
        "for share, part in zip(shares[::-1], found, strict=True):",
        "tests/worker/test_batches.py -k test_each_job_has_a_result_of_its_own",
    ),
    # -- checkpoints
    Defect(
        "D", "an older checkpoint that comes late is kept", "store/reference/apply.py",
        "if new.checkpoint is not UNSET and new.saves > record.saves:", "if new.checkpoint is not UNSET:",
        MEMORY + "test_a_late_checkpoint_is_ignored",
    ),
    Defect(
        "D", "Postgres keeps an older checkpoint that comes late",
        "store/postgres/migrations/0001_initial/06_settle.sql",
        "checkpoint = CASE WHEN s.saves > j.saves THEN s.checkpoint",
        "checkpoint = CASE WHEN s.saves > 0 THEN s.checkpoint",
        POSTGRES + "test_a_late_checkpoint_is_ignored",
    ),
    Defect(
        "D", "a step goes on before its result is kept", "tasks/durable_steps.py",
        "        await asyncio.shield(keeping)  # the step is done, even if the run is stopped now\n", "",
        seeds=1500,
    ),
    Defect(
        "N", "a signal is kept only once its waiters were looked for", "client/signals.py",
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
        "N", "a worker runs into a job whose internal metadata cannot be decoded", "core/internal.py",
        """    try:
        return decode(data)
    except ValueError:
        return _NOTHING
""",
        "    return decode(data)\n",
        DAMAGED + "test_a_job_with_fields_that_only_the_core_can_decode",
    ),
    Defect(
        "N", "a damaged job is run as if it were sound", "core/damage.py",
        "    if not found:\n        return None\n", "    if found:\n        return None\n",
        DAMAGED + "test_a_damaged_job_that_waits",
    ),
    Defect(
        "N", "what a job waits for is taken for something whatever its text says", "core/waiting.py",
        'if name and kind in _KINDS else Waiting("unknown", text)', 'if name else Waiting("signal", text)',
        DAMAGED + "test_a_job_that_waits_for_what_cannot_be_parsed",
    ),
    Defect(
        "N", "SQLite takes whatever type a column has", "store/sqlite/rows.py",
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
        "N", "Redis takes any member of an index for the number of a job", "store/redis/lua/common.lua",
        "(tonumber(seq) or 0) / PER_CHUNK", "seq / PER_CHUNK",
        DAMAGED + "test_an_index_of_redis",
    ),
    Defect(
        "N", "a count in Redis that is no number leaves steps half done", "store/redis/lua/head.lua",
        "redis.pcall('HINCRBY'", "call('HINCRBY'",
        DAMAGED + "test_a_count_that_redis",
    ),
    Defect(
        "I", "the server takes internal metadata that cannot be decoded", "http/rpc_validation.py",
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
        "N", "a notification is taken for a cancellation", "worker/lease.py",
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
    # -- threads, heartbeats, log lines
    Defect(
        "N", "the loop is notified of the first end of a call only", "worker/run/thread.py",
        "        self._notified = False\n        while self._ended:", "        while self._ended:",
        "tests/unit/test_threads.py -k test_an_end_is_not_kept_back",
    ),
    Defect(
        "N", "an end is dropped with its thread, where a task ends its thread", "worker/run/thread.py",
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
        "tests/lab/test_simulation.py -k bucket-7486",
    ),
    Defect(
        "N", "a warning waits in the batch of log lines", "observe/logs.py",
        "record.levelno >= logging.WARNING or len", "len",
        "tests/observe/test_log_lines.py -k test_a_warning_is_written_at_once",
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
)  # fmt: skip

"""Where the time of a test run goes: each run writes a report, and this prints its slowest tests and folders.

    python tests/support/durations.py [REPORT] [--slowest 20] [--record]

`--record` keeps the answer in tests/durations.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / ".pytest_cache" / "durations.json"
"""Of the last `make test`: seconds by test, set-up included."""
RECORD = ROOT / "tests" / "durations.md"
WORTH = {
    "test_every_page_has_names_labels_structure_and_contrast": "names, structure and contrast of each page",
    "test_kill_of_the_jobs_own_processes": "kill -9 of a shell job's own tree, as a user sees it, lease included",
    "test_kill_of_everything_at_once": "supervisor, workers and jobs die together; the next start recovers all",
    "test_kill_of_the_supervisor": "workers end with their supervisor, and their jobs run again",
    "test_the_demo_kills_a_worker_and_its_job_survives": "the first thing that a new user sees, in a browser",
    "test_the_page_polls_if_the_stream_gets_no_response": "the page waits before it polls",
    "test_worker_and_child_processes_send_their_events_before_they_end": "a worker and its children, real SDK",
    "test_explain_reports_busy_workers_and_queues_without_workers": "a command that ignores SIGTERM has to be killed",
    "test_a_thousand_queues_are_searched_sorted_and_scrolled": "a thousand queues in a real page",
    "test_workers_exit_when_their_database_is_deleted": "workers notice it by themselves",
    "test_an_answer_appears_word_by_word_as_text": "the sample that streams, in a browser",
    "test_admin_and_dashboard": "the Django example in a browser",
    "test_a_client_that_dies_with_any_command_leaves_nothing_in_limbo": "a death at each of Redis' commands in turn",
    "test_queues_and_workers_are_shown_and_counts_return_to_zero_after_kill_9": "a whole lease has to run out",
    "test_a_heartbeat_gives_up_a_silent_connection_before_its_lease_expires": "a whole lease has to run out",
    "test_parent_and_child_killed_on_one_host_and_the_job_runs_on_another": "a lease of another host has to run out",
    "test_a_job_that_computes_in_c_for_many_leases_runs_once": "four leases without the interpreter's lock",
    "test_a_running_job_is_followed_live": "a real worker's output in a real page",
    "test_a_worker_that_dies_before_it_answers_is_reported": "the command's own wait for an answer has to pass",
    "test_queuectls_own_flow": "one of the systems that Holdfast replaces, from its first command to its last",
    "test_five_workers_and_two_hundred_jobs_each_run_once": "the smallest whole fleet from the command line",
    "test_no_job_stays_deferred_for_a_lifted_pause_though_clocks_are_wrong": "processes with three different clocks",
    "test_every_job_finishes_once_when_a_worker_is_killed_at_a_random_moment": "the main promise, on every store",
    "test_every_acknowledged_job_survives_kill_9_of_its_enqueuer": "the main promise, on every store",
    "test_every_node_succeeds_once_and_after_its_parents": "flows under kill -9, on every store",
    "test_every_job_finishes_once_when_the_server_is_killed_at_a_random_moment": "the main promise behind HTTP",
    "test_no_schedule_breaks_a_promise_and_every_fault_is_reached": "120 simulated schedules with faults",
    "runTest": "a state machine compares the store with the reference, call by call",
    "test_the_doctor_finds_whatever_opening_refuses": "five servers with five bad configurations",
    "test_a_tree_that_ignores_sigterm_is_killed": "the grace before SIGKILL has to pass",
    "test_a_timeout_ends_the_whole_tree": "the grace before SIGKILL has to pass",
    "test_the_documented_javascript_worker_runs": "the documented JavaScript worker, as it is printed",
    "test_a_slow_reader_gets_the_whole_response": "a slow reader for longer than a time limit",
    "test_every_run_of_a_schedule_is_made_once_when_workers_die": "schedules under kill -9",
    "test_sixteen_processes_on_one_store_lose_nothing_and_claim_nothing_twice": "sixteen processes on one file",
    "test_a_lost_claim_cannot_be_completed": "the shortest lease over HTTP has to run out",
    "test_a_claim_recovered_as_dead_was_not_failed_by_its_holder": "the shortest lease over HTTP has to run out",
    "test_one_parent_has_many_children": "2,500 children of one parent",
    "test_the_quick_start": "the documented first calls over HTTP, as they are printed",
    "test_an_empty_store_shows_first_commands": "each page of an empty store, in a browser",
    "test_a_dead_worker_is_replaced_and_its_job_restarts": "kill -9 of a worker process, restart included",
    "test_a_valid_token_is_not_delayed_by_wrong_ones_of_its_address": "the delay of wrong tokens has to pass",
    "test_delayed_wrong_tokens_do_not_block_their_address": "the delay of wrong tokens has to pass",
    "test_the_number_of_delayed_responses_is_limited": "the delay of wrong tokens has to pass",
    "test_a_wall_clock_an_hour_off_ends_no_lease_early": "a lease has to run out by the right clock",
    "test_a_waiting_job_shows_its_signal_and_steps": "a real worker and a signal, in a real page",
    "test_a_reader_that_lags_behind_gets_missed": "more transitions than a store keeps",
    "test_a_flow_and_its_jobs_link_to_each_other": "a real flow in a real page",
    "test_the_fixture_has_a_description": "pytest in a process of its own, as a user runs it",
    "test_drain_exits_when_no_job_is_left": "supervisor and workers, from start to exit",
    "test_a_job_that_blocks_for_three_leases_runs_once": "three leases have to run out",
    "test_each_job_of_a_large_flow_costs_no_more_than_one_of_a_small_flow": "a large flow beside a small one",
    "test_a_job_outlasts_a_server_that_is_away_for_longer_than_its_lease": "a server that is away for a whole lease",
    "test_the_fixture_is_available_if_holdfast_is_installed": "pytest in a process of its own, as a user runs it",
    "test_shell_jobs_get_the_variables_of_pass_env": "supervisor, worker and a shell, as an operator starts them",
    "test_kill_of_a_worker": "kill -9 of a worker process, lease included",
    "test_enqueue_costs_little_more_than_importing_its_libraries": "fourteen starts of a process, compared",
    "test_what_is_written_is_read_again": "random writes and reads of what a process remembers",
    "test_a_client_that_does_not_read_is_disconnected": "a client that blocks the server for a whole time limit",
    "test_axe_finds_violations": "an independent checker proves that the page test can fail",
    "test_it_predicts_exactly_what_workers_refuse": "the deploy check beside workers that run 2,000 jobs",
    "test_the_dashboard_is_behind_the_login_of_the_application": "an application of each framework, in a browser",
    "test_a_worker_stopped_on_a_shared_store_leaves_no_claims": "workers stopped at random moments",
    "test_a_crowd_never_runs_more_of_a_limit_key_than_it_allows": "many processes claim under one limit",
    "test_the_feed_does_not_grow_beyond_what_it_keeps": "more transitions than a store keeps",
    "test_a_due_run_that_was_not_enqueued_is_late": "the page waits until a run is late",
    "test_very_many_children_of_one_parent_run_and_then_what_comes_after_all": "thousands of children of one parent",
    "test_an_exchange_costs_as_many_commands_at_any_depth": "a queue of 60,000 jobs",
    "test_a_program_that_leaves_the_app_open_ends_without_a_complaint": "programs in processes of their own",
}
"""Why a slow test is worth its time."""


def folder(test: str) -> str:
    parts = test.partition("::")[0].split("/")
    return "/".join(parts[:2])


def table(report: Path, slowest: int) -> str:
    """Both lists in Markdown."""
    seconds: dict[str, float] = json.loads(report.read_text())
    folders: dict[str, list[float]] = defaultdict(list)
    for test, took in seconds.items():
        folders[folder(test)].append(took)
    total = f"{len(seconds)} tests, {sum(seconds.values()):.0f} s of test time"
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [f"{total} ({machine}).", "", "| folder | tests | seconds | longest |", "| --- | --: | --: | --: |"]
    for name, took in sorted(folders.items(), key=lambda item: -sum(item[1])):
        lines.append(f"| `{name}` | {len(took)} | {sum(took):.0f} | {max(took):.1f} |")
    lines += ["", "| test | seconds | why it is worth them |", "| --- | --: | --- |"]
    for test, took in sorted(seconds.items(), key=lambda item: -item[1])[:slowest]:
        lines.append(f"| `{test}` | {took:.1f} | {WORTH.get(test.rpartition('::')[2].partition('[')[0], '')} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Where the time of a test run goes.")
    parser.add_argument("report", nargs="?", type=Path, default=REPORT, help="(default: of the last `make test`)")
    parser.add_argument("--slowest", type=int, default=20, metavar="N", help="how many tests to name (default: 20)")
    parser.add_argument("--record", action="store_true", help=f"write it to {RECORD.relative_to(ROOT)} too")
    chosen = parser.parse_args()
    if not chosen.report.exists():
        parser.error(f"{chosen.report} is not there: run `make test` first")
    found = table(chosen.report, chosen.slowest)
    print(found, end="")
    if chosen.record:
        RECORD.write_text(
            f"# How long the tests take\n\nWritten by `python tests/support/durations.py --record`.\n\n{found}"
        )


if __name__ == "__main__":
    main()

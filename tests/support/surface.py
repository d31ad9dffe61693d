"""What a user may ask of each class: its public names, but for those with which the parts of an app ask each other."""

from holdfast import Claim, Context, Flow, Handle, Holdfast, Node, Task, Worker
from holdfast.flows.service import Flows
from holdfast.schedules.service import Schedules
from holdfast.webhooks.service import Webhooks

INSIDE: dict[type, set[str]] = {
    Holdfast: {
        "after_fork",
        "at_exit",
        "at_home",
        "beat",
        "check_bound",
        "choose_loop",
        "close_blocking",
        "current_settings",
        "disconnect",
        "drop_quietly",
        "end_workers",
        "in_background",
        "known_store_id",
        "loop_ends",
        "loop_is_ending",
        "opened",
        "outages",
        "stay_here",
        "claim_for",
        "ended",
        "enqueue_call",
        "insert",
        "insert_all",
        "insert_bound",
        "leave",
        "live_loop",
        "new_job",
        "note",
        "put_record",
        "record",
        "records",
        "session",
        "settle",
        "settlement",
        "store",
        "submission",
    },
    Task: {"decode", "decode_result", "encode", "encode_open", "encode_result"},
    Handle: {"decode"},
    Claim: {"heart", "record", "token"},
    Context: {"ask_to_stop", "let_steps_end", "progress_note", "say", "write"},
    Flow: {"check", "forgiven"},
    Node: {"about"},
    Flows: {
        "add",
        "cancel",
        "carry_on",
        "delete",
        "free",
        "in_the_making",
        "members",
        "retry_jobs",
        "repair",
        "retry",
        "start",
        "status",
        "with_results",
    },
    Schedules: {"declare", "keep", "make_due_runs", "of_call", "of_job"},
    Webhooks: {"key"},
    Worker: {"heart_class"},
}


def surface(kind: type) -> set[str]:
    """The names that a user may ask for."""
    return {name for name in dir(kind) if not name.startswith("_")} - INSIDE.get(kind, set())

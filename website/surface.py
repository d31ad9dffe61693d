"""What a user may ask of each class: its public names, but for those with which the parts of an app ask each other."""

from holdfast import Claim, Context, Flow, Handle, Node, Task, Worker
from holdfast.flows.service import Flows
from holdfast.schedules.service import Schedules
from holdfast.webhooks.service import Webhooks

INSIDE: dict[type, set[str]] = {
    Task: {"decode", "decode_result", "encode", "encode_open", "encode_result", "stored_as"},
    Handle: {"decode"},
    Claim: {"heartbeat", "record", "token"},
    Context: {
        "ask_to_stop",
        "end_stream",
        "finish_stream",
        "let_steps_end",
        "progress_note",
        "refuse_in_transaction",
        "say",
        "unwritten",
        "write",
    },
    Flow: {"check", "tolerated"},
    Node: {"about", "is_first", "outside"},
    Flows: {
        "add",
        "process_now",
        "delete",
        "enqueue",
        "in_the_making",
        "members",
        "release",
        "retry_jobs",
        "store_follow_ups",
        "sync",
        "with_results",
    },
    Schedules: {"declare", "declared", "keep", "make_due_runs", "of_call", "of_job"},
    Webhooks: {"key"},
    Worker: {"heartbeat_class", "guard_class", "threads_class"},
}


def surface(kind: type) -> set[str]:
    """The names that a user may ask for."""
    return {name for name in dir(kind) if not name.startswith("_")} - INSIDE.get(kind, set())

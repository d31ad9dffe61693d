"""SIGSTOP past the lease, another takes over, SIGCONT: whatever the first one still says is refused. (L, F)"""

from __future__ import annotations

import pytest
from support.stores import task_on_every_store
from support.until import until

WORDS = ("complete", "fail", "extend", "release")


@pytest.mark.parametrize("second_has", ["ended", "not ended"])
def test_every_write_of_a_stopped_holder_is_refused_and_the_second_result_stays(look, processes, journal, second_has):
    ids = [look.sync.submit("by_hand", b"{}", json=True).id for _ in WORDS]
    first = processes.start("hand_main", name="first", lease=1.0, limit=len(WORDS))
    until(lambda: journal.count("claimed", pid=first.pid) == len(WORDS), "the first holds the jobs")
    look.until_renewed(4, first.pid)  # its heartbeat has carried it past its first lease
    assert look.held_by(first.pid) == set(ids)
    look.freeze(first)
    second = processes.start("hand_main", name="second", lease=60.0, limit=len(WORDS))
    until(lambda: journal.count("claimed", pid=second.pid) == len(WORDS), "the second has taken over")

    if second_has == "ended":
        second.say(" ".join(f"{id}=complete" for id in ids))
        assert second.ended() == 0, second.output()
    first.thaw()
    first.say(" ".join(f"{id}={word}" for id, word in zip(ids, WORDS, strict=True)))
    assert first.ended() == 0, first.output()
    if second_has == "not ended":
        second.say(" ".join(f"{id}=complete" for id in ids))
        assert second.ended() == 0, second.output()

    answers = {(entry["pid"], entry["job"]): (entry["word"], entry["answer"]) for entry in journal.entries("answer")}
    for id, word in zip(ids, WORDS, strict=True):
        look.demand(id, answers[first.pid, id] == (word, "LeaseLost"), f"a stopped holder's {word} was not refused")
        look.demand(id, answers[second.pid, id] == ("complete", "written"), "the second's complete was not written")
    look.demand_finished_once(dict.fromkeys(ids, f"complete by {second.pid} under fence 2"))
    look.demand_all(ids, lambda job: [line.outcome for line in job.history] == ["lost", "succeeded"], "lost, then done")


def test_a_stopped_holder_may_settle_when_nobody_has_ended_its_claim(look, processes, journal):
    id = look.sync.submit("by_hand", b"{}", json=True).id
    holder = processes.start("hand_main", lease=1.0, limit=1)
    until(lambda: journal.count("claimed", pid=holder.pid) == 1, "the job is held")
    look.freeze(holder)
    until(lambda: not look.is_registered(holder.pid), "the lease is over")
    holder.thaw()
    holder.say(f"{id}=complete")
    assert holder.ended() == 0, holder.output()
    look.demand_finished_once({id: f"complete by {holder.pid} under fence 1"})


@task_on_every_store("gated", in_thread="gated_in_thread")
@pytest.mark.parametrize("second_has", ["ended", "not ended"])
def test_a_stopped_worker_cannot_write_its_late_result(  # noqa: PLR0917  # fixtures come by position
    look, processes, journal, gates, task, second_has
):
    id = look.enqueue(task, 1)
    first = processes.worker(lease=1.0)
    look.until_started(id)
    look.freeze(first)
    second = processes.worker(lease=1.0)
    look.until_started(id, fence=2)
    if second_has == "ended":
        gates.open(1, fence=2)
        look.until_ended([id])
    gates.open(1, fence=1)  # so the first one's run ends as soon as it wakes
    first.thaw()
    until(
        lambda: journal.count("refused", pid=first.pid, jobs=[id]),
        "the first worker hears that its claim is gone",
        details=lambda: look.story(id),
    )
    if second_has == "not ended":
        look.demand(id, look.held_by(second.pid) == {id}, "the second's claim was touched")
        gates.open(1, fence=2)
        look.until_ended([id])
    look.demand_finished_once({id: 2})
    look.demand(id, journal.per_job("start")[id] == 2, "two starts were to be seen")


def test_a_stopped_worker_goes_on_working_when_it_wakes(look, processes, gates):
    lost = look.enqueue("gated", 1)
    first = processes.worker(lease=1.0)
    look.until_started(lost)
    look.freeze(first)
    second = processes.worker(lease=1.0)
    look.until_started(lost, fence=2)
    gates.open(1)
    look.until_ended([lost])
    second.kill()
    first.thaw()
    later = look.enqueue("work", 7)
    look.until_ended([later])
    look.demand_finished_once({lost: 2, later: 49})


@pytest.mark.extended
def test_a_stopped_worker_adds_nothing_to_the_log_and_the_stream_of_the_next_claim(look, processes, journal, gates):
    def stored() -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
        handle = look.sync.handle(id)
        lines = [(line.fence, line.text) for line in handle.logs()]
        return lines, [(chunk.fence, chunk.value) for chunk in handle.stream(follow=False)]

    def has_both(fence: int) -> bool:
        return all(any(one == fence for one, _ in written) for written in stored())

    id = look.enqueue("stream", 1)
    first = processes.worker(lease=1.0)
    until(lambda: has_both(1), "the first has printed and emitted", details=lambda: look.story(id))
    look.freeze(first)
    processes.worker(lease=1.0)
    until(lambda: has_both(2), "the second has printed and emitted", details=lambda: look.story(id))
    before = stored()
    first.thaw()
    until(
        lambda: any(entry["fence"] == 1 for entry in journal.entries("broken", jobs=[id])),
        "the first worker has stopped its run",
        details=lambda: look.story(id),
    )
    gates.open(1)
    look.until_ended([id])
    for then, now in zip(before, stored(), strict=True):
        look.demand(id, now[: len(then)] == then, "what was shown is no longer there")
        of_first = [text for fence, text in now if fence == 1]
        look.demand(id, of_first == [f"1-{n}" for n in range(len(of_first))], "the first's are not in order")
        of_second = [text for fence, text in now if fence == 2]
        look.demand(id, of_second == [f"2-{n}" for n in range(len(of_second))], "the second's are not all there")
        look.demand(
            id, [fence for fence, _ in now] == sorted(fence for fence, _ in now), "a stale write got in between"
        )
        look.demand(id, of_first == [text for fence, text in then if fence == 1], "the stopped worker has written")

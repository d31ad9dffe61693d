"""The process guard: parent of one job's processes, which ends only after all of them have ended.

Runs as a script with only the standard library, since one is started for every job:

    python -I -S process_guard.py STATUS_FD WORKER_PID COMMAND…

1. It adopts orphans of its descendants (a subreaper), so that it can also end double-forked daemons.
2. SIGTERM: sends SIGTERM to the job's processes. SIGUSR1: sends SIGKILL.
3. If the worker crashes, the kernel sends SIGUSR1 to the guard; if the guard crashes, the command gets SIGKILL.
4. Once the command has ended, the processes that it left get SIGTERM, and a second later SIGKILL.
5. It writes `pid N` at the start and `exit N` or `signal N` at the very end to STATUS_FD.

Other systems than Linux have no subreaper and no /proc: there it ends only the command's process group.
"""

# ruff: noqa: SIM105  # contextlib would cost a millisecond of every job

from __future__ import annotations

import os
import select
import signal
import sys

LEFTOVERS = 1.0
"""Seconds between SIGTERM and SIGKILL for processes that a command left running."""
PR_SET_PDEATHSIG = 1
"""An option of prctl(2): the signal when the parent ends."""
PR_SET_CHILD_SUBREAPER = 36
"""An option of prctl(2): orphans below become children of this process."""


def prctl(option: int, value: int) -> None:
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def descendants() -> list[int]:
    """Every process below this one, zombies included."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208  # pathlib would cost more than all the rest
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), ()):
            found.append(pid)
            below.append(pid)
    return found


def signal_tree(command: int, number: int) -> None:
    """Signal all descendants; SIGCONT lets stopped processes handle it."""
    try:
        pids = descendants()
    except OSError:
        pids = [-command]
    for pid in pids:
        for each in (number, signal.SIGCONT):
            try:
                os.kill(pid, each)
            except OSError:
                pass


def start(command: list[str], status: int) -> int:
    """Run the command in its own session; it is killed if the process guard ends."""
    process_guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != process_guard:
        os._exit(1)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these; a shell's children expect them
        signal.signal(number, signal.SIG_DFL)
    os.close(status)
    try:
        os.execvp(command[0], command)  # noqa: S606
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(127)


def ignore(*_: object) -> None:
    """Handler for a signal that only has to wake the main loop."""


def reap(command: int, ended: int | None) -> tuple[int | None, bool]:
    """Reap ended children: returns the command's status once it has ended, and whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, False
        if pid == 0:
            return ended, True
        if pid == command:
            ended = status


def main() -> None:
    status, worker = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(status, False)
    received: list[int] = []

    def receive(number: int, _: object) -> None:
        received.append(number)

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, receive)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, ignore)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGUSR1)
    if os.getppid() != worker:
        return
    command = start(sys.argv[3:], status)
    os.write(status, b"pid %d\n" % command)
    for fd in range(3, 64):  # descriptors of the command, so that their end can be detected
        if fd not in (status, reading, writing):
            try:
                os.close(fd)
            except OSError:
                pass
    ended, tidying, killing = None, False, False
    while True:
        ended, any_left = reap(command, ended)
        if not any_left:
            break
        if ended is not None and not tidying:
            tidying = True
            signal.setitimer(signal.ITIMER_REAL, LEFTOVERS)
        while received:
            if received.pop(0) == signal.SIGTERM:
                signal_tree(command, signal.SIGTERM)
            else:
                killing = True
        if killing or tidying:  # repeatedly: a process that was just forked has missed the last one
            signal_tree(command, signal.SIGKILL if killing else signal.SIGTERM)
        select.select([reading], [], [], 0.02 if killing else 0.1 if tidying else None)
        try:
            os.set_blocking(reading, False)
            os.read(reading, 4096)
        except OSError:
            pass
    if ended is None:
        line = b""
    elif os.WIFSIGNALED(ended):
        line = b"signal %d\n" % os.WTERMSIG(ended)
    else:
        line = b"exit %d\n" % os.WEXITSTATUS(ended)
    os.write(status, line)


main()

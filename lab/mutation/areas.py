"""What is mutated, area by area, and which tests have to notice: those of the area, 15 seconds of them at the most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Area:
    """Files of the package, the tests that are to catch their mutants, and which of these (pytest's -k)."""

    name: str
    files: tuple[str, ...]
    tests: tuple[str, ...]
    only: str = "not sqlite"

    def sources(self, root: Path) -> list[str]:
        """Its files, by their path in the package; a pattern that fits nothing is an error."""
        package = root / "src" / "holdfast"
        found = {pattern: sorted(package.glob(pattern)) for pattern in self.files}
        if missing := [pattern for pattern, files in found.items() if not files]:
            raise FileNotFoundError(f"area {self.name}: there is no {', '.join(missing)}")
        return [file.relative_to(package).as_posix() for files in found.values() for file in files]

    def selected(self, root: Path) -> list[str]:
        """Its tests, as pytest takes them: the files of each pattern, with what is said after `::`."""
        found: list[str] = []
        for pattern in self.tests:
            name, colons, inside = pattern.partition("::")
            files = sorted(root.glob(name))
            if not files:
                raise FileNotFoundError(f"area {self.name}: there is no {name}")
            found += [f"{file.relative_to(root).as_posix()}{colons}{inside}" for file in files]
        return found


AREAS = (
    Area(
        "lifecycle",
        ("core/lifecycle.py", "core/retry.py"),
        (
            "tests/unit/test_lifecycle.py",
            "tests/unit/test_retry.py",
            "tests/app/test_expiry.py",
            "tests/app/test_moving.py",
            "tests/worker/test_ends.py",
            "tests/worker/test_refused_jobs.py",
        ),
        only="not sqlite and not rolling_deploy",
    ),
    Area(
        "limiter",
        ("core/limiter.py", "store/reference/ready_queues.py"),
        (
            "tests/unit/test_limiter.py",
            "tests/unit/test_ready_queues.py",
            "tests/conformance/test_memory.py",
            "tests/conformance/test_bucket.py::TestFolderWithABusyKeeper",
            "tests/app/test_limits.py",
            "tests/worker/test_limited.py",
        ),
    ),
    Area(
        "flow rules",
        ("core/flow_rules.py", "flows/completion.py", "flows/release.py"),
        (
            "tests/unit/test_flow_rules.py",
            "tests/app/test_flows.py",
            "tests/app/test_flow_ends.py",
            "tests/app/test_flow_making.py",
            "tests/app/test_flow_retries.py",
            "tests/app/test_flow_closing.py",
            "tests/app/test_flow_outside.py",
            "tests/app/test_follow_ups.py",
        ),
    ),
    Area(
        "group commit",
        ("store/group_commit.py",),
        (
            "tests/unit/test_commit.py",
            "tests/unit/test_commit_batches.py",
            "tests/unit/test_commit_bytes.py",
            "tests/app/test_partial_bulk.py",
        ),
    ),
    Area(
        "claim",
        ("worker/claim.py", "worker/slots.py", "worker/queue_rotation.py", "client/claims.py"),
        (
            "tests/unit/test_claimer.py",
            "tests/unit/test_claim_ends.py",
            "tests/unit/test_worker_slots.py",
            "tests/unit/test_queue_rotation.py",
            "tests/app/test_manual_claims.py",
            "tests/app/test_waiting_claims.py",
            "tests/app/test_expiry.py",
            "tests/worker/test_late_claims.py",
            "tests/worker/test_batches.py",
            "tests/worker/test_refused_ends.py",
            "tests/worker/test_quarantine_slots.py",
        ),
    ),
    Area(
        "settle",
        ("worker/settle.py", "store/reference/jobs.py"),
        (
            "tests/unit/test_reference_jobs.py",
            "tests/unit/test_settler.py",
            "tests/conformance/test_memory.py",
            "tests/conformance/test_bucket.py::TestFolderWithABusyKeeper",
            "tests/worker/test_ends.py",
            "tests/worker/test_refused_ends.py",
            "tests/worker/test_store_refusals.py",
            "tests/worker/test_sleeping.py",
        ),
    ),
    Area(
        "heartbeat",
        ("client/heartbeat.py", "worker/lease.py"),
        (
            "tests/unit/test_heartbeat.py",
            "tests/unit/test_leases.py",
            "tests/worker/test_late_claims.py",
            "tests/worker/test_cancelling.py",
        ),
    ),
    Area(
        "HTTP auth",
        ("http/auth.py", "http/tokens.py", "http/scoping.py", "http/failures.py"),
        ("tests/http/test_http_auth.py", "tests/http/test_http_scopes.py", "tests/http/test_http_wrong_tokens.py"),
        only="",
    ),
    Area(
        "codec",
        ("codec/*.py",),
        ("tests/unit/test_codec_*.py", "tests/app/test_results_by_codec.py"),
    ),
)
SECONDS = 15.0
"""What the tests of an area may take, on a machine that does nothing else."""

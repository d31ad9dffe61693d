"""Mutants that no test can catch, each with the reason: they do the same, or only sooner, later or at another price."""

from __future__ import annotations

_FEW = 'len(payload) <= MAX_NESTING or payload.count(b"[") + payload.count(b"{") <= MAX_NESTING'
_SHORTCUT = "the loop below gives the same answer; the condition spares it for most payloads"

EXPLAINED: dict[tuple[str, str, str, str], str] = {
    ("store/group_commit.py", "self._writes = 0", "0", "1"): "only differences of the count are used",
    (
        "store/group_commit.py",
        "end = settle(record, Outcome.released(), Settings().rules, nonce=self._entropy.token(), fraction=0.0)",
        "0.0",
        "1.0",
    ): "the fraction places a retry within its jitter; a released job has no backoff",
    (
        "core/limiter.py",
        "finish: int = 0",
        "0",
        "1",
    ): "it is compared with times in microseconds since 1970, which are above both",
    (
        "core/lifecycle.py",
        "return max(last, record.changed_at or 0)",
        "0",
        "1",
    ): "the other value is a time in microseconds since 1970, which is above both",
    (
        "core/lifecycle.py",
        "return 0",
        "0",
        "1",
    ): "a job that was not refused before has been refused for 0 s: the count matters only for a timeout of 0, as 0",
    (
        "codec/arguments.py",
        "self._hint = self._annotations.resolve(signature.return_annotation) if signature and annotated else Any",
        "signature and annotated",
        "(annotated)",
    ): "`annotated` is true only where there is a signature; the condition is for the type checker",
    (
        "codec/arguments.py",
        "simple = shape.star is None and shape.extra is None and not shape.positional_only",
        "shape.extra is None",
        "(shape.extra is not None)",
    ): "calls go the careful way, which gives the same, or go there after the fast way has failed: only slower",
    (
        "codec/arguments.py",
        "fields = tuple(field for field in fields if field is not UNSET)",
        "field is not UNSET",
        "(field is UNSET)",
    ): "calls without all defaults then go the careful way, which gives the same: only slower",
    (
        "codec/arguments.py",
        "and not (self._untyped and self._needs_care(values))",
        "self._untyped and self._needs_care(values)",
        "(self._needs_care(values))",
    ): "without untyped parameters none needs care; the condition spares a call",
    (
        "codec/shape.py",
        "if get_origin(hint) is Annotated and any(isinstance(part, Injected) for part in get_args(hint)):",
        "get_origin(hint) is Annotated and any(isinstance(part, Injected) for part in get_args(hint))",
        "(any((isinstance(part, Injected) for part in get_args(hint))))",
    ): "the parts of other annotations are types, never dependencies; the condition spares a look at them",
    (
        "codec/values.py",
        "if type(value) not in SCALARS and (change := changed(value, read(read_any, payload, what), exact=True)):",
        "type(value) not in SCALARS and (change := changed(value, read(read_any, payload, what), exact=True))",
        "((change := changed(value, read(read_any, payload, what), exact=True)))",
    ): "`changed` makes the same check first; the condition spares a decoding",
    ("codec/values.py", f"if {_FEW}:", f"if {_FEW}:\n        return True", "pass"): _SHORTCUT,
    ("codec/values.py", f"if {_FEW}:", _FEW, f"({_FEW.replace(' or ', ' and ').replace(chr(34), chr(39))})"): _SHORTCUT,
    ("codec/values.py", f"if {_FEW}:", _FEW, "(len(payload) <= MAX_NESTING)"): _SHORTCUT,
    (
        "codec/values.py",
        "return _not_finite(msgspec.to_builtins(value, enc_hook=_to_json, str_keys=True))",
        "True",
        "False",
    ): "the keys are only written into a path, where a number looks like its text",
    (
        "codec/values.py",
        "if type(item) not in (str, int, bool) and (path := _not_finite(item)) is not None:",
        "type(item) not in (str, int, bool) and (path := _not_finite(item)) is not None",
        "((path := _not_finite(item)) is not None)",
    ): "a text or a whole number has no NaN in it; the condition spares a call",
    (
        "worker/lease.py",
        "mine = record is not None and record.holder == self.holder.id and record.fence == key[1]",
        "record is not None and record.holder == self.holder.id and record.fence == key[1]",
        "(record is not None and record.fence == key[1])",
    ): "every claim of a job has a new fence, so the fence alone says whose claim it is",
    (
        "worker/lease.py",
        "if record is not None and mine:",
        "record is not None and mine",
        "(mine)",
    ): "`mine` is true only where there is a record; the condition is for the type checker",
    (
        "client/claims.py",
        "limit: int = 1,",
        "1",
        "2",
    ): "both callers, `app.claim` and `app.sync.claim`, give the limit, with a default of their own",
    (
        "store/reference/ready_queues.py",
        "late = quarantined is not None and (len(chosen) < room or place(quarantined) < place(chosen[-1]))",
        "place(quarantined) < place(chosen[-1])",
        "(place(quarantined) <= place(chosen[-1]))",
    ): "they are two jobs, and no two have the same place: it contains the `seq`",
    (
        "store/reference/ready_queues.py",
        "if deferred and record.limit_key is not None:",
        "deferred and record.limit_key is not None",
        "(deferred)",
    ): "`deferred` is true only where there is a limit key; the condition is for the type checker",
    (
        "store/reference/jobs.py",
        "known = self.holders[holder.id] = Holding(holder, 0, holder.lease, False, {})",
        "False",
        "True",
    ): "`left` is set to False below, for new holders too",
    (
        "store/reference/jobs.py",
        "known = self.holders[holder.id] = Holding(holder, 0, holder.lease, False, {})",
        "0",
        "1",
    ): "only whether the number of heartbeats has changed is used",
    (
        "store/reference/jobs.py",
        "self.versions += 1",
        "1",
        "2",
    ): "a version has only to be another than all before",
    (
        "flows/completion.py",
        "jobs, number = -1, None if record.id == own.id else number_in(own.id, record.id)",
        "1",
        "2",
    ): "any number that no count of jobs can be: it makes the first pass of the loop",
    (
        "flows/completion.py",
        "if kept is not None and (number_kept(kept) or 0) > about.jobs + about.grown:  # jobs were added as it ended",
        "0",
        "1",
    ): "every flow has a job, so neither number is above the count of its jobs",
    (
        "flows/completion.py",
        "if span is spans[0] and not left:",
        "span is spans[0] and not left",
        "(not left)",
    ): "`upto` then passes the end of the first span, whose jobs have all ended; the second is always read as a whole",
    (
        "flows/release.py",
        "new = {id: end for id, end in ends.items() if _version(recorded, id) < 0}",
        "_version(recorded, id) < 0",
        "(_version(recorded, id) <= 0)",
    ): "records that were read have versions above 0; those written since have -1",
    (
        "flows/release.py",
        'flow = extras.read(record.extra).flow or ""',
        'extras.read(record.extra).flow or ""',
        "(extras.read(record.extra).flow)",
    ): "only jobs of a flow have placeholders for results; the condition is for the type checker",
    (
        "flows/release.py",
        "if not gone and await self._jobs.get([flow]):",
        "not gone and await self._jobs.get([flow])",
        "(await self._jobs.get([flow]))",
    ): "once it is deleted, the read finds nothing; the condition spares it",
}
"""By file, line, old text and new text, so that it holds wherever the lines go."""

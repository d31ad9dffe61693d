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
    ): "the fraction places a retry within its jitter; a released job has no back-off",
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
        "return (self._compiled or self._compile()).encode(args, kwargs)",
        "self._compiled or self._compile()",
        "(self._compile())",
    ): "compiled anew for each call, with the same result: only slower",
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
        "client/heartbeat.py",
        "if loop is not None and stop is not None and not loop.is_closed():",
        "loop is not None and stop is not None and not loop.is_closed()",
        "(loop is not None and (not loop.is_closed()))",
    ): "one statement sets both of them; the condition is for the type checker",
}
"""By file, line, old text and new text, so that it holds wherever the lines go."""

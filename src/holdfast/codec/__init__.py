"""Encodings: a Python call as a JSON payload and back, results and checkpoints, and signed pickles."""

from .arguments import Arguments, Returns, encode_untyped
from .holes import Hole, filled, holes_in, is_open, numbers_in, opened
from .signed import Signed
from .values import check_json, decode_value, encode_value, shown

__all__ = [
    "Arguments",
    "Hole",
    "Returns",
    "Signed",
    "check_json",
    "decode_value",
    "encode_untyped",
    "encode_value",
    "filled",
    "holes_in",
    "is_open",
    "numbers_in",
    "opened",
    "shown",
]

"""What tests reach of an app that programs do not."""

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.client.session import Session


def session_of(app: Holdfast) -> Session:
    """The open session of an app, on its own loop."""
    return parts_of(app).runtime.session

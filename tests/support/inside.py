"""What tests reach of an app that programs do not."""

from holdfast import Holdfast
from holdfast.app import parts_of
from holdfast.client.session import Session
from holdfast.flows.release import Release


def session_of(app: Holdfast) -> Session:
    """The open session of an app, on its own loop."""
    return parts_of(app).session


def release_of(app: Holdfast) -> Release:
    """What a worker of an app does about the jobs of flows that have ended."""
    return parts_of(app).flows.release(session_of(app))

"""Users of the site, by what they may do."""

from __future__ import annotations

from django.contrib.auth.models import Permission, User

ALL = ("view_job", "retry_job", "cancel_job", "operate")


def user(name: str, *permissions: str, staff: bool = True) -> User:
    made = User.objects.create_user(name, is_staff=staff)
    made.user_permissions.set(Permission.objects.filter(content_type__app_label="holdfast", codename__in=permissions))
    assert made.user_permissions.count() == len(permissions)
    return made

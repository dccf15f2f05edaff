"""Failures that Keepsake reports, under the names of the contract."""

from __future__ import annotations

# The service was busy, or its answer was lost. The same message may be sent again: each event has
# an id, and a second copy changes nothing.
RETRIED = frozenset({"overloaded", "unavailable", "expired", "no_reply"})


class KeepsakeError(Exception):
    """`status` is a name such as invalid, not_found, overloaded or forbidden."""

    def __init__(self, status: str, message: str, field: str | None = None) -> None:
        super().__init__(f"{status}: {message}" + (f" (field {field})" if field else ""))
        self.status = status
        self.message = message
        self.field = field

"""Client of Keepsake, long-term memory for chat and agent applications.

`Http` talks to the gateway and needs the standard library only; `Kafka` (extra: kafka) talks to the
topics. Both have the methods of `Client`. `remembering` gives memory to the clients of OpenAI and
Anthropic.
"""

from typing import TYPE_CHECKING, Any

from .client import Client
from .errors import KeepsakeError
from .http import Http
from .messages import (
    Applied,
    Decision,
    Explained,
    Listed,
    Memory,
    MemoryReply,
    Recalled,
    Stats,
    Turn,
)

if TYPE_CHECKING:
    from .kafka import Kafka
    from .wrapped import memory_of, remembering

__version__ = "0.1.0"
__all__ = [
    "Applied",
    "Client",
    "Decision",
    "Explained",
    "Http",
    "Kafka",
    "KeepsakeError",
    "Listed",
    "Memory",
    "MemoryReply",
    "Recalled",
    "Stats",
    "Turn",
    "memory_of",
    "remembering",
]


def __getattr__(name: str) -> Any:
    """Imports only what is used: Kafka needs confluent-kafka, and `wrapped` asyncio."""
    if name in ("memory_of", "remembering"):
        from . import wrapped

        return getattr(wrapped, name)
    if name == "Kafka":
        try:
            from .kafka import Kafka
        except ModuleNotFoundError as error:
            if error.name != "confluent_kafka":
                raise
            what = "keepsake_recall.Kafka needs a package: pip install confluent-kafka"
            raise ModuleNotFoundError(what, name=error.name) from error

        return Kafka
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

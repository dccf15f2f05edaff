"""The transport over the topics of Kafka, without a gateway. Needs confluent-kafka.

Each client reads one partition of the reply topic from its end and takes the replies with its own
correlation ids.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import random
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from .client import EVENTS, Client
from .errors import KeepsakeError

CORRELATION = "kafka_correlationId"
# Headers that a signature covers, in this order: `schemas/README.md` of Keepsake.
SIGNED = (
    "ce_id ce_time ce_type content-type correlation-id kafka_correlationId kafka_replyPartition "
    "kafka_replyTopic keepsake-deadline keepsake-min-offset keepsake-sender-limits "
    "reply-topic"
).split()
# Users of whom the client knows the offset of the last event.
WRITTEN_MAX = 100_000


class Kafka(Client):
    """`config` is librdkafka's own, for TLS and SASL; `secret` signs for a tenant with a key."""

    def __init__(
        self,
        brokers: str = "localhost:9092",
        *,
        tenant: str = "default",
        prefix: str = "keepsake.",
        secret: bytes | None = None,
        timeout: float = 15,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        common = {"bootstrap.servers": brokers, "client.id": "keepsake-python", **(config or {})}
        self._tenant, self._prefix, self._secret = tenant, prefix, secret
        self._timeout = timeout
        self._waiting: dict[bytes, Future[dict[str, Any]]] = {}
        self._written: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # Kafka's own partitioner, which librdkafka does not use by itself.
        self._producer = Producer({**common, "partitioner": "murmur2_random", "linger.ms": 0})
        self._consumer = Consumer(
            {**common, "group.id": f"keepsake-{uuid.uuid4()}", "enable.auto.commit": False}
        )
        replies = f"{prefix}replies"
        try:
            partitions = self._consumer.list_topics(replies, timeout).topics[replies].partitions
            self._partition = random.choice(list(partitions))
            place = TopicPartition(replies, self._partition)
            _, end = self._consumer.get_watermark_offsets(place, timeout)
        except (KafkaException, IndexError) as error:
            self._consumer.close()
            reason = f"no topic {replies}" if isinstance(error, IndexError) else str(error)
            message = f"{reason}: are the brokers up, and is `keepsake serve` running?"
            raise KeepsakeError("unavailable", message) from error
        # In place before the first request, or its reply could come too early.
        self._consumer.assign([TopicPartition(replies, self._partition, end)])
        self._reader = threading.Thread(target=self._read, name="keepsake-replies", daemon=True)
        self._reader.start()

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._reader.join()
            self._consumer.close()
            self._producer.flush(self._timeout)

    def _read(self) -> None:
        while not self._closed.is_set():
            record = self._consumer.poll(0.1)
            if record is None or record.error():
                continue
            correlation = dict(record.headers() or []).get(CORRELATION)
            with self._lock:
                waiting = self._waiting.pop(correlation or b"", None)  # type: ignore[arg-type]
            if waiting is None:
                continue
            try:
                waiting.set_result(json.loads(record.value() or b""))
            except ValueError as error:
                waiting.set_exception(KeepsakeError("bad_reply", f"the reply is no JSON: {error}"))

    def _send(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        user = message["user"]
        is_event = kind in EVENTS
        correlation = uuid.uuid4().bytes
        headers = [
            ("kafka_replyTopic", f"{self._prefix}replies".encode()),
            ("kafka_replyPartition", self._partition.to_bytes(4, "big")),
            (CORRELATION, correlation),
        ]
        with self._lock:
            written = None if is_event else self._written.get(user)
        if written is not None:
            headers.append(("keepsake-min-offset", str(written).encode()))
        topic = self._prefix + ("events" if is_event else "recalls")
        key = f"{self._tenant}/{user}".encode()
        value = json.dumps({"type": kind, "tenant": self._tenant, **message}).encode()
        if self._secret:
            now = time.time_ns() // 1_000_000
            signed = signature(self._secret, topic, key, value, headers, now)
            headers.append(("keepsake-tenant-signature", signed))
        reply = self._exchange(topic, key, value, headers, correlation)
        if error := reply.get("error"):
            status = reply.get("status", "unavailable")
            # Offsets of a topic that was made anew are others: the next request is free.
            if status == "stale":
                with self._lock:
                    self._written.pop(user, None)
            raise KeepsakeError(status, error.get("message", ""), error.get("field"))
        if is_event:
            self._wrote(user, reply.get("offset", -1))
        return reply

    def _exchange(
        self,
        topic: str,
        key: bytes,
        value: bytes,
        headers: list[tuple[str, bytes]],
        correlation: bytes,
    ) -> dict[str, Any]:
        if self._closed.is_set():
            raise KeepsakeError("unavailable", "this client is closed")
        reply: Future[dict[str, Any]] = Future()
        with self._lock:
            self._waiting[correlation] = reply
        try:
            self._producer.produce(topic, value, key, headers=[*headers])
            self._producer.poll(0)
            return reply.result(self._timeout)
        except Late:
            message = f"no reply within {self._timeout} s: is `keepsake serve` running?"
            raise KeepsakeError("no_reply", message) from None
        except (BufferError, KafkaException) as error:
            raise KeepsakeError("unavailable", str(error)) from error
        finally:
            with self._lock:
                self._waiting.pop(correlation, None)

    def _wrote(self, user: str, offset: int) -> None:
        with self._lock:
            self._written[user] = max(offset, self._written.pop(user, -1))
            if len(self._written) > WRITTEN_MAX:
                self._written.popitem(last=False)


def signature(
    secret: bytes,
    topic: str,
    key: bytes,
    value: bytes,
    headers: list[tuple[str, bytes]],
    milliseconds: int,
) -> bytes:
    """Proves that a record is of the tenant with this secret."""
    parts = [b"keepsake tenant 1", topic.encode(), b"%d" % milliseconds, key, value]
    for name in SIGNED:
        for each, held in headers:
            if each == name:
                parts += [name.encode(), held]
    signed = b"".join(b"%d:%s" % (len(part), part) for part in parts)
    digest = hmac.new(secret, signed, hashlib.sha256).hexdigest()
    return b"%d:%s" % (milliseconds, digest.encode())

"""The calls of the contract, over both transports."""

import os
import socket
import threading
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from keepsake_recall import Client, Http, Kafka, KeepsakeError
from keepsake_recall.kafka import signature


def test_a_turn_is_decided_and_recalled(client: Client, user: str) -> None:
    applied = client.turn(user, "I moved to Lisbon last month.", session="s1")
    assert applied["decisions"][0]["outcome"] == "kept"
    dropped = client.turn(user, "Ok, thanks!", session="s1")
    assert dropped["decisions"][0]["outcome"] == "dropped"
    reply = client.recall(user, "Where do I live?", purpose="prompt")
    assert [memory["content"] for memory in reply["memories"]] == ["I moved to Lisbon last month."]
    assert reply["memories"][0]["session"] == "s1"
    assert "Lisbon" in reply["prompt"]
    assert client.stats(user)["memories"]["total"] == 1


def test_a_memory_lives_from_remember_to_forget(client: Client, user: str) -> None:
    labels = {"team": "blue"}
    applied = client.remember(user, "Ada keeps bees in Lisbon", kind="fact", metadata=labels)
    memory = applied["decisions"][0]["memory"]
    held = client.get(user, memory)["memory"]
    assert (held["kind"], held["metadata"]) == ("fact", labels)
    client.update(user, memory, content="Ada keeps bees in Porto")
    reply = client.get(user, memory, history=True)
    assert reply["memory"]["content"] == "Ada keeps bees in Porto"
    assert [it["content"] for it in reply["history"]] == ["Ada keeps bees in Lisbon"]
    applied = client.feedback(user, memory, "confirmed")
    assert applied["decisions"][0]["outcome"] == "noted"
    explained = client.explain(user, memory)
    assert explained["decision"]["reason"] == "asked to remember"
    assert {"updated", "confirmed"} <= {it["what"] for it in explained["since"]}
    assert [it["id"] for it in client.list_all(user)] == [memory]
    client.forget(user, memory=memory)
    assert list(client.list_all(user)) == []
    with pytest.raises(KeepsakeError) as failure:
        client.get(user, memory)
    assert failure.value.status == "not_found"


def test_pages_are_followed_to_the_end(client: Client, user: str) -> None:
    for number in range(7):
        client.remember(user, f"Note {number} about bees", session="s1" if number % 2 else "s2")
    assert "after" in client.list(user, limit=3)
    assert len(list(client.list_all(user))) == 7
    assert len(list(client.list_all(user, session="s1"))) == 3
    client.forget(user, session="s1")
    assert len(list(client.list_all(user))) == 4
    client.forget(user, everything=True)
    assert client.stats(user)["memories"]["total"] == 0


def test_conditions_and_offsets_narrow_a_list(client: Client, user: str) -> None:
    for number in range(5):
        client.remember(user, f"Note {number} about bees", metadata={"n": str(number)})
    found = client.list(user, where={"n": {"$gte": 2, "$lt": 4}})
    assert {it["metadata"]["n"] for it in found["memories"]} == {"2", "3"}
    recalled = client.recall(user, "Which notes are about bees?", where={"n": {"$in": [1, 4]}})
    assert {it["metadata"]["n"] for it in recalled["memories"]} == {"1", "4"}
    assert len(client.list(user, offset=3)["memories"]) == 2
    assert [it["metadata"]["n"] for it in client.list_all(user, where={"n": "4"})] == ["4"]


def test_the_same_event_twice_is_a_duplicate(client: Client, user: str) -> None:
    first = client.remember(user, "Eva lives in Oslo", id="e1")
    again = client.remember(user, "Eva lives in Oslo", id="e1")
    assert again["decisions"][0]["outcome"] == "duplicate"
    assert client.stats(user)["memories"]["total"] == 1
    assert first["decisions"][0]["outcome"] == "kept"


def test_times_are_written_with_their_zone(client: Client, user: str) -> None:
    then = datetime(2026, 3, 14, 9, 26, tzinfo=timezone(timedelta(hours=2)))
    memory = client.remember(user, "Ada has a boat", at=then)["decisions"][0]["memory"]
    assert client.get(user, memory)["memory"]["created_at"] == "2026-03-14T07:26:00Z"
    soon = datetime.now(timezone.utc) + timedelta(hours=1)
    memory = client.remember(user, "Ada is in Rome", expires_at=soon)["decisions"][0]["memory"]
    assert "expires_at" in client.get(user, memory)["memory"]


def test_a_wrong_message_is_refused_by_name(client: Client, user: str) -> None:
    with pytest.raises(KeepsakeError) as failure:
        client.recall(user, "bees", limit="many")  # type: ignore[arg-type]
    assert (failure.value.status, failure.value.field) == ("invalid", "limit")
    with pytest.raises(KeepsakeError) as failure:
        client.turn("a/b", "I live in Rome.")
    assert failure.value.status == "invalid"
    with pytest.raises(ValueError, match="exactly one"):
        client.forget(user)


def test_threads_share_a_client(client: Client, user: str) -> None:
    def speak(number: int) -> None:
        for turn in range(5):
            client.remember(f"{user}-{number}", f"Note {turn}")
            seen.append(client.stats(f"{user}-{number}")["memories"]["total"] == turn + 1)

    seen: list[bool] = []
    threads = [threading.Thread(target=speak, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 40 and all(seen)


def test_the_other_transport_reads_the_same_memories(client: Client, user: str) -> None:
    client.remember(user, "Ada keeps bees in Lisbon")
    with Http(os.environ["KEEPSAKE_URL"]) as http:
        assert [it["content"] for it in http.list_all(user)] == ["Ada keeps bees in Lisbon"]


def test_a_key_decides_the_tenant(user: str) -> None:
    url = os.environ["KEEPSAKE_KEYED_URL"]
    with Http(url, key=os.environ["KEEPSAKE_KEY"]) as keyed:
        keyed.remember(user, "Ada keeps bees in Lisbon")
        assert keyed.stats(user)["memories"]["total"] == 1
    with Kafka(os.environ["KEEPSAKE_BROKERS"], tenant="keyed") as same:
        assert same.stats(user)["memories"]["total"] == 1
    with Http(url) as stranger, pytest.raises(KeepsakeError) as failure:
        stranger.stats(user)
    assert failure.value.status == "unauthorized"


def test_a_lost_reply_is_asked_for_again_with_the_same_id(user: str) -> None:
    class Losing(Http):
        lost = 0

        def _send(self, kind: str, message: dict[str, Any]) -> dict[str, Any]:
            reply = super()._send(kind, message)
            if not self.lost:
                self.lost += 1
                raise KeepsakeError("no_reply", "the reply was lost")
            return reply

    with Losing(os.environ["KEEPSAKE_URL"]) as client:
        applied = client.remember(user, "Eva lives in Oslo")
        assert applied["decisions"][0]["outcome"] == "duplicate"
        assert client.stats(user)["memories"]["total"] == 1


def test_a_connection_that_the_gateway_closed_is_opened_again(user: str) -> None:
    with Http(os.environ["KEEPSAKE_URL"]) as client:
        client.retries = 0
        client.stats(user)
        connection = client._connection()
        connection.sock.shutdown(socket.SHUT_RDWR)
        assert client.stats(user)["memories"]["total"] == 0


def test_a_request_over_kafka_waits_for_the_clients_own_events(user: str) -> None:
    class Watched(Kafka):
        asked: list[dict[str, bytes]] = []

        def _exchange(self, topic: str, *rest: Any) -> dict[str, Any]:
            if topic.endswith("recalls"):
                self.asked.append(dict(rest[2]))
            return super()._exchange(topic, *rest)

    with Watched(os.environ["KEEPSAKE_BROKERS"]) as client:
        client.stats(user)
        offset = client.remember(user, "Eva lives in Oslo")["offset"]
        client.stats(user)
        before, after = client.asked
        assert "keepsake-min-offset" not in before
        assert after["keepsake-min-offset"] == str(offset).encode()


def test_an_address_without_a_service_is_unavailable() -> None:
    client = Http("http://127.0.0.1:1", timeout=1)
    client.retries = 0
    with pytest.raises(KeepsakeError) as failure:
        client.stats("ada")
    assert failure.value.status == "unavailable"
    with pytest.raises(KeepsakeError) as failure:
        Kafka("127.0.0.1:1", timeout=1)
    assert failure.value.status == "unavailable"
    with pytest.raises(KeepsakeError, match="no topic nobody.replies"):
        Kafka(os.environ["KEEPSAKE_BROKERS"], prefix="nobody.")


def test_tenants_of_a_kafka_client_share_nothing() -> None:
    user = str(uuid.uuid4())
    with Kafka(os.environ["KEEPSAKE_BROKERS"], tenant="acme") as acme:
        applied = acme.remember(user, "Ada keeps bees in Lisbon")
        # With a wrong key the service would have to forward the record.
        assert not applied.get("misrouted")
        stats = acme.stats(user)
        assert stats["memories"]["total"] == 1 and not stats.get("misrouted")
    with Kafka(os.environ["KEEPSAKE_BROKERS"]) as other:
        assert other.stats(user)["memories"]["total"] == 0


def test_a_signature_is_that_of_the_contract() -> None:
    value = b'{"type":"turn","tenant":"acme","user":"zoe","content":"I live in Rome."}'
    headers = [("reply-topic", b"keepsake.replies")]
    secret = b"a key of at least thirty-two bytes"
    made = signature(secret, "keepsake.events", b"acme/zoe", value, headers, 1_700_000_000_000)
    digest = "c036c5ddff887a92ef9bfb8bba4a41f3c464698bf551ecf400000f87b1bd84eb"
    assert made == f"1700000000000:{digest}".encode()

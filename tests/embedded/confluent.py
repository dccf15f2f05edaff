"""Checks of confluent-kafka against the embedded log: `confluent.py ADDRESS CHECK`.

Each check has topics and groups of its own. A check that fails ends with a traceback.
"""

import hashlib
import signal
import subprocess
import sys
import time
import uuid

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

ADDRESS = sys.argv[1]
SECONDS_MAX = 30
KEPT = "kept"
ADMIN = AdminClient({"bootstrap.servers": ADDRESS})


def done(futures: dict) -> dict:
    return {key: future.result(SECONDS_MAX) for key, future in futures.items()}


def create_topic(name: str, partitions: int = 1) -> str:
    done(ADMIN.create_topics([NewTopic(name, partitions, 1)]))
    return name


def new_topic(partitions: int = 1) -> str:
    return create_topic(f"confluent-{uuid.uuid4()}", partitions)


def producer(**settings) -> Producer:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Producer({"bootstrap.servers": ADDRESS, "enable.idempotence": True, **names})


def transactor(name: str) -> Producer:
    made = producer(transactional_id=name)
    made.init_transactions(SECONDS_MAX)
    return made


def consumer(group: str, **settings) -> Consumer:
    names = {name.replace("_", "."): value for name, value in settings.items()}
    return Consumer(
        {
            "bootstrap.servers": ADDRESS,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 3000,
            "heartbeat.interval.ms": 500,
            **names,
        }
    )


def read(topic: str, isolation: str = "read_committed") -> list:
    """Reads all records of a topic, partition by partition."""
    records = []
    reader = consumer("reader", isolation_level=isolation, enable_partition_eof=True)
    partitions = reader.list_topics(topic, SECONDS_MAX).topics[topic].partitions
    for partition in sorted(partitions):
        reader.assign([TopicPartition(topic, partition, 0)])
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            record = reader.poll(1)
            if record is None:
                continue
            if record.error() is None:
                records.append(record)
            elif record.error().code() == KafkaError._PARTITION_EOF:
                break
            else:
                raise KafkaException(record.error())
        else:
            raise AssertionError(f"no end of {topic}/{partition}")
    reader.close()
    return records


def values(topic: str, isolation: str = "read_committed") -> list[str]:
    return [record.value().decode() for record in read(topic, isolation)]


def committed(group: str, topic: str, partition: int = 0) -> int:
    return consumer(group).committed([TopicPartition(topic, partition)], SECONDS_MAX)[0].offset


def idempotent() -> None:
    topic = new_topic(3)
    writer = producer(compression_type="zstd", linger_ms=1)
    for number in range(5000):
        writer.produce(topic, str(number), key=str(number % 7))
        writer.poll(0)
    assert writer.flush(SECONDS_MAX) == 0
    records = read(topic)
    assert sorted(int(record.value()) for record in records) == list(range(5000))
    for key in range(7):
        own = [int(record.value()) for record in records if record.key() == b"%d" % key]
        assert own == sorted(own)


def group() -> None:
    """A killed member's partitions go to the other within the session time."""
    topic, name = new_topic(4), f"group-{uuid.uuid4()}"
    first = consumer(name, partition_assignment_strategy="cooperative-sticky")
    first.subscribe([topic])
    until(first, lambda: len(first.assignment()) == 4)
    command = [sys.executable, __file__, ADDRESS, "member", topic, name]
    second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    until(first, lambda: len(first.assignment()) == 2)
    assert second.stdout.readline() == "2\n"
    described = done(ADMIN.describe_consumer_groups([name]))[name]
    shares = [len(member.assignment.topic_partitions) for member in described.members]
    assert shares == [2, 2], shares
    second.send_signal(signal.SIGKILL)
    second.wait()
    until(first, lambda: len(first.assignment()) == 4)
    writer = producer()
    for partition in range(4):
        writer.produce(topic, b"after", partition=partition)
    assert writer.flush(SECONDS_MAX) == 0
    seen = set()
    until(first, lambda: len(seen) == 4, lambda record: seen.add(record.partition()))
    first.commit(asynchronous=False)
    assert [committed(name, topic, partition) for partition in range(4)] == [1] * 4
    first.close()


def until(reader: Consumer, holds, take=lambda record: None) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, reader.assignment()
        record = reader.poll(0.1)
        if record is not None and record.error() is None:
            take(record)


def member() -> None:
    """The second member of a group, for `group`: prints the number of its partitions, and stays."""
    topic, name = sys.argv[3:]
    reader = consumer(name, partition_assignment_strategy="cooperative-sticky")
    reader.subscribe([topic])
    until(reader, lambda: len(reader.assignment()) == 2)
    print(2, flush=True)
    until(reader, lambda: False)


def transactions() -> None:
    source, target, name = new_topic(), new_topic(), f"group-{uuid.uuid4()}"
    writer = producer()
    for number in range(20):
        writer.produce(source, str(number))
    assert writer.flush(SECONDS_MAX) == 0
    reader = consumer(name)
    reader.subscribe([source])
    records = []
    until(reader, lambda: len(records) == 20, records.append)
    copier = transactor(f"copier-{uuid.uuid4()}")
    for batch, commits in ((records[:10], True), (records[10:], False), (records[10:15], True)):
        copier.begin_transaction()
        for record in batch:
            copier.produce(target, record.value())
        offsets = [TopicPartition(source, 0, batch[-1].offset() + 1)]
        copier.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), SECONDS_MAX)
        if commits:
            copier.commit_transaction(SECONDS_MAX)
        else:
            copier.flush(SECONDS_MAX)
            copier.abort_transaction(SECONDS_MAX)
            assert committed(name, source) == 10
    assert committed(name, source) == 15
    assert values(target) == [str(number) for number in range(15)]
    assert len(values(target, "read_uncommitted")) == 25
    reader.close()


def fencing() -> None:
    topic, name = new_topic(), f"fenced-{uuid.uuid4()}"
    old = transactor(name)
    old.begin_transaction()
    old.produce(topic, b"old")
    assert old.flush(SECONDS_MAX) == 0
    new = transactor(name)
    new.begin_transaction()
    new.produce(topic, b"new")
    new.commit_transaction(SECONDS_MAX)
    try:
        old.commit_transaction(SECONDS_MAX)
        raise AssertionError("the old producer commits")
    except KafkaException as error:
        assert error.args[0].fatal(), error
        fenced = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        assert error.args[0].code() in fenced, error
    assert values(topic) == ["new"]


def times() -> None:
    topic = new_topic()
    writer = producer()
    for time_ms in (1_000, 2_000, 3_000):
        writer.produce(topic, str(time_ms), timestamp=time_ms)
        writer.flush(SECONDS_MAX)
    asked = [TopicPartition(topic, 0, time_ms) for time_ms in (0, 1_500, 3_000, 3_001)]
    reader = consumer("times")
    found = [reader.offsets_for_times([place], SECONDS_MAX)[0].offset for place in asked]
    assert found == [0, 1, 2, -1], found
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), SECONDS_MAX) == (0, 3)


def admin() -> None:
    topic, name = new_topic(), f"group-{uuid.uuid4()}"
    assert ADMIN.describe_cluster().result(SECONDS_MAX).cluster_id
    done(ADMIN.create_partitions([NewPartitions(topic, 2)]))
    assert len(ADMIN.list_topics(topic, SECONDS_MAX).topics[topic].partitions) == 2

    assert changed_settings(topic) == {}
    change = ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    changes = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[change])
    done(ADMIN.incremental_alter_configs([changes]))
    assert changed_settings(topic) == {"retention.ms": "5000"}
    # The older request replaces all settings.
    replaced = ConfigResource(ResourceType.TOPIC, topic, {"segment.ms": "100000"})
    done(ADMIN.alter_configs([replaced]))
    assert changed_settings(topic) == {"segment.ms": "100000"}

    writer = producer()
    for number in range(10):
        writer.produce(topic, str(number), partition=0)
    assert writer.flush(SECONDS_MAX) == 0
    place = TopicPartition(topic, 0)
    deleted = done(ADMIN.delete_records([TopicPartition(topic, 0, 4)]))
    assert [result.low_watermark for result in deleted.values()] == [4]
    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        for spec, offset in ((OffsetSpec.earliest(), 4), (OffsetSpec.latest(), 10)):
            listed = done(ADMIN.list_offsets({place: spec}, isolation_level=isolation))
            assert listed[place].offset == offset, listed

    offsets = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 7)])
    done(ADMIN.alter_consumer_group_offsets([offsets]))
    groups = ADMIN.list_consumer_groups().result(SECONDS_MAX).valid
    assert name in {listed.group_id for listed in groups}
    described = done(ADMIN.describe_consumer_groups([name]))[name]
    assert described.state.name == "EMPTY", described.state
    listed = done(ADMIN.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]))[name]
    assert [place.offset for place in listed.topic_partitions] == [7]
    done(ADMIN.delete_consumer_groups([name]))
    done(ADMIN.delete_topics([topic]))
    assert topic not in ADMIN.list_topics(timeout=SECONDS_MAX).topics


def changed_settings(topic: str) -> dict[str, str]:
    asked = ConfigResource(ResourceType.TOPIC, topic)
    entries = done(ADMIN.describe_configs([asked]))[asked].values()
    return {entry.name: entry.value for entry in entries if not entry.is_default}


def create() -> None:
    """Creates the topics that standard input names, each `name:partitions`."""
    for line in sys.stdin:
        name, partitions = line.strip().split(":")
        create_topic(name, int(partitions))


def keep() -> None:
    """Writes what must be there after a restart: records, offsets, a transactional id."""
    create_topic(KEPT, 3)
    writer = transactor(KEPT)
    for transaction in range(10):
        writer.begin_transaction()
        for number in range(50):
            writer.produce(KEPT, f"{transaction} {number}", partition=number % 3)
        offsets = [TopicPartition(KEPT, 0, transaction)]
        group_metadata = consumer(KEPT).consumer_group_metadata()
        writer.send_offsets_to_transaction(offsets, group_metadata, SECONDS_MAX)
        if transaction % 3 == 2:
            writer.flush(SECONDS_MAX)
            writer.abort_transaction(SECONDS_MAX)
        else:
            writer.commit_transaction(SECONDS_MAX)


def fingerprint() -> None:
    """Prints what must be the same after a restart."""
    for isolation in ("read_committed", "read_uncommitted"):
        records = read(KEPT, isolation)
        told = [(r.partition(), r.offset(), r.timestamp(), r.key(), r.value()) for r in records]
        print(isolation, len(told), hashlib.sha256(repr(told).encode()).hexdigest())
    print("offset", committed(KEPT, KEPT))


def again() -> None:
    before = values(KEPT)
    writer = transactor(KEPT)
    writer.begin_transaction()
    writer.produce(KEPT, b"again", partition=2)
    writer.commit_transaction(SECONDS_MAX)
    assert values(KEPT) == [*before, "again"]


globals()[sys.argv[2]]()

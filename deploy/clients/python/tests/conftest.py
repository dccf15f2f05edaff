"""The tests run against a real service: KEEPSAKE_URL is its gateway, KEEPSAKE_BROKERS its Kafka."""

import os
import uuid
from collections.abc import Iterator

import pytest

from keepsake_recall import Client, Http, Kafka


def http() -> Client:
    return Http(os.environ["KEEPSAKE_URL"])


def kafka() -> Client:
    return Kafka(os.environ["KEEPSAKE_BROKERS"])


@pytest.fixture(scope="session", params=[http, kafka], ids=["http", "kafka"])
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    with request.param() as made:
        yield made


@pytest.fixture
def user() -> str:
    return f"user-{uuid.uuid4()}"

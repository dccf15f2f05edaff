"""Calls every public method of mem0's Python clients and prints how each ends, a JSON object per line.

calls.py sync | async: `MemoryClient` or `AsyncMemoryClient`, at KEEPSAKE_URL.
"""

import asyncio
import inspect
import json
import logging
import os
import sys
from importlib.metadata import version

from mem0 import AsyncMemoryClient, MemoryClient
from mem0.exceptions import MemoryError, NetworkError

logging.disable(logging.CRITICAL)
KIND = sys.argv[1]
PREFIX = f"py-{KIND}-"
USER = PREFIX + "ada"


class Calls:
    def __init__(self) -> None:
        make = AsyncMemoryClient if KIND == "async" else MemoryClient
        self.client = make(api_key="none", host=os.environ["KEEPSAKE_URL"])
        self.called: set[str] = set()
        self.report("the constructor (ping)", "", "answered" if self.client.org_id else "failed: no org_id")

    def report(self, call: str, needs: str, ended: str) -> None:
        # A call that only prepares the next one counts if it fails.
        if needs == "setup" and ended == "answered":
            return
        print(json.dumps({"client": f"Python {KIND}", "call": call, "needs": needs, "ended": ended}), flush=True)

    async def call(self, name: str, *arguments, check=None, needs: str = "", label: str = "", **named):
        """Calls `name`, checks the answer, and returns the answer, or nothing if there is none."""
        self.called.add(name)
        target = self.client
        for part in name.split("."):
            target = getattr(target, part)
        answer = None

        async def asked():
            answer = target(*arguments, **named)
            return await answer if inspect.isawaitable(answer) else answer

        try:
            try:
                answer = await asked()
            except NetworkError:
                # The refusal before may have closed the connection while this call was on its way.
                if needs in ("", "setup"):
                    raise
                answer = await asked()
            is_right = check is None or check(answer)
            ended = "answered" if is_right else f"failed: {answer}"
        except MemoryError as error:
            code = error.details.get("error", {}).get("code") if isinstance(error.details, dict) else None
            ended = f"refused: {code}" if code else f"failed: {error}"
        except Exception as error:  # noqa: BLE001: each call is reported by itself
            ended = f"failed: {type(error).__name__}: {error}"
        self.report(name + (f" ({label})" if label else ""), needs, ended)
        return answer


def texts(answer) -> list:
    return sorted(row["memory"] for row in answer["results"])


async def memories(calls: Calls) -> None:
    call = calls.call
    ada = {"user_id": USER}
    await call(
        "add", [{"role": "user", "content": "My sister Eva lives in Oslo."}], user_id=USER, run_id="s1",
        check=lambda it: it["results"][0]["event"] == "ADD", label="messages",
    )
    kept = await call(
        "add", "Ada keeps bees in Lisbon", filters=ada, metadata={"team": "blue"}, infer=False, timestamp=1700000000,
        expiration_date="2099-12-31", label="infer=False, timestamp, expiration_date",
        check=lambda it: texts(it) == ["Ada keeps bees in Lisbon"],
    )
    bees = kept["results"][0]["id"]
    boat = (await call("add", "Ada has a boat", user_id=USER, agent_id="coach", app_id="diary", infer=False,
                       label="agent_id, app_id"))["results"][0]["id"]
    await call("add", "x", user_id=USER, custom_instructions="Be brief", needs="model", label="custom_instructions")
    await call("get", bees, check=lambda it: it["memory"] == "Ada keeps bees in Lisbon" and it["user_id"] == USER)
    await call("get_all", filters=ada, check=lambda it: it["count"] == 3 and len(it["results"]) == 3)
    await call("get_all", filters={"AND": [ada, {"agent_id": "coach"}]}, label="AND",
               check=lambda it: texts(it) == ["Ada has a boat"])
    await call("get_all", filters=ada, page=2, page_size=2, label="page",
               check=lambda it: len(it["results"]) == 1 and it["previous"] and not it["next"])
    await call("get_all", filters={**ada, "created_at": {"lt": "2024-01-01"}}, label="created_at",
               check=lambda it: texts(it) == ["Ada keeps bees in Lisbon"])
    await call("get_all", filters=ada, start_date="2024-01-01", label="start_date", check=lambda it: it["count"] == 2)
    await call("search", "bees in Lisbon", filters=ada, check=lambda it: it["results"][0]["id"] == bees)
    await call("search", "bees", filters={"AND": [ada, {"metadata": {"team": "blue"}}]}, top_k=3, threshold=0.0,
               rerank=True, latest_only=True, label="metadata, top_k, threshold",
               check=lambda it: texts(it) == ["Ada keeps bees in Lisbon"])
    # Each operator with a filter that the bees meet and one that no memory meets.
    for operator, (met, unmet) in {
        "AND": ({"AND": [{"team": "blue"}]}, {"AND": [{"team": "blue"}, {"team": "red"}]}),
        "OR": ({"OR": [{"team": "red"}, {"team": "blue"}]}, {"OR": [{"team": "red"}, {"team": "green"}]}),
        "NOT": ({"NOT": [{"team": "red"}], "team": "*"}, {"NOT": [{"team": "red"}, {"team": "blue"}], "team": "*"}),
        "eq": ({"team": {"eq": "blue"}}, {"team": {"eq": "red"}}),
        "ne": ({"team": {"ne": "red"}}, {"team": {"ne": "blue"}, "agent_id": "nurse"}),
        "in": ({"team": {"in": ["red", "blue"]}}, {"team": {"in": ["red"]}}),
        "gt": ({"team": {"gt": "a"}}, {"team": {"gt": "blue"}}), "gte": ({"team": {"gte": "blue"}}, {"team": {"gte": "c"}}),
        "lt": ({"team": {"lt": "z"}}, {"team": {"lt": "blue"}}), "lte": ({"team": {"lte": "blue"}}, {"team": {"lte": "b"}}),
        "contains": ({"team": {"contains": "lu"}}, {"team": {"contains": "LU"}}),
        "icontains": ({"team": {"icontains": "LU"}}, {"team": {"icontains": "x"}}),
        "*": ({"team": "*"}, {"flavour": "*"}), "run_id": ({"run_id": {"ne": "s1"}}, {"run_id": "s2"}),
        "created_at": ({"created_at": {"lt": "2024-01-01"}}, {"created_at": {"lt": "2023-01-01"}}),
    }.items():
        await call("search", "bees in Lisbon", filters={"AND": [ada, met]}, label=f"filter {operator}",
                   check=lambda it: it["results"][0]["id"] == bees)
        await call("search", "bees in Lisbon", filters={"AND": [ada, unmet]}, label=f"filter {operator}, unmet",
                   check=lambda it: it["results"] == [])
        await call("get_all", filters={"AND": [ada, unmet]}, label=f"filter {operator}, unmet",
                   check=lambda it: it["count"] == 0 and it["results"] == [])
    await call("search", "bees", filters={"OR": [ada, {"team": "blue"}]}, needs="users", label="user_id in OR")
    await call("search", "bees", filters=ada, categories=["food"], needs="model", label="categories")
    await call("update", boat, text="Ada has a canoe", metadata={"team": "red"},
               check=lambda it: it["memory"] == "Ada has a canoe" and it["metadata"] == {"team": "red"})
    await call("update", boat, expiration_date=None, label="expiration_date")
    await call("history", boat, check=lambda it: [row["event"] for row in it] == ["ADD", "UPDATE"])
    await call("feedback", bees, feedback="POSITIVE", feedback_reason="right", check=lambda it: it["feedback"] == "POSITIVE")
    await call("batch_update", [{"memory_id": bees, "text": "Ada sold her bees"}, {"memory_id": boat, "text": "No boat"}],
               check=lambda it: "2 memories" in it["message"])
    await call("users", check=lambda it: USER in [row["name"] for row in it["results"] if row["type"] == "user"])
    await call("batch_delete", [{"memory_id": bees}], check=lambda it: "1 memories" in it["message"])
    await call("delete", boat, check=lambda it: "deleted" in it["message"])
    await call("delete", (await call("add", "Ada has a kite", user_id=USER, infer=False, needs="setup"))["results"][0]["id"],
               delete_linked=True, label="delete_linked")
    await call("delete_all", user_id=USER, check=lambda it: "deleted" in it["message"])
    await call("get_all", filters=ada, label="after delete_all", check=lambda it: it["results"] == [])
    for kind in ("user_id", "agent_id", "app_id", "run_id"):
        names = {"user_id": USER, kind: PREFIX + kind}
        await call("add", f"Ada and {kind}", **names, infer=False, needs="setup")
        await call("delete_users", **{kind: PREFIX + kind}, label=kind, check=lambda it: "deleted" in it["message"])
    await call("add", "Ada has a drum", user_id=USER, infer=False, needs="setup")
    await call("reset", check=lambda it: "reset" in it["message"])
    await call("users", label="after reset", check=lambda it: it["results"] == [])


async def others(calls: Calls) -> None:
    for name, arguments in {
        "create_memory_export": ({"type": "object"},), "get_memory_export": (), "get_summary": (), "get_profile": (USER,),
        "generate_profile": (USER,), "get_profile_settings": (), "update_profile_settings": (True,), "sample_profiles": (),
        "get_profile_job": ("a-job",),
    }.items():
        await calls.call(name, *arguments, needs="model")
    for name, arguments in {
        "get_project": (), "project.get": (), "project.create": ("p",), "project.delete": (), "project.get_members": (),
        "project.add_member": ("a@example.org",), "project.update_member": ("a@example.org", "OWNER"),
        "project.remove_member": ("a@example.org",), "get_webhooks": ("p",), "create_webhook": ("http://a.example", "w", "p", []),
        "update_webhook": (1, "w"), "delete_webhook": (1,),
    }.items():
        await calls.call(name, *arguments, needs="platform")
    for name in ("update_project", "project.update"):
        await calls.call(name, custom_instructions="Be brief", needs="platform")


async def main() -> None:
    print(f"mem0ai {version('mem0ai')} for Python, {KIND}", file=sys.stderr)
    calls = Calls()
    await memories(calls)
    await others(calls)
    # `chat` is not implemented in the client.
    public = {name for name, _ in inspect.getmembers(calls.client, inspect.ismethod) if not name.startswith("_")}
    public |= {f"project.{name}" for name, _ in inspect.getmembers(calls.client.project, inspect.ismethod)
               if not name.startswith("_")}
    left = public - calls.called - {"chat"}
    if left:
        calls.report(", ".join(sorted(left)), "", "failed: not in the table of this test")


asyncio.run(main())

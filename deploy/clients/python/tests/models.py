"""A server with the APIs of OpenAI's and Anthropic's models, which answers by a test's script."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Tool = tuple[str, str]  # name and id of a call


class Models:
    """`answers` are texts, calls of tools, or the status of a refusal; "Fine." after the last."""

    def __init__(self) -> None:
        self.answers: list[str | Tool | int] = []
        self.asked: list[dict[str, Any]] = []
        self.breaks = False  # in the middle of a stream
        models = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                models.asked.append(body)
                answer = models.answers.pop(0) if models.answers else "Fine."
                kind = self.path.rsplit("/", 1)[1]
                if isinstance(answer, int):
                    self._send(answer, json.dumps({"error": {"message": "no", "type": "x"}}))
                elif body.get("stream"):
                    self._stream(STREAMS[kind](answer))
                else:
                    self._send(200, json.dumps(WHOLE[kind](answer)))

            def _send(self, status: int, text: str) -> None:
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def _stream(self, events: Iterator[dict[str, Any]]) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream; charset=utf-8")
                self.send_header("connection", "close")
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                for number, event in enumerate(events):
                    text = f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
                    text = f"event: {event['type']}\n{text}" if "type" in event else text
                    # Two pieces, so that no reader may take a piece for an event or a letter.
                    for piece in (text.encode()[:31], text.encode()[31:]):
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if piece else b"")
                        self.wfile.flush()
                    if models.breaks and number == 3:
                        return
                if "choices" in event:
                    self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n")
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def chat(answer: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer}
    if not isinstance(answer, str):
        function = {"name": answer[0], "arguments": "{}"}
        call = {"id": answer[1], "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    common = {"object": "chat.completion", "created": 1, "model": "m"}
    return {"id": "c1", "choices": choices, **common}


def responses(answer: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": answer, "annotations": []}
    item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    item = {**item, "content": [part]}
    if not isinstance(answer, str):
        item = {"type": "function_call", "id": "f1", "name": answer[0], "arguments": "{}"}
        item["call_id"] = answer[1]
    common = {"object": "response", "created_at": 1, "model": "m", "tools": [], "error": None}
    common |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    return {"id": "r1", "status": "completed", "output": [item], **common}


def messages(answer: Any) -> dict[str, Any]:
    block = {"type": "text", "text": answer}
    if not isinstance(answer, str):
        block = {"type": "tool_use", "id": answer[1], "name": answer[0], "input": {}}
    usage = {"input_tokens": 1, "output_tokens": 1}
    common = {"type": "message", "role": "assistant", "model": "m", "usage": usage}
    return {"id": "a1", "content": [block], "stop_reason": "end_turn", **common}


def chat_stream(answer: str) -> Iterator[dict[str, Any]]:
    for piece in ["", *answer]:
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        yield {**chat(""), "object": "chat.completion.chunk", "choices": [choice]}


def responses_stream(answer: str) -> Iterator[dict[str, Any]]:
    number = iter(range(10**6))
    whole = responses(answer)
    [item] = whole["output"]
    place = {"item_id": "m1", "output_index": 0, "content_index": 0}
    empty = {"type": "output_text", "text": "", "annotations": []}
    begun = {**whole, "output": [], "status": "in_progress"}
    yield {"type": "response.created", "response": begun, "sequence_number": next(number)}
    added = {"item": {**item, "content": []}, "output_index": 0}
    yield {"type": "response.output_item.added", "sequence_number": next(number), **added}
    part = {"part": empty, "sequence_number": next(number), **place}
    yield {"type": "response.content_part.added", **part}
    for piece in answer:
        delta = {"delta": piece, "logprobs": [], "sequence_number": next(number)}
        yield {"type": "response.output_text.delta", **delta, **place}
    yield {"type": "response.completed", "response": whole, "sequence_number": next(number)}


def messages_stream(answer: str) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": {**messages(""), "content": []}}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in answer:
        delta = {"type": "text_delta", "text": piece}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    end = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}}
    yield {"type": "message_delta", **end}
    yield {"type": "message_stop"}


WHOLE = {"completions": chat, "responses": responses, "messages": messages}
STREAMS = {"completions": chat_stream, "responses": responses_stream, "messages": messages_stream}

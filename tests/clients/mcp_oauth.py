"""Logs in with the official Python client of MCP, as a connector does: the gateway answers 401, the client
finds the issuer by the gateway's metadata, registers, gets a token for the resource, calls tools with it,
and gets another one when a tool needs a further scope. The issuer is the test's own, the gateway a real one."""

import asyncio
import base64
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from jwt.algorithms import ECAlgorithm
from mcp import Client
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

USER = f"oauth-{os.getpid()}"
BACK = "http://127.0.0.1:9/back"
KEY = ec.generate_private_key(ec.SECP256R1())
codes: dict[str, dict[str, str]] = {}
registered: list[Any] = []


class Issuer(BaseHTTPRequestHandler):
    """Whoever asks is logged in as USER."""

    def reply(self, status: int, body: Any, location: str = "") -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        if location:
            self.send_header("location", location)
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        if url.path == "/.well-known/oauth-authorization-server":
            paths = {"authorization": "authorize", "token": "token", "registration": "register"}
            metadata = {f"{name}_endpoint": f"{issuer}/{path}" for name, path in paths.items()}
            metadata |= {"issuer": issuer, "jwks_uri": f"{issuer}/keys"}
            metadata |= {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            self.reply(200, metadata)
        elif url.path == "/keys":
            key = json.loads(ECAlgorithm.to_jwk(KEY.public_key()))
            self.reply(200, {"keys": [key | {"kid": "k1", "use": "sig"}]})
        elif url.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(url.query).items()}
            codes[asked["state"]] = asked
            answer = {"code": asked["state"], "state": asked["state"]}
            self.reply(302, {}, f"{asked['redirect_uri']}?{urlencode(answer)}")
        else:
            self.reply(404, {})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/register":
            registered.append(json.loads(body))
            self.reply(201, registered[-1] | {"client_id": "c1"})
            return
        given = {name: values[0] for name, values in parse_qs(body).items()}
        asked = codes.pop(given["code"])
        digest = hashlib.sha256(given["code_verifier"].encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == asked["code_challenge"]
        assert given["resource"] == asked["resource"] == resource, (given, asked)
        # At first a token that may only read.
        scope = asked["scope"] if scopes else "memories:read"
        scopes.append(asked["scope"])
        claims = {"iss": issuer, "aud": given["resource"], "sub": USER, "scope": scope}
        claims["exp"] = int(time.time()) + 300
        token = jwt.encode(claims, KEY, algorithm="ES256", headers={"kid": "k1", "typ": "at+jwt"})
        self.reply(200, {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope})

    def log_message(self, *_: Any) -> None:
        pass


class Storage:
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def browse(url: str) -> None:
    """Stands for the person's browser, which is sent back with a code."""
    async with httpx2.AsyncClient() as browser:
        back.append((await browser.get(url, follow_redirects=False)).headers["location"])


async def returned() -> AuthorizationCodeResult:
    query = parse_qs(urlsplit(back.pop()).query)
    return AuthorizationCodeResult(code=query["code"][0], state=query["state"][0])


async def main() -> None:
    metadata = OAuthClientMetadata(redirect_uris=[BACK], client_name="test")
    for address in (resource, f"{resource}/{USER}/"):
        auth = OAuthClientProvider(address, metadata, Storage(), browse, returned)
        async with httpx2.AsyncClient(auth=auth) as http:
            async with Client(streamable_http_client(address, http_client=http)) as client:
                added = await client.call_tool("add_memory", {"text": "I keep bees in Lisbon."})
                assert not added.is_error, added
                found = await client.call_tool("search_memories", {"query": "Who keeps bees?"})
                assert "bees in Lisbon" in found.content[0].text, found
        # Twice: the first token may only read, and the gateway's 403 names the scope that is missing.
        assert scopes == ["memories:read memories:write memories:forget"] * 2, scopes
        scopes.clear()
        print(f"MCP, Python, a log-in for {address.replace(USER, '{user}')}: tools called with a token")
    assert len(registered) == 2, registered


back: list[str] = []
scopes: list[str] = []
server = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
threading.Thread(target=server.serve_forever, daemon=True).start()
issuer = f"http://127.0.0.1:{server.server_port}"
with socket.create_server(("127.0.0.1", 0)) as free:
    listen = f"127.0.0.1:{free.getsockname()[1]}"
resource = f"http://{listen}/mcp"
options = {"gateway.listen": listen, "gateway.oauth.issuer": issuer, "gateway.oauth.resource": resource}
arguments = [word for name, value in options.items() for word in ("--set", f"{name}={value}")]
command = [os.environ["KEEPSAKE"], "gateway", "--brokers", os.environ["KEEPSAKE_BROKERS"], *arguments]
gateway = subprocess.Popen(command, stderr=subprocess.DEVNULL)
try:
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://{listen}/readyz")
            break
        except OSError:
            time.sleep(0.1)
    asyncio.run(main())
finally:
    gateway.terminate()
    gateway.wait()

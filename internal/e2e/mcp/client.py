"""Lists tools, remembers, recalls and forgets with one client of Python, as client.mjs does with those of npm.

python client.py mcp|fastmcp|openai-agents|pydantic-ai|langchain URL KEY [IDENTITY]. An IDENTITY binds the connection.
Without a KEY the client asks a person (OAuth): it prints where to send the person, and reads the parameters of the
answer as a line. What it prints at the end is what the client hands to a model.
"""

import asyncio
import json
import sys
from contextlib import asynccontextmanager
from urllib.parse import parse_qs

name, url, key, *bound = sys.argv[1:]
headers = {"Authorization": f"Bearer {key}"} if key else {}
if bound:
    headers["X-Service-Identity"] = bound[0]


class Storage:
    """Keeps what a client of OAuth has to keep."""

    tokens = client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


def person():
    """Returns what asks a person, or nothing with a key."""
    if key:
        return None
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientMetadata

    async def redirect(to):
        print(json.dumps({"authorize": to}), flush=True)

    async def callback():
        line = await asyncio.to_thread(sys.stdin.readline)
        answer = parse_qs(line.strip(), strict_parsing=True)
        got = {each: values[0] for each, values in answer.items() if each in ("code", "state", "iss")}
        if name == "langchain":  # it needs an older mcp
            return got["code"], got.get("state")
        from mcp.client.auth import AuthorizationCodeResult

        return AuthorizationCodeResult(**got)

    metadata = OAuthClientMetadata(
        client_name="Python " + name,
        redirect_uris=["http://127.0.0.1:11953/callback"],
        token_endpoint_auth_method="none",
    )
    return OAuthClientProvider(url, metadata, Storage(), redirect_handler=redirect, callback_handler=callback)


def text_of(answer):
    """Returns the text of an answer of the protocol."""
    text = "\n".join(part.text for part in answer.content if part.type == "text")
    if getattr(answer, "is_error", None) or getattr(answer, "isError", None):
        raise RuntimeError(text)
    return text


# Each of these connects, and yields the number of tools and a function that calls one and returns what a model gets.


@asynccontextmanager
async def with_mcp():
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    async with (
        httpx2.AsyncClient(headers=headers, auth=person(), timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):

        async def use(tool, args):
            return text_of(await client.call_tool(tool, args))

        yield len((await client.list_tools()).tools), use


@asynccontextmanager
async def with_fastmcp():
    from fastmcp import Client
    from fastmcp.client.transports import StreamableHttpTransport

    async with Client(StreamableHttpTransport(url, headers=headers, auth=person())) as client:

        async def use(tool, args):
            return text_of(await client.call_tool(tool, args))

        yield len(await client.list_tools()), use


@asynccontextmanager
async def with_openai_agents():
    from agents.mcp import MCPServerStreamableHttp

    params = {"url": url, "headers": headers, "auth": person(), "timeout": 60}
    async with MCPServerStreamableHttp(params, client_session_timeout_seconds=60) as server:

        async def use(tool, args):
            return text_of(await server.call_tool(tool, args))

        yield len(await server.list_tools()), use


@asynccontextmanager
async def with_pydantic_ai():
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(url, headers=headers, auth=person()) as tools:

        async def use(tool, args):
            return json.dumps(await tools.direct_call_tool(tool, args), ensure_ascii=False)

        yield len(await tools.list_tools()), use


@asynccontextmanager
async def with_langchain():
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    connection = {"transport": "streamable_http", "url": url, "headers": headers}
    if not key:
        connection["auth"] = person()
    async with MultiServerMCPClient({"annals": connection}).session("annals") as session:
        tools = {each.name: each for each in await load_mcp_tools(session, handle_tool_errors=False)}

        async def use(tool, args):
            answer = await tools[tool].ainvoke(args)
            return answer if isinstance(answer, str) else "\n".join(part["text"] for part in answer)

        yield len(tools), use


async def main():
    connect = {
        "mcp": with_mcp,
        "fastmcp": with_fastmcp,
        "openai-agents": with_openai_agents,
        "pydantic-ai": with_pydantic_ai,
        "langchain": with_langchain,
    }[name]
    own = "-".join([name, bound[0] if bound else "key" if key else "oauth"])

    def who(identity):
        return {"identity": identity} if key and not bound else {}

    async with connect() as (tools, use):
        await use("remember", {"content": f"The {own} is in the blue tin.", "id": own, **who("ana")})
        while True:  # the test that runs this ends it
            text = await use("recall", {"query": f"where is the {own}?", **who("ben")})
            if f"The {own} is in the blue tin." in text:
                break
        await use("forget", {"sourceId": own})
    print(json.dumps({"tools": tools, "text": text}))


asyncio.run(main())

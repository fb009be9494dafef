"""An MCP server of plain Python, good or not: the first argument says how."""

import json
import os
import signal
import sys
import time

HOW = sys.argv[1]
count = 0


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def fields(**kinds):
    properties = {name: {"type": kind} for name, kind in kinds.items()}
    return {"type": "object", "properties": properties, "required": list(kinds),
            "additionalProperties": False}


def tool(name, schema, **more):
    return {"name": name, "description": "Test " + name + ".", "inputSchema": schema, **more}


TOOLS = [
    tool("write_file", fields(path="string", text="string")),
    tool("add", fields(a="integer", b="integer"), outputSchema=fields(sum="integer"),
         annotations={"readOnlyHint": True}),
    tool("lie", fields(), outputSchema=fields(sum="integer")),
    tool("count", fields(), annotations={"idempotentHint": True, "destructiveHint": False}),
    tool("Odd.Name", fields()),
    tool("bad name\x1b[31m", fields()),
    tool("ref", {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}},
                 "$defs": {"n": {"type": "integer"}}}),
] + [tool(name, fields()) for name in
     ["fail", "refuse", "back", "hang", "die", "flood", "noise", "big", "large", "wrong"]]


def text(words, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def back(call):
    """Asks the client for everything that a server may ask for."""
    said = []
    for number, method in enumerate(["sampling/createMessage", "roots/list",
                                     "elicitation/create", "ping"]):
        say({"id": f"mine-{number}", "method": method, "params": {}})
        answer = json.loads(sys.stdin.readline())
        assert answer["id"] == f"mine-{number}", answer
        said.append(answer.get("error", {}).get("code", "fine"))
    return text(json.dumps(said))


def work(call):
    global count
    name, given = call["params"]["name"], call["params"]["arguments"]
    if name == "write_file":
        with open(given["path"], "w") as file:
            file.write(given["text"])
        return text("written")
    if name == "add":
        return text("a sum", structuredContent={"sum": given["a"] + given["b"]})
    if name == "lie":
        return text("a sum", structuredContent={"sum": "three"})
    if name == "count":
        count += 1
        return text(str(count))
    if name == "fail":
        return text("there is no such thing", isError=True)
    if name == "back":
        return back(call)
    if name == "hang":
        time.sleep(600)
    if name == "die":
        print("oh dear", file=sys.stderr)
        os._exit(7)
    while name == "flood":
        say({"method": "notifications/message", "params": {"data": "x" * 100000}})
    while name == "noise":
        print("this is no message")
    if name == "big":
        return text("x" * (2 << 20))
    if name == "large":
        sys.stdout.write("x" * (8 << 20))
    if name == "wrong":
        return {"content": 3}
    return text(name)


def answer(message):
    method = message["method"]
    if method == "initialize":
        if HOW == "modern":
            return {"error": {"code": -32601, "message": "greetings are of the past"}}
        version = message["params"]["protocolVersion"]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}},
                           "serverInfo": {"name": "test", "version": "1"}}}
    if HOW == "modern":
        meta = message["params"]["_meta"]
        assert meta["io.modelcontextprotocol/protocolVersion"] == "2026-07-28", meta
        if method == "server/discover":
            return {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {}}}
    if method == "tools/list":
        if HOW == "giant":
            start = int(message["params"].get("cursor", "0"))
            page = [tool(f"t{start + n}", fields()) for n in range(50)]
            return {"result": {"tools": page, "nextCursor": str(start + 50)}}
        if HOW == "bomb":
            defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 4} for n in range(40)}
            bomb = {"type": "object", "allOf": [{"$ref": "#/$defs/d0"}],
                    "$defs": {**defs, "d40": {"$ref": "#/$defs/d0"}}}
            deep = {"type": "object"}
            for _ in range(300):
                deep = {"type": "object", "properties": {"x": deep}}
            huge = {"type": "object", "description": "x" * (1 << 20)}
            return {"result": {"tools": [tool("bomb", bomb), tool("huge", huge),
                                         tool("deep", deep), tool("no", "schema")]}}
        return {"result": {"tools": TOOLS}}
    if message["params"]["name"] == "refuse":
        return {"error": {"code": -32602, "message": "not like this"}}
    return {"result": work(message)}


if HOW == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if HOW == "dies":
    print("cannot find the module", file=sys.stderr)
    sys.exit(3)
if HOW == "greets":
    print("Welcome to the test server!", flush=True)
if HOW == "silent":
    print("Listening on port 1234", flush=True)
    time.sleep(600)
while HOW == "garbage":
    print("{ this is no JSON", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        say({"id": message["id"], **answer(message)})
while HOW == "stubborn":
    time.sleep(600)

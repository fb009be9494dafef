// The client from npm: try → diff → promote, on standard input and over HTTP.
//
//     node agent.mjs NODE_MODULES FRACTAL URL KEY
//
// in the project's directory, with FRACTAL_HOME in the environment.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";

const [modules, fractal, url, key] = process.argv.slice(2);
const load = createRequire(path.join(modules, "from-here.js"));
const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");

async function call(client, name, input, options) {
    const answer = await client.callTool({ name, arguments: input }, undefined, options);
    assert(!answer.isError, JSON.stringify(answer));
    return answer.structuredContent;
}

async function work(transport) {
    const client = new Client({ name: "agent", version: "1" });
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert(tools.length <= 14 && tools.every((tool) => tool.outputSchema), JSON.stringify(tools));

    const attempts = [
        { name: "good", command: "echo yes > answer" },
        { name: "bad", command: "echo no > answer" },
    ];
    const checks = [{ name: "yes", command: "grep -q yes answer" }];
    const tried = await call(client, "try", { attempts, checks });
    assert.equal(tried.winner, "good");
    const { sandbox } = tried.attempts.find((attempt) => attempt.name === "good");
    const { changes } = await call(client, "diff", { sandbox });
    assert(changes.some((change) => change.path.endsWith("/answer")));
    assert(!fs.existsSync("answer"), "nothing real changes before promote");
    const file = await client.readResource({ uri: `sandbox://${sandbox}/answer` });
    assert.equal(file.contents[0].text, "yes\n");
    const promoted = await call(client, "promote", { sandbox });
    assert.equal(promoted.verdict, "applied");
    assert.equal(fs.readFileSync("answer", "utf8"), "yes\n");
    fs.unlinkSync("answer");

    await cancel(client);
    await client.close();
}

// A call that is given up stops what runs, and the agent hears of it while it lasts.
async function cancel(client) {
    const controller = new AbortController();
    let beats = 0;
    const onprogress = () => {
        beats += 1;
        controller.abort();
    };
    const endless = { command: "sleep 3600" };
    const options = { signal: controller.signal, onprogress, timeout: 600_000 };
    await assert.rejects(call(client, "run", endless, options));
    assert.equal(beats, 1);
    // The sandbox is free again: a run waits for the one before it.
    assert.equal((await call(client, "run", { command: "echo free" })).stdout, "free\n");
}

await work(new StdioClientTransport({ command: fractal, args: ["mcp"], env: process.env }));
const headers = { Authorization: `Bearer ${key}` };
await work(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
console.log("npm @modelcontextprotocol/sdk: try, diff, promote and cancel, on standard input and over HTTP");

// Asks everything that a program may ask through the openai package for Node and prints one line of JSON for each:
// what came, or how it failed. `node client.mjs URL TAG`; it waits for a line on standard input where it says so.

import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

const [url, tag] = process.argv.slice(2);
const { long, unfit } = JSON.parse(readFileSync(new URL("bodies.json", import.meta.url), "utf8"));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

const messages = [
  { role: "system", content: "Be brief." },
  { role: "user", content: "What is a load line? ⚓" },
];
const tool = (name) => ({
  type: "function",
  function: { name, parameters: { type: "object", properties: { ship: { type: "string" } }, required: ["ship"] } },
});
const chat = { model: "gpt-4o", messages };
const Mark = z.object({ name: z.string(), freeboard: z.number(), certified: z.boolean() });
const slowly = { "x-sim-chunk-delay": "0.2", "x-sim-text": Array(200).fill("aye").join(" ") };

const client = (name, headers = {}, options = {}) =>
  new OpenAI({
    baseURL: url,
    apiKey: "sk-canary",
    defaultHeaders: { "x-scenario": `node ${name} ${tag}`, ...headers },
    ...options,
  });

async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// Says that something was let go, and goes on when whoever watches the upstream has seen it.
async function released(what) {
  console.log(JSON.stringify({ waiting: what }));
  await lines.next();
}

const status = (code, maxRetries) => (ai) => ai({ "x-sim-status": `${code}` }, { maxRetries }).chat.completions.create(chat);

const scenarios = {
  chat: (ai) => ai().chat.completions.create(chat),
  stream: async (ai) => all(await ai().chat.completions.create({ ...chat, stream: true })),
  usage: async (ai) =>
    all(await ai().chat.completions.create({ ...chat, stream: true, stream_options: { include_usage: true } })),
  answers: (ai) => ai().chat.completions.create({ ...chat, n: 2, max_tokens: 3 }),
  tools: (ai) => ai().chat.completions.create({ ...chat, model: "gpt-4o-sim-tools", tools: [tool("draught")] }),
  parallel: async (ai) =>
    all(
      await ai().chat.completions.create({
        ...chat,
        model: "gpt-4o-sim-tools-parallel",
        tools: [tool("draught"), tool("freeboard")],
        stream: true,
      }),
    ),
  parsed: async (ai) => {
    const asked = { ...chat, response_format: zodResponseFormat(Mark, "mark") };
    const answer = await ai().chat.completions.parse(asked);
    const streamed = await ai().chat.completions.stream(asked).finalChatCompletion();
    return [answer.choices[0].message.parsed, streamed.choices[0].message.parsed];
  },
  models: async (ai) => (await ai().models.list()).data,
  missing: (ai) => ai().moderations.create({ input: "depth" }),
  unauthorised: status(401, 2),
  limited: status(429, 2),
  failing: status(500, 1),
  orphan: (ai) =>
    ai().chat.completions.create({ ...chat, messages: [...messages, { role: "tool", tool_call_id: "x", content: "?" }] }),
  unfit: (ai) => ai().chat.completions.create(unfit),
  long: (ai) => ai().chat.completions.create(long),
  longstream: async (ai) => all(await ai().chat.completions.create({ ...long, stream: true })),
  broken: async (ai) =>
    all(await ai({ "x-sim-abort": "3", "x-sim-text": "a b c d e" }).chat.completions.create({ ...chat, stream: true })),
  impatient: (ai) =>
    ai({ "x-sim-delay": "20" }, { timeout: 300, maxRetries: 0 })
      .chat.completions.create(chat)
      .finally(() => released("impatient")),
  closed: async (ai) => {
    const stream = await ai(slowly).chat.completions.create({ ...chat, stream: true });
    const chunks = [];
    for await (const chunk of stream) if (chunks.push(chunk) === 2) break;
    await released("closed");
    return chunks;
  },
  aborted: async (ai) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 300);
    return ai({ "x-sim-delay": "20" })
      .chat.completions.create(chat, { signal: controller.signal })
      .finally(() => released("aborted"));
  },
};

for (const [name, ask] of Object.entries(scenarios)) {
  let told;
  try {
    told = { answer: await ask((headers, options) => client(name, headers, options)) };
  } catch (error) {
    const { status, code, type, param, requestID } = error;
    told = { failure: { kind: error.constructor.name, status, code, type, param, requestID, body: error.error } };
  }
  console.log(JSON.stringify({ scenario: name, ...told }));
}
process.exit(0);

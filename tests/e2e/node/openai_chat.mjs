// Chat completions through the openai package for Node.

import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { abortedAfter, all, bodies, late, released, run, slowly, some, tag, url } from "./harness.mjs";

const { long, unfit } = bodies;
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

const client = (name, headers, options) =>
  new OpenAI({
    baseURL: url,
    apiKey: "sk-canary",
    defaultHeaders: { "x-scenario": `${name} ${tag}`, ...headers },
    ...options,
  });

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
    ai(late, { timeout: 1000, maxRetries: 0 })
      .chat.completions.create(chat)
      .finally(() => released("impatient")),
  closed: async (ai) => {
    const chunks = await some(await ai(slowly).chat.completions.create({ ...chat, stream: true }), 2);
    await released("closed");
    return chunks;
  },
  aborted: (ai) =>
    ai(late)
      .chat.completions.create(chat, { signal: abortedAfter(1000) })
      .finally(() => released("aborted")),
};

await run(scenarios, client, ({ status, code, type, param, requestID, error }) => {
  return { status, code, type, param, requestID, body: error };
});

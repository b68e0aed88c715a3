// Messages through the @anthropic-ai/sdk package.

import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { z } from "zod";
import { abortedAfter, all, bodies, late, released, run, slowly, some, tag, url } from "./harness.mjs";

const messages = [{ role: "user", content: "What is a load line? ⚓" }];
const asked = { model: "claude-sonnet-4-5", max_tokens: 300, system: "Be brief.", messages };
const tool = (name, description = "Reads a file.") => ({
  name,
  description,
  input_schema: { type: "object", properties: { path: { type: "string" } }, required: ["path"] },
});
const Mark = z.object({ name: z.string(), freeboard: z.number(), certified: z.boolean() });
const unfit = { ...asked, tools: bodies.unfit.tools.map(({ function: f }) => tool(f.name, f.description)) };

const client = (name, headers, options) =>
  new Anthropic({
    baseURL: url.replace(/\/v1$/, ""),
    apiKey: "sk-ant-canary",
    defaultHeaders: { "x-scenario": `${name} ${tag}`, ...headers },
    ...options,
  });

// An agent's run, as its program makes it.
async function agent(ai, streams, fields) {
  const told = [...messages];
  for (let calls = 0; ; ) {
    const request = {
      ...asked,
      model: "claude-sonnet-4-5-sim-tools-loop",
      max_tokens: 1000,
      tools: [tool("read_file")],
      messages: told,
      ...fields,
    };
    const message = streams ? await ai.messages.stream(request).finalMessage() : await ai.messages.create(request);
    told.push({ role: "assistant", content: message.content });
    const made = message.content.filter((block) => block.type === "tool_use");
    if (!made.length) return { calls, stop: message.stop_reason, prompt: message.usage.input_tokens };
    const results = made.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: bodies.results[calls++] }));
    told.push({ role: "user", content: results });
  }
}

// The package's own loop. Unless it is told otherwise the upstream holds the conversation, and gets what is new.
async function runner(ai, thread) {
  let calls = 0;
  const read = betaZodTool({
    name: "read_file",
    description: "Reads a file.",
    inputSchema: z.object({ path: z.string() }),
    run: () => bodies.results[calls++],
  });
  const told = { ...asked, model: "claude-sonnet-4-5-sim-tools-loop", max_tokens: 1000, tools: [read], thread };
  const last = await ai.beta.messages.toolRunner(told);
  return { calls, stop: last.stop_reason, prompt: last.usage.input_tokens };
}
const thinking = { max_tokens: 2000, thinking: { type: "enabled", budget_tokens: 1024 } };
const narrow = { "x-sim-window": "7000" };
const status = (code, maxRetries) => (ai) => ai({ "x-sim-status": `${code}` }, { maxRetries }).messages.create(asked);

const scenarios = {
  answer: (ai) => ai().messages.create(asked),
  stream: async (ai) => all(await ai().messages.create({ ...asked, stream: true })),
  helper: async (ai) => {
    const stream = ai().messages.stream(asked);
    const kinds = (await all(stream)).map((event) => event.type);
    return [kinds, await stream.finalText(), await stream.finalMessage()];
  },
  thinking: (ai) => ai().messages.create({ ...asked, ...thinking }),
  tools: (ai) => ai().messages.create({ ...asked, model: "claude-sim-tools", tools: [tool("read_file")] }),
  parallel: async (ai) =>
    ai()
      .messages.stream({ ...asked, model: "claude-sim-tools-parallel", tools: [tool("read_file"), tool("list_files")] })
      .finalMessage(),
  parsed: async (ai) => {
    const wanted = { ...asked, output_config: { format: zodOutputFormat(Mark) } };
    return (await ai().messages.parse(wanted)).parsed_output;
  },
  counted: (ai) => ai().messages.countTokens({ model: asked.model, messages }),
  raw: async (ai) => {
    const { data, response } = await ai().messages.create(asked).withResponse();
    return [data.id, response.status, response.headers.get("content-type")];
  },
  side: async (ai) =>
    Promise.all(Array.from({ length: 12 }, (_, i) => ai().messages.create({ ...asked, system: `Entry ${i}` }))),
  unauthorised: status(401, 2),
  limited: status(429, 2),
  failing: status(529, 1),
  orphan: (ai) =>
    ai().messages.create({
      ...asked,
      messages: [...messages, { role: "user", content: [{ type: "tool_result", tool_use_id: "toolu_9", content: "?" }] }],
    }),
  unfit: (ai) => ai({ "x-sim-window": "4000", "x-plimsoll-window": "4000" }).messages.create(unfit),
  agent: (ai) => agent(ai(narrow), false, {}),
  agentstream: (ai) => agent(ai(narrow), true, {}),
  agentthinking: (ai) => agent(ai(narrow), true, thinking),
  runner: (ai) => runner(ai(narrow), false),
  threads: (ai) => runner(ai()),
  broken: async (ai) =>
    all(await ai({ "x-sim-abort": "5", "x-sim-text": "a b c d e" }).messages.create({ ...asked, stream: true })),
  impatient: (ai) =>
    ai(late, { timeout: 1000, maxRetries: 0 })
      .messages.create(asked)
      .finally(() => released("impatient")),
  closed: async (ai) => {
    const events = await some(await ai(slowly).messages.create({ ...asked, stream: true }), 2);
    await released("closed");
    return events;
  },
  aborted: (ai) =>
    ai(late)
      .messages.create(asked, { signal: abortedAfter(1000) })
      .finally(() => released("aborted")),
};

await run(scenarios, client, ({ status, requestID, error }) => ({ status, requestID, body: error }));

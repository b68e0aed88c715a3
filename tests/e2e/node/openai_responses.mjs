// Responses through the openai package for Node.

import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { abortedAfter, all, bodies, late, released, run, slowly, some, tag, url } from "./harness.mjs";

const input = [
  { role: "developer", content: "Be brief." },
  { role: "user", content: "What is a load line? ⚓" },
];
const tool = (name, description = "Looks it up.") => ({
  type: "function",
  name,
  description,
  strict: false,
  parameters: { type: "object", properties: { ship: { type: "string" } }, required: ["ship"] },
});
const asked = { model: "gpt-4o", input };
const Mark = z.object({ name: z.string(), freeboard: z.number(), certified: z.boolean() });
const unfit = { model: "gpt-4", input, tools: bodies.unfit.tools.map(({ function: f }) => tool(f.name, f.description)) };

const client = (name, headers, options) =>
  new OpenAI({
    baseURL: url,
    apiKey: "sk-canary",
    defaultHeaders: { "x-scenario": `${name} ${tag}`, ...headers },
    ...options,
  });

// An agent's run, as its program makes it: everything that came and every result goes back, until there is no call.
async function agent(ai, streams, fields) {
  const told = [...input];
  for (let calls = 0; ; ) {
    const request = { model: "gpt-5-sim-tools-loop-sim-reasons", tools: [tool("read_file")], ...fields, input: told };
    let response;
    if (streams) response = await ai.responses.stream(request).finalResponse();
    else response = await ai.responses.create(request);
    told.push(...response.output.map(({ parsed_arguments, ...item }) => item));
    const made = response.output.filter((item) => item.type === "function_call");
    if (!made.length) return { calls, status: response.status };
    for (const { call_id } of made)
      told.push({ type: "function_call_output", call_id, output: bodies.results[calls++] });
  }
}
const stateless = { store: false, include: ["reasoning.encrypted_content"] };
const narrow = { "x-sim-window": "6000" };
const status = (code, maxRetries) => (ai) => ai({ "x-sim-status": `${code}` }, { maxRetries }).responses.create(asked);

const scenarios = {
  answer: (ai) => ai().responses.create(asked),
  text: async (ai) => (await ai().responses.create({ model: "gpt-4o", input: "Hello", instructions: "Be kind." })).output_text,
  stream: async (ai) => all(await ai().responses.create({ ...asked, stream: true })),
  helper: async (ai) => {
    const stream = ai().responses.stream(asked);
    const kinds = (await all(stream)).map((event) => event.type);
    return [kinds, (await stream.finalResponse()).output_text];
  },
  reasoning: (ai) => ai().responses.create({ ...asked, ...stateless, model: "gpt-5-sim-reasons" }),
  tools: (ai) => ai().responses.create({ ...asked, model: "gpt-4o-sim-tools", tools: [tool("draught")] }),
  parallel: async (ai) =>
    all(
      await ai().responses.create({
        ...asked,
        model: "gpt-4o-sim-tools-parallel",
        tools: [tool("draught"), tool("freeboard")],
        stream: true,
      }),
    ),
  parsed: async (ai) => {
    const wanted = { ...asked, text: { format: zodTextFormat(Mark, "mark") } };
    const answer = await ai().responses.parse(wanted);
    const streamed = await ai().responses.stream(wanted).finalResponse();
    return [answer.output_parsed, streamed.output_parsed];
  },
  continued: async (ai) => {
    const first = await ai().responses.create(asked);
    return ai().responses.create({ model: "gpt-4o", input: "And then?", previous_response_id: first.id });
  },
  counted: (ai) => ai().responses.inputTokens.count(asked),
  raw: async (ai) => {
    const { data, response } = await ai().responses.create(asked).withResponse();
    return [data.id, response.status, response.headers.get("content-type")];
  },
  side: async (ai) => Promise.all(Array.from({ length: 12 }, (_, i) => ai().responses.create({ ...asked, input: `Entry ${i}` }))),
  unauthorised: status(401, 2),
  limited: status(429, 2),
  failing: status(500, 1),
  orphan: (ai) =>
    ai().responses.create({ ...asked, input: [...input, { type: "function_call_output", call_id: "x", output: "?" }] }),
  unfit: (ai) => ai().responses.create(unfit),
  unfitstream: async (ai) => all(await ai().responses.create({ ...unfit, stream: true })),
  agent: (ai) => agent(ai(narrow), false, stateless),
  agentstream: (ai) => agent(ai(narrow), true, stateless),
  agentstored: (ai) => agent(ai(narrow), false, {}),
  broken: async (ai) =>
    all(await ai({ "x-sim-abort": "5", "x-sim-text": "a b c d e" }).responses.create({ ...asked, stream: true })),
  impatient: (ai) =>
    ai(late, { timeout: 1000, maxRetries: 0 })
      .responses.create(asked)
      .finally(() => released("impatient")),
  closed: async (ai) => {
    const events = await some(await ai(slowly).responses.create({ ...asked, stream: true }), 2);
    await released("closed");
    return events;
  },
  aborted: (ai) =>
    ai(late)
      .responses.create(asked, { signal: abortedAfter(1000) })
      .finally(() => released("aborted")),
};

await run(scenarios, client, ({ status, code, type, param, requestID, error }) => {
  return { status, code, type, param, requestID, body: error };
});

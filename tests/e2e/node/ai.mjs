// The AI SDK: its OpenAI provider (Responses unless told otherwise) and its Anthropic provider.

import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, Output, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { abortedAfter, bodies, late, released, run, slowly, some, tag, url } from "./harness.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;
const prompt = "What is a load line? ⚓";
const Mark = z.object({ name: z.string(), freeboard: z.number(), certified: z.boolean() });

const client = (name, headers) => {
  const own = { baseURL: url, apiKey: "sk-canary", headers: { "x-scenario": `${name} ${tag}`, ...headers } };
  return { openai: createOpenAI(own), anthropic: createAnthropic(own) };
};
const responses = { of: (ai) => ai.openai, model: "gpt-4o" };
const stateless = { ...responses, options: { openai: { store: false, include: ["reasoning.encrypted_content"] } } };
const chat = { of: (ai) => ai.openai.chat, model: "gpt-4o" };
const messages = { of: (ai) => ai.anthropic, model: "claude-sonnet-4-5" };

const asked = (provider, ai, suffix = "") => ({
  model: provider.of(ai)(provider.model + suffix),
  system: "Be brief.",
  prompt,
  maxOutputTokens: 1000,
  providerOptions: provider.options,
});
const told = ({ text, finishReason, usage, steps }) => {
  const { inputTokens, outputTokens } = usage;
  return { text, finishReason, inputTokens, outputTokens, steps: steps.length };
};

async function streamed(settings) {
  let failure;
  const result = streamText({ ...settings, onError: ({ error }) => (failure = error) });
  const kinds = [];
  for await (const part of result.fullStream) kinds.push(part.type);
  if (failure) throw failure;
  return { kinds, text: await result.text, finishReason: await result.finishReason };
}

async function agent(settings, streams = false) {
  let calls = 0;
  const read = tool({
    description: "Reads a file.",
    inputSchema: z.object({ path: z.string() }),
    execute: () => bodies.results[calls++],
  });
  const looped = { ...settings, tools: { read_file: read }, stopWhen: stepCountIs(40) };
  if (streams) return { ...(await streamed(looped)), kinds: undefined, calls };
  return { ...told(await generateText(looped)), calls };
}

const scenarios = {};
for (const [name, provider] of Object.entries({ responses, chat, messages })) {
  const loop = provider === messages ? "-sim-tools-loop" : "-sim-tools-loop";
  const narrow = { "x-sim-window": "6000" };
  Object.assign(scenarios, {
    [`${name} answer`]: async (ai) => told(await generateText(asked(provider, ai()))),
    [`${name} stream`]: (ai) => streamed(asked(provider, ai())),
    [`${name} object`]: async (ai) =>
      (await generateText({ ...asked(provider, ai()), output: Output.object({ schema: Mark }) })).output,
    [`${name} agent`]: (ai) => agent(asked(provider, ai(narrow), loop)),
    [`${name} agentstream`]: (ai) => agent(asked(provider, ai(narrow), loop), true),
    [`${name} unauthorised`]: (ai) => generateText(asked(provider, ai({ "x-sim-status": "401" }))),
    [`${name} limited`]: (ai) => generateText(asked(provider, ai({ "x-sim-status": "429" }))),
    [`${name} unfit`]: (ai) =>
      generateText({ ...asked(provider, ai({ "x-sim-window": "600", "x-plimsoll-window": "600" })), tools: unfit() }),
    [`${name} aborted`]: (ai) =>
      generateText({ ...asked(provider, ai(late)), abortSignal: abortedAfter(1000) }).finally(() =>
        released("aborted"),
      ),
    [`${name} closed`]: async (ai) => {
      const stop = new AbortController();
      const { textStream } = streamText({ ...asked(provider, ai(slowly)), abortSignal: stop.signal, onError() {} });
      const pieces = await some(textStream, 2);
      stop.abort();
      await released("closed");
      return pieces;
    },
  });
}
scenarios["stateless agent"] = (ai) =>
  agent(asked(stateless, ai({ "x-sim-window": "6000" }), "-sim-tools-loop-sim-reasons"));
scenarios["stateless agentstream"] = (ai) =>
  agent(asked(stateless, ai({ "x-sim-window": "6000" }), "-sim-tools-loop-sim-reasons"), true);
scenarios["reasoning agent"] = (ai) =>
  agent(asked(responses, ai({ "x-sim-window": "6000" }), "-sim-tools-loop-sim-reasons"));

function unfit() {
  const one = ({ function: f }) => [f.name, tool({ description: f.description, inputSchema: z.object({}) })];
  return Object.fromEntries(bodies.unfit.tools.map(one));
}

await run(scenarios, client, (error) => {
  const last = error.lastError ?? error;
  const { statusCode, isRetryable, responseBody } = last;
  return { last: last.constructor.name, reason: error.reason, statusCode, isRetryable, responseBody, tries: error.errors?.length };
});

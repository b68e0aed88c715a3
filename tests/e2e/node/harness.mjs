// Asks what a program may ask of a client and prints one line of JSON for each: what came, or how it failed.
// `node SCRIPT URL TAG`; it waits for a line on standard input where it says so.

import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";

export const [url, tag] = process.argv.slice(2);
export const bodies = JSON.parse(readFileSync(new URL("bodies.json", import.meta.url), "utf8"));
export const slowly = { "x-sim-chunk-delay": "0.2", "x-sim-text": Array(200).fill("aye").join(" ") };
export const late = { "x-sim-delay": "20" };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

export async function all(stream) {
  const chunks = [];
  for await (const chunk of stream) chunks.push(chunk);
  return chunks;
}

// The first pieces of a stream, which is then left.
export async function some(stream, count) {
  const chunks = [];
  for await (const chunk of stream) if (chunks.push(chunk) === count) break;
  return chunks;
}

// Says that something was let go, and goes on when whoever watches the upstream has seen it.
export async function released(what) {
  console.log(JSON.stringify({ waiting: what }));
  await lines.next();
}

export function abortedAfter(milliseconds) {
  const controller = new AbortController();
  setTimeout(() => controller.abort(), milliseconds);
  return controller.signal;
}

// Each scenario gets what makes its client, from headers and options. `failed` tells what a program sees of an error.
export async function run(scenarios, client, failed) {
  for (const [name, ask] of Object.entries(scenarios)) {
    let told;
    try {
      told = { answer: await ask((headers = {}, options = {}) => client(name, headers, options)) };
    } catch (error) {
      told = { failure: { kind: error.constructor.name, ...failed(error) } };
    }
    console.log(JSON.stringify({ scenario: name, ...told }));
  }
  process.exit(0);
}

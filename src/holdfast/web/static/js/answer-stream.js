// An answer as its words come, read from the stream of the API.

import { ApiError, ServerUnreachable, basePath } from "./api.js";

/**
 * Ask, and tell of each text as it comes; return the whole answer. What is aborted throws an AbortError.
 * @param {string} base
 * @param {{question: string, mode: string}} asked
 * @param {(text: string) => void} came
 * @param {AbortSignal} signal
 * @returns {Promise<Answer | null>}
 */
export async function streamAnswer(base, asked, came, signal) {
  const reply = await fetch(`/api/v1${basePath(base)}/answers:stream`, { method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(asked) }).catch((error) => {
    throw error.name === "AbortError" ? error : new ServerUnreachable(String(error));
  });
  if (!reply.ok || !reply.body) throw new ApiError(await reply.json());
  /** @type {Answer | null} */
  let whole = null;
  for await (const [name, told] of readEvents(reply.body.getReader())) {
    if (name === "text") came(told);
    else if (name === "problem") throw new ApiError(told);
    else if (name === "answer") whole = told;
  }
  return whole;
}

/**
 * Read the messages of a stream, each with its name and what it tells.
 * @param {ReadableStreamDefaultReader<Uint8Array>} reader
 * @returns {AsyncGenerator<[string, any]>}
 */
async function* readEvents(reader) {
  const decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      const lines = block.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const told = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (name && told) yield [name, JSON.parse(told)];
    }
  }
}

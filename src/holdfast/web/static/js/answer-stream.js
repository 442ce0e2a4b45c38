// Reads a streamed answer from the API.

import { ApiError, ServerUnreachable, basePath } from "./api.js";

/**
 * Ask a question. Calls `onText` with each piece of text and returns the whole answer. An abort throws an AbortError.
 * @param {string} base
 * @param {{question: string, mode: string}} body
 * @param {(text: string) => void} onText
 * @param {AbortSignal} signal
 * @returns {Promise<Answer | null>}
 */
export async function streamAnswer(base, body, onText, signal) {
  const reply = await fetch(`/api/v1${basePath(base)}/answers:stream`, { method: "POST", signal, headers: { "content-type": "application/json" }, body: JSON.stringify(body) }).catch((error) => {
    throw error.name === "AbortError" ? error : new ServerUnreachable(String(error));
  });
  if (!reply.ok || !reply.body) throw new ApiError(await reply.json());
  /** @type {Answer | null} */
  let whole = null;
  for await (const [name, data] of readEvents(reply.body.getReader())) {
    if (name === "text") onText(data);
    else if (name === "problem") throw new ApiError(data);
    else if (name === "answer") whole = data;
  }
  return whole;
}

/**
 * Yield the events of a stream: name and data.
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
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (name && data) yield [name, JSON.parse(data)];
    }
  }
}

import OpenAI, { APIError } from 'openai';
import { choice, request } from '../cases.js';
import { sendResponses } from './responses.js';

// openai is OpenAI's own client.
export const openai = { name: 'openai', api: 'chat', also: ['responses'], send };

export function client(base, c) {
  return new OpenAI({ baseURL: base, apiKey: c.key || 'any', maxRetries: c.retries ?? 0 });
}

async function send(base, c, signal) {
  const api = client(base, c);
  const body = request(c);
  if (c.api === 'responses') return sendResponses(api, body, signal);
  try {
    if (!body.stream) {
      const reply = await api.chat.completions.create(body, { signal });
      return { choices: reply.choices.map((x) => choiceOf(x)), usage: usageOf(reply.usage) };
    }
    const stream = await api.chat.completions.create(body, { signal });
    return await streamed(stream);
  } catch (e) {
    return failure(e);
  }
}

// streamed reads chunks as programs do, by index.
async function streamed(stream) {
  const choices = [];
  const ids = new Set();
  let usage = null;
  let finishes = 0;
  for await (const chunk of stream) {
    ids.add(chunk.id);
    if (chunk.usage) usage = usageOf(chunk.usage);
    for (const { index, delta, finish_reason } of chunk.choices) {
      const x = (choices[index] ??= { message: { content: '', tool_calls: [] } });
      x.message.content += delta.content ?? '';
      if (delta.reasoning_content) x.message.reasoning_content = (x.message.reasoning_content ?? '') + delta.reasoning_content;
      for (const t of delta.tool_calls ?? []) {
        const call = (x.message.tool_calls[t.index] ??= { id: '', function: { name: '', arguments: '' } });
        call.id += t.id ?? '';
        call.function.name += t.function?.name ?? '';
        call.function.arguments += t.function?.arguments ?? '';
      }
      if (finish_reason) {
        x.finish_reason = finish_reason;
        finishes++;
      }
    }
  }
  return { choices: choices.map((x) => choiceOf(x)), usage, ids: ids.size, finishes };
}

function choiceOf({ message, finish_reason }) {
  const calls = (message.tool_calls ?? []).map((t) => ({ id: t.id, name: t.function.name, arguments: t.function.arguments }));
  return choice({ content: message.content, reasoning: message.reasoning_content, refusal: message.refusal, finish: finish_reason, calls });
}

function usageOf(u) {
  return u ? { prompt: u.prompt_tokens, completion: u.completion_tokens, cached: u.prompt_tokens_details?.cached_tokens } : null;
}

// failure is an error in the common form.
export function failure(e) {
  if (e instanceof APIError && e.status) {
    return { error: { status: e.status, code: e.code, type: e.type, param: e.param, message: e.message } };
  }
  return { broken: `${e.message} ${e.error?.message ?? ''}` };
}

import { APICallError, RetryError, generateText, jsonSchema, streamText, tool } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { CannotSend, choice, request, unseen } from '../cases.js';

// ai is Vercel's AI SDK with its provider for compatible servers.
export const ai = { name: 'ai', api: 'chat', send };

async function send(base, c, signal) {
  const body = request(c);
  const provider = createOpenAICompatible({ name: 'windrow', baseURL: base, apiKey: c.key || 'any', includeUsage: !!body.stream_options, supportsStructuredOutputs: true });
  const settings = { model: provider(body.model), maxRetries: c.retries ?? 0, abortSignal: signal, providerOptions: { windrow: {} } };
  for (const [key, v] of Object.entries(body)) {
    if (v === null) throw new CannotSend('null');
    switch (key) {
      case 'model':
      case 'stream':
      case 'stream_options':
        break;
      case 'messages': {
        const system = v.filter((m) => m.role === 'system').map((m) => m.content);
        if (system.length) settings.system = system.join('\n');
        settings.messages = v.filter((m) => m.role !== 'system').map(messageOf);
        break;
      }
      case 'temperature':
        settings.temperature = v;
        break;
      case 'seed':
        settings.seed = v;
        break;
      case 'max_tokens':
        settings.maxOutputTokens = v; // its name on the wire
        break;
      case 'stop':
        if (!Array.isArray(v)) throw new CannotSend('stop as a string');
        settings.stopSequences = v;
        break;
      case 'tools':
        settings.tools = Object.fromEntries(v.map((t) => [t.function.name, tool({ description: t.function.description, inputSchema: jsonSchema(t.function.parameters) })]));
        break;
      case 'tool_choice':
        settings.toolChoice = v;
        break;
      case 'reasoning_effort':
        settings.providerOptions.windrow.reasoningEffort = v;
        break;
      case 'chat_template_kwargs': // what is not its own is sent as it is
        settings.providerOptions.windrow.chat_template_kwargs = v;
        break;
      case 'response_format':
        throw new CannotSend('a form of text; see forms.test.js for objects');
      default:
        throw new CannotSend(key);
    }
  }
  try {
    return body.stream ? await streamed(settings) : await whole(settings);
  } catch (e) {
    return failure(e);
  }
}

async function whole(settings) {
  const r = await generateText(settings);
  return { choices: [choiceOf(r)], usage: usageOf(r.usage), ids: unseen };
}

async function streamed(settings) {
  let broken;
  const r = streamText({ ...settings, onError: ({ error }) => (broken = error) });
  let text = '';
  let reasoning = '';
  const calls = [];
  let finish, usage;
  let finishes = 0;
  for await (const part of r.fullStream) {
    if (part.type === 'text-delta') text += part.text;
    if (part.type === 'reasoning-delta') reasoning += part.text;
    if (part.type === 'tool-call') calls.push(part);
    if (part.type === 'finish') {
      finish = part.finishReason;
      usage = part.totalUsage;
      finishes++;
    }
  }
  if (broken) throw broken;
  return { choices: [choiceOf({ text, reasoningText: reasoning, toolCalls: calls, finishReason: finish })], usage: usageOf(usage), finishes };
}

function choiceOf(r) {
  const calls = r.toolCalls.map((t) => ({ id: t.toolCallId, name: t.toolName, arguments: t.input && JSON.stringify(t.input).replace(':', ': ') }));
  const finish = { 'tool-calls': 'tool_calls' }[r.finishReason] ?? r.finishReason;
  return { ...choice({ content: r.text || null, reasoning: r.reasoningText, finish, calls }), refusal: unseen };
}

function usageOf(u) {
  return u?.outputTokens === undefined ? null : { prompt: u.inputTokens, completion: u.outputTokens, cached: u.inputTokenDetails?.cacheReadTokens };
}

function messageOf(m) {
  if (m.role === 'tool') {
    const value = Array.isArray(m.content) ? m.content.map((p) => p.text).join('') : m.content;
    return { role: 'tool', content: [{ type: 'tool-result', toolCallId: m.tool_call_id, toolName: 'add', output: { type: 'text', value } }] };
  }
  if (m.tool_calls) {
    const content = m.tool_calls.map((t) => {
      let input;
      try {
        input = JSON.parse(t.function.arguments);
      } catch {
        throw new CannotSend('arguments that are no JSON');
      }
      return { type: 'tool-call', toolCallId: t.id, toolName: t.function.name, input };
    });
    return { role: 'assistant', content };
  }
  if (Array.isArray(m.content)) {
    return { role: m.role, content: m.content.map((p) => (p.type === 'text' ? p : { type: 'file', mediaType: 'image/png', data: 'aaaa' })) };
  }
  return m;
}

function failure(e) {
  if (RetryError.isInstance(e)) e = e.lastError;
  if (APICallError.isInstance(e) && e.statusCode) {
    const said = e.data?.error ?? {};
    return { error: { status: e.statusCode, code: said.code, type: said.type, param: said.param, message: e.message } };
  }
  return { broken: `${e?.message ?? ''} ${typeof e === 'string' ? e : JSON.stringify(e)}` };
}

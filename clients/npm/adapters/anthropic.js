import Anthropic, { APIError } from '@anthropic-ai/sdk';
import { CannotSend, choice, request, unseen } from '../cases.js';

// anthropic is Anthropic's own client. Its base URL has no /v1.
export const anthropic = { name: '@anthropic-ai/sdk', api: 'messages', send };

async function send(base, c, signal) {
  const slash = base.endsWith('/') ? '/' : '';
  const api = new Anthropic({ baseURL: base.replace(/\/v1\/?$/, slash), apiKey: c.key || 'any', maxRetries: c.retries ?? 0 });
  const body = messagesBody(c);
  try {
    if (!body.stream) return resultOf(await api.messages.create(body, { signal }));
    delete body.stream;
    const stream = api.messages.stream(body, { signal });
    let begun, finishes = 0;
    stream.on('streamEvent', (e) => {
      if (e.type === 'message_start') begun = (e.message.usage?.input_tokens ?? 0) + (e.message.usage?.cache_read_input_tokens ?? 0);
      if (e.delta?.stop_reason) finishes++;
    });
    return { ...resultOf(await stream.finalMessage()), begun, finishes };
  } catch (e) {
    if (e instanceof APIError && e.status) {
      const said = e.error?.error ?? {};
      return { error: { status: e.status, type: said.type, message: said.message, code: unseen, param: unseen } };
    }
    return { broken: `${e.message} ${JSON.stringify(e.error ?? null)}` };
  }
}

function resultOf(m) {
  const join = (type, key) => m.content.filter((b) => b.type === type).map((b) => b[key]).join('');
  const finish = { end_turn: 'stop', stop_sequence: 'stop', max_tokens: 'length', tool_use: 'tool_calls' }[m.stop_reason];
  const calls = m.content.filter((b) => b.type === 'tool_use').map((b) => ({ id: b.id, name: b.name, arguments: JSON.stringify(b.input).replace(':', ': ') }));
  const u = m.usage;
  return {
    choices: [{ ...choice({ content: join('text', 'text') || null, reasoning: join('thinking', 'thinking'), finish, calls }), refusal: unseen }],
    usage: { prompt: u.input_tokens + u.cache_read_input_tokens, completion: u.output_tokens, cached: u.cache_read_input_tokens },
    blocks: m.content.length,
  };
}

// messagesBody makes a request of Anthropic's API of a case's, which is one of chat.
function messagesBody(c) {
  const body = request(c);
  if (c.api === 'messages') return body;
  const out = { max_tokens: 200 };
  for (const [key, v] of Object.entries(body)) {
    if (v === null) throw new CannotSend('null');
    switch (key) {
      case 'model':
      case 'temperature':
      case 'stream':
        out[key] = v;
        break;
      case 'max_tokens':
      case 'max_completion_tokens':
        out.max_tokens = v;
        break;
      case 'stop':
        if (!Array.isArray(v)) throw new CannotSend('stop as a string');
        out.stop_sequences = v;
        break;
      case 'stream_options': // the usage is there always
        break;
      case 'reasoning_effort':
        if (v === 'none') out.thinking = { type: 'disabled' };
        break;
      case 'tool_choice':
        out.tool_choice = { type: 'any' }; // as 'required' is called
        break;
      case 'tools':
        out.tools = v.map(({ function: f }) => ({ name: f.name, description: f.description, input_schema: f.parameters }));
        break;
      case 'messages':
        out.messages = messagesList(v);
        break;
      default:
        throw new CannotSend(key);
    }
  }
  return out;
}

function messagesList(list) {
  const out = [];
  for (const m of list) {
    let { role, content } = m;
    if (m.tool_calls) {
      content = m.tool_calls.map((t) => {
        try {
          return { type: 'tool_use', id: t.id, name: t.function.name, input: JSON.parse(t.function.arguments) };
        } catch {
          throw new CannotSend('arguments that are no JSON');
        }
      });
    }
    if (role === 'tool') {
      role = 'user';
      content = [{ type: 'tool_result', tool_use_id: m.tool_call_id, content }];
    }
    if (Array.isArray(content)) {
      content = content.map((p) => (p.type === 'image_url' ? { type: 'image', source: { type: 'base64', media_type: 'image/png', data: 'aaaa' } } : p));
    } else if (out.at(-1)?.role === role) {
      out.at(-1).content.push({ type: 'text', text: content }); // turns of one role are one
      continue;
    }
    out.push({ role, content });
  }
  return out;
}

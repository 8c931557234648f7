import { AIMessage, HumanMessage, SystemMessage, ToolMessage } from '@langchain/core/messages';
import { ChatOpenAI } from '@langchain/openai';
import { CannotSend, choice, request, unseen } from '../cases.js';

// langchain is LangChain's model of OpenAI's API.
export const langchain = { name: '@langchain/openai', api: 'chat', send };

// direct are the fields that its settings have under other names.
const direct = { temperature: 'temperature', n: 'n', max_completion_tokens: 'maxTokens', max_tokens: 'maxTokens' };

async function send(base, c, signal) {
  const body = request(c);
  const settings = { model: body.model, apiKey: c.key || 'any', configuration: { baseURL: base }, maxRetries: c.retries ?? 0, streamUsage: !!body.stream_options, modelKwargs: {} };
  const call = { signal };
  for (const [key, v] of Object.entries(body)) {
    if (v === null) throw new CannotSend('null');
    switch (key) {
      case 'model':
      case 'messages':
      case 'stream':
      case 'stream_options':
        break;
      case 'n':
        if (body.stream) throw new CannotSend('n beside stream: it joins all choices');
        settings.n = v;
        break;
      case 'stop':
        if (!Array.isArray(v)) throw new CannotSend('stop as a string');
        call.stop = v;
        break;
      case 'seed':
      case 'tools':
      case 'tool_choice':
      case 'response_format':
        call[key] = v;
        break;
      case 'reasoning_effort':
      case 'chat_template_kwargs':
        settings.modelKwargs[key] = v;
        break;
      default:
        if (!direct[key]) throw new CannotSend(key);
        settings[direct[key]] = v;
    }
  }
  const model = new ChatOpenAI(settings);
  const messages = body.messages.map(messageOf);
  try {
    if (!body.stream) {
      const r = await model.invoke(messages, call);
      return { choices: [choiceOf(r)], usage: usageOf(r) };
    }
    let all;
    for await (const chunk of await model.stream(messages, call)) all = all ? all.concat(chunk) : chunk;
    return { choices: [choiceOf(all)], usage: usageOf(all) };
  } catch (e) {
    return failure(e);
  }
}

function choiceOf(m) {
  const whole = m.tool_calls ?? [];
  const calls = whole.map((t) => ({ id: t.id, name: t.name, arguments: JSON.stringify(t.args).replace(':', ': ') }));
  const reasoning = m.additional_kwargs?.reasoning_content;
  return { ...choice({ content: m.text || null, reasoning, finish: m.response_metadata.finish_reason, calls }), refusal: unseen };
}

function usageOf(m) {
  const u = m.usage_metadata;
  return u ? { prompt: u.input_tokens, completion: u.output_tokens, cached: u.input_token_details?.cache_read } : null;
}

function messageOf(m) {
  switch (m.role) {
    case 'system':
      return new SystemMessage(m.content);
    case 'tool':
      return new ToolMessage({ content: m.content, tool_call_id: m.tool_call_id });
    case 'assistant':
      return new AIMessage({
        content: m.content ?? '',
        tool_calls: (m.tool_calls ?? []).map((t) => {
          try {
            return { id: t.id, name: t.function.name, args: JSON.parse(t.function.arguments) };
          } catch {
            throw new CannotSend('arguments that are no JSON');
          }
        }),
      });
  }
  return new HumanMessage({ content: m.content });
}

function failure(e) {
  if (e.status) return { error: { status: e.status, code: e.code, type: e.type, param: e.param, message: e.message } };
  return { broken: `${e.message} ${e.error?.message ?? ''}` };
}

import { APIError } from 'openai';
import { choice } from '../cases.js';

// sendResponses asks by OpenAI's newer API.
export async function sendResponses(api, body, signal) {
  try {
    if (!body.stream) return resultOf(await api.responses.create(body, { signal }));
    let r = {};
    let next = 0;
    let gaps = 0;
    let nulls = 0;
    let text = '';
    for await (const e of await api.responses.create(body, { signal })) {
      if (e.sequence_number !== next) gaps++;
      next = e.sequence_number + 1;
      const lists = [e.item?.type === 'message' ? e.item.content : [], e.response ? e.response.output : [], e.part?.type === 'output_text' ? e.part.annotations : []];
      nulls += lists.filter((l) => !Array.isArray(l)).length;
      if (e.type === 'response.output_text.delta') text += e.delta;
      if (e.type === 'response.completed') {
        r = resultOf(e.response);
        if (r.choices[0].content !== text) r.broken = `the whole text is not its deltas: ${text}`;
      }
      if (e.type === 'response.failed') r.broken = e.response.error.message;
      if (e.type === 'error') r.broken = e.message;
    }
    return { ...r, gaps, nulls };
  } catch (e) {
    if (e instanceof APIError && e.status) return { error: { status: e.status, code: e.code, type: e.type, param: e.param, message: e.message } };
    return { broken: e.message };
  }
}

function resultOf(r) {
  const text = r.output.filter((i) => i.type === 'message').flatMap((i) => i.content).map((p) => p.text).join('');
  const calls = r.output.filter((i) => i.type === 'function_call').map((i) => ({ id: i.call_id, name: i.name, arguments: i.arguments }));
  const u = r.usage;
  return {
    choices: [choice({ content: text, finish: r.status, calls })],
    usage: { prompt: u.input_tokens, completion: u.output_tokens, cached: u.input_tokens_details.cached_tokens },
    blocks: r.output.length,
  };
}

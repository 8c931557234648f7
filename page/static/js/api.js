// The server: requests and their events.

/** ApiError is what the server, or the network, says is wrong. */
export class ApiError extends Error {
  constructor(message, status = 0, code = '') {
    super(message);
    this.status = status;
    this.code = code;
  }
}

const keyName = 'windrow.key';

export const key = {
  get: () => sessionStorage.getItem(keyName) ?? '',
  set: (k) => (k ? sessionStorage.setItem(keyName, k) : sessionStorage.removeItem(keyName)),
};

async function request(path, options = {}) {
  const headers = { Accept: 'application/json', ...options.headers };
  if (key.get()) headers.Authorization = `Bearer ${key.get()}`;
  let reply;
  try {
    reply = await fetch(new URL(path, document.baseURI), { ...options, headers, cache: 'no-store' });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new ApiError('The server does not answer. Is windrow serve still running?');
  }
  if (reply.ok) return reply;
  let error = {};
  try {
    error = (await reply.json()).error ?? {};
  } catch { /* not the API's error object */ }
  throw new ApiError(error.message ?? `The server answered ${reply.status}`, reply.status, error.code ?? '');
}

export const get = async (path) => (await request(path)).json();

/** chat sends a conversation, and yields the chunks of the answer as they come. */
export async function* chat(body, signal) {
  const reply = await request('v1/chat/completions', {
    method: 'POST', body: JSON.stringify(body), signal, headers: { 'Content-Type': 'application/json' },
  });
  let ended = false;
  for await (const data of lines(reply.body)) {
    if (data === '[DONE]') {
      ended = true;
      break;
    }
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message, 0, chunk.error.code ?? '');
    yield { chunk, id: reply.headers.get('X-Request-Id') };
  }
  if (!ended) throw new ApiError('The answer broke off');
}

/** lines yields the data of server-sent events: the server writes one line each. */
async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const all = (rest + value).split('\n');
    rest = all.pop();
    for (const line of all) if (line.startsWith('data: ')) yield line.slice(6);
  }
}

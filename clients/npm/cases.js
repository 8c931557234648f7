// The cases of ../testdata/details.json, and what is common to all clients: see
// ../cases_test.go, which has the same for Go.
import { readFileSync } from 'node:fs';
import { randomUUID } from 'node:crypto';

const details = JSON.parse(readFileSync(new URL('../testdata/details.json', import.meta.url)));
const servers = JSON.parse(process.env.WINDROW_SERVERS ?? '{}');
const models = { binary: 'tiny-gsm', locked: 'tiny-gsm', tools: 'tiny-tools', scripted: 'scripted' };

export { details, servers };

// unseen is in the place of what a client does not show: it is as good as any.
export const unseen = '?';

// CannotSend is why a client does not come to ask.
export class CannotSend extends Error {}

// request is a case's body, complete.
export function request(c) {
  const body = structuredClone(c.body);
  body.model ??= models[c.server];
  if (!c.script) return body;
  const text = 'script:' + JSON.stringify(c.script).replaceAll('$RUN', randomUUID());
  if (c.api === 'responses') {
    body.input = [{ role: 'user', content: text }];
    return body;
  }
  body.messages ??= [{ role: 'user', content: '' }];
  const last = body.messages.at(-1);
  if (Array.isArray(last.content)) last.content[last.content.length - 1] = { type: 'text', text };
  else last.content = text;
  return body;
}

// base is where a case's server is; spoiled: behind the proxy that breaks its detail.
export function base(c, spoiled) {
  const url = spoiled ? `${servers.spoil}/${c.detail}/${c.server}` : servers[c.server];
  return url + '/v1' + (c.slash ? '/' : '');
}

// choice is a choice in the common form; '' is nothing, unless a client shows the
// difference.
export function choice({ content, reasoning, refusal, finish, calls = [] }) {
  const text = content ?? '';
  let json = 'none';
  if (text.trim().startsWith('{')) {
    json = 'object';
    try {
      JSON.parse(text);
    } catch {
      json = finish === 'length' ? 'cut' : 'none';
    }
  }
  return { content: content ?? null, length: text.length, json, reasoning: reasoning || null, refusal: refusal ?? null, calls, finish: finish ?? '' };
}

// complete fills in what follows from the rest.
export function complete(r) {
  const calls = (r.choices ?? []).flatMap((c) => c.calls);
  if (r.call_ids === undefined && calls.length) r.call_ids = new Set(calls.map((c) => c.id)).size;
  r.ids ??= unseen;
  r.finishes ??= unseen;
  return r;
}

const callID = /^(call|toolu)_[A-Za-z0-9_-]{8,}$/;

// match says where got is not what is wanted; '' where it is.
export function match(want, got, path = 'got') {
  if (got === unseen) return '';
  const show = (v) => (JSON.stringify(v) ?? 'nothing').slice(0, 200);
  if (Array.isArray(want)) {
    if (!Array.isArray(got) || got.length !== want.length) return `${path}: got ${show(got)}, want ${want.length} of them`;
    for (const [i, w] of want.entries()) {
      const wrong = match(w, got[i], `${path}[${i}]`);
      if (wrong) return wrong;
    }
    return '';
  }
  if (want !== null && typeof want === 'object') {
    for (const [key, w] of Object.entries(want)) {
      const text = typeof got === 'string' ? got : '';
      const conditions = {
        $contains: () => text.includes(w),
        $not: () => got != null && !text.includes(w),
        $all: () => w.every((part) => text.includes(part)),
        $in: () => w.includes(got),
        $min: () => got >= w,
        $is: () => callID.test(text),
      };
      if (conditions[key]) {
        if (!conditions[key]()) return `${path}: got ${show(got)}, want ${key} ${show(w)}`;
        continue;
      }
      if (got === null || typeof got !== 'object') return `${path}: got ${show(got)}, want an object`;
      const wrong = match(w, got[key], `${path}.${key}`);
      if (wrong) return wrong;
    }
    return '';
  }
  return want === got || (want === null && got === undefined) ? '' : `${path}: got ${show(got)}, want ${show(want)}`;
}

// leave ends a request in its middle and reports whether its place is free soon.
async function leave(send, c, spoiled) {
  const control = new AbortController();
  const asked = send(base(c, spoiled), c, control.signal).catch((e) => e);
  if (!(await running(c, (n) => n > 0, 60_000))) throw await asked;
  control.abort();
  await asked;
  const freed = await running(c, (n) => n === 0, spoiled ? 500 : 60_000); // spoiled it is not to be free
  if (!freed) await fetch(`${servers.spoil}/stop`);
  return { freed };
}

// running waits for some milliseconds at most until a number of requests run.
async function running(c, wanted, most) {
  for (const end = Date.now() + most; Date.now() < end; ) {
    const slots = await (await fetch(servers[c.server] + '/slots')).json();
    if (wanted(slots.running)) return true;
    await new Promise((done) => setTimeout(done, 5));
  }
  return false;
}

// attempt runs a case and says what is wrong with what came; '': nothing.
export async function attempt(adapter, c, spoiled) {
  const began = Date.now();
  if (c.op === 'leave') return match(c.want, await leave(adapter.send, c, spoiled));
  const r = complete(await adapter.send(base(c, spoiled), c));
  r.waited = Date.now() - began;
  const wrong = match(c.want, r);
  if (wrong || !c.twice) return wrong;
  return match(r.choices, complete(await adapter.send(base(c, spoiled), c)).choices, 'again');
}

// The page: what its parts have to do with each other.

import { $, el, save, toast } from './dom.js';
import { Announcer, say } from './announce.js';
import { ApiError, chat as ask, get, key } from './api.js';
import { Film } from './film.js';
import { Log } from './log.js';
import { Player } from './player.js';
import { Sequences } from './sequences.js';
import * as settings from './settings.js';
import { chats, keepSettings, newID, settings as kept } from './store.js';

const welcomes = {
  'tiny-gsm': {
    title: 'Ask a word problem',
    text: 'tiny-gsm is a very small model that knows grade-school arithmetic, and nothing else. Try one of these and watch it write many tokens in a pass. The last one makes it stumble: its drafts are struck.',
    list: [
      'Maya has 4 crates with 12 apples each. She gives 5 apples to each of 6 friends. How many apples are left?',
      'A shop has 390 lemons. It sells 30% of them. How many lemons are left?',
      'Paul saves $25 a week. How much does he have after 8 weeks if he started with $40?',
    ],
  },
  other: {
    title: 'Ask something',
    text: 'Each answer shows its window at work: what was drafted, what was accepted, what was struck.',
    list: ['How many positive divisors does 196 have?', 'Write a haiku about rows of cut hay.', 'Explain in three sentences how a bicycle stays upright.'],
  },
};

let model = '…';
let current = chats.all()[0] ?? chats.create();
let running = null; // { abort, id } of the answer that is coming
const films = new Map(); // by message id, of this visit
const requests = new Set(); // their ids

const player = new Player();
const sequences = new Sequences((id) => requests.has(id.split('/')[0]));
const log = new Log({
  ask: (text) => send(text),
  edit: (id, text) => cut(id) && send(text),
  again: (id) => cut(id) && answer(),
  watch: (id) => {
    stage(true);
    view(false);
    player.show(films.get(id));
    $('paper').focus();
  },
  watchable: (id) => films.get(id)?.length > 0,
});

/** cut takes a message and what follows it out of the conversation. */
function cut(id) {
  if (running) return false;
  current.messages.length = current.messages.findIndex((m) => m.id === id);
  log.show(current, model, welcome());
  return true;
}

const welcome = () => welcomes[model] ?? welcomes.other;

function send(text) {
  if (running || !text.trim()) return;
  const m = { id: newID(), role: 'user', content: text.trim() };
  current.title ||= m.content.slice(0, 80);
  current.messages.push(m);
  log.append(m, model);
  answer();
}

/** answer asks for the next message. */
async function answer() {
  let body;
  try {
    body = settings.body(current.messages, stageShown());
  } catch (e) {
    toast(e.message);
    return;
  }
  const chat = current;
  const m = { id: newID(), role: 'assistant', content: '', reasoning: '', busy: true };
  const film = new Film();
  const voice = new Announcer();
  const abort = new AbortController();
  const mine = { abort, chat, message: m };
  running = mine;
  chat.messages.push(m);
  films.set(m.id, film);
  chats.keep(chat);
  log.append(m, model);
  player.show(film);
  buttons();
  film.began = performance.now();
  const ticking = setInterval(() => chats.keep(chat), 1000);
  let failed = null;
  try {
    for await (const { chunk, id } of ask(body, abort.signal)) {
      if (id) requests.add(id);
      take(chunk, m, film, voice);
    }
  } catch (e) {
    failed = e;
  }
  clearInterval(ticking);
  end(mine, film, voice, failed);
}

/** take puts a chunk where it belongs. */
function take(chunk, m, film, voice) {
  if (chunk.windrow?.steps) {
    film.add(chunk.windrow);
    if (player.film === film) player.changed();
  }
  if (chunk.windrow?.seed !== undefined) Object.assign(m, { seed: chunk.windrow.seed, mode: chunk.windrow.mode });
  if (chunk.timings) film.figures = figures(chunk);
  const choice = chunk.choices[0];
  if (!choice) return;
  const { content, reasoning_content: reasoning } = choice.delta;
  if (choice.finish_reason) m.finish = choice.finish_reason;
  if (!content && !reasoning) return;
  film.first ||= performance.now() - film.began;
  if (reasoning) m.reasoning += reasoning;
  if (content) {
    m.content += content;
    voice.feed(content);
  }
  log.update(m);
}

function figures({ timings: t, usage }) {
  return {
    rate: t.predicted_per_second, perForward: t.tokens_per_forward, forwards: t.forwards, tokens: t.predicted_n,
    cached: usage?.prompt_tokens_details.cached_tokens ?? t.cache_n, prompt: usage?.prompt_tokens ?? t.cache_n + t.prompt_n,
  };
}

/** end is how an answer ends: by itself, stopped, or with an error. */
function end(mine, film, voice, failed) {
  const { chat, message: m } = mine;
  if (running === mine) running = null;
  delete m.busy;
  film.ended = true;
  voice.end();
  const stopped = failed?.name === 'AbortError';
  const f = film.figures;
  m.note = f
    ? `${f.tokens} tokens · ${f.perForward.toFixed(2)} per forward · ${Math.round(f.rate).toLocaleString('en')} tokens/s · ${m.mode}, seed ${m.seed}` + (m.finish === 'length' ? ' · cut by the limit' : '')
    : stopped ? 'Stopped' : '';
  if (stopped) say('Stopped');
  if (failed && !stopped) {
    if (!m.content && !m.reasoning) chat.messages.pop(); // nothing came
    explain(failed);
  } else if (stopped && !m.content && !m.reasoning) {
    chat.messages.pop();
  }
  if (chats.find(chat.id)) chats.keep(chat);
  if (player.film === film) {
    if (film.length || film.figures) player.changed();
    else player.clear();
  }
  if (chat === current) {
    if (chat.messages.includes(m)) log.update(m, true);
    else log.show(chat, model, welcome());
  }
  buttons();
}

function explain(e) {
  if (e instanceof ApiError && e.status === 401) {
    $('key-box').showModal();
    return;
  }
  toast(e instanceof ApiError ? e.message : `The page failed: ${e.message}`);
}

function buttons() {
  $('send-label').textContent = running ? 'Stop' : 'Send';
  $('send').classList.toggle('stop', running !== null);
}

const stageShown = () => !document.body.classList.contains('no-stage');

function stage(on) {
  document.body.classList.toggle('no-stage', !on);
  $('toggle-stage').setAttribute('aria-pressed', on);
  kept.stage = on;
  keepSettings();
}

/** view shows all sequences, or this answer. */
function view(all) {
  $('view-all').setAttribute('aria-pressed', all);
  $('view-answer').setAttribute('aria-pressed', !all);
  $('all-view').hidden = !all;
  $('answer-view').hidden = all;
  sequences.show(all);
}

function open(chat) {
  running?.abort.abort();
  current = chat;
  log.show(current, model, welcome());
  player.clear();
  const last = chat.messages.findLast((m) => films.get(m.id)?.length);
  if (last) player.show(films.get(last.id), false);
  $('message').focus();
}

/** history lists the conversations. */
function history() {
  const list = chats.all().filter((c) => c.messages.length);
  const items = list.map((c) => {
    const title = c.title || 'Untitled';
    return el('li', {},
      el('button', { type: 'button', class: 'open', 'aria-current': c.id === current.id ? 'true' : null, on: { click: () => { $('history').close(); open(c); } } },
        el('span', { class: 'title', text: title }), el('span', { class: 'note', text: new Date(c.at).toLocaleString() })),
      el('button', { type: 'button', class: 'quiet', text: 'Export', 'aria-label': `Export: ${title}`, on: { click: () => save(`windrow-${c.id}.json`, c) } }),
      el('button', { type: 'button', class: 'quiet', text: 'Delete', 'aria-label': `Delete: ${title}`, on: { click: () => remove(c) } }));
  });
  $('chats').replaceChildren(...(items.length ? items : [el('li', { class: 'note', text: 'None yet' })]));
}

function remove(chat) {
  chats.remove(chat.id);
  if (chat.id === current.id) open(chats.create());
  history();
  $('close-history').focus();
}

function grow() {
  const box = $('message');
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight + 2}px`;
}

async function greet() {
  try {
    const props = await get('props');
    model = props.model;
    $('model').textContent = props.model;
    $('model').title = `${props.model}, ${props.arithmetic} on ${props.backend}, ${props.version}`;
    settings.knows(props);
    log.show(current, model, welcome());
  } catch (e) {
    explain(e);
  }
}

function wire() {
  $('composer').addEventListener('submit', (e) => {
    e.preventDefault();
    if (running) {
      running.abort.abort();
      return;
    }
    const text = $('message').value;
    $('message').value = '';
    grow();
    send(text);
  });
  $('message').addEventListener('input', grow);
  // Touch keyboards name no key: a line break is what they all ask for.
  let shift = false;
  $('message').addEventListener('keydown', (e) => { shift = e.shiftKey; });
  $('message').addEventListener('beforeinput', (e) => {
    if (e.inputType !== 'insertLineBreak' || shift) return;
    e.preventDefault();
    if (!running) $('composer').requestSubmit();
  });
  document.addEventListener('keydown', (e) => {
    if (e.key === 'Escape' && running && !document.querySelector('dialog[open]')) running.abort.abort();
  });
  $('new').addEventListener('click', () => open(chats.create()));
  $('open-history').addEventListener('click', () => { history(); $('history').showModal(); });
  $('close-history').addEventListener('click', () => $('history').close());
  $('export').addEventListener('click', () => save('windrow-chats.json', chats.all()));
  $('toggle-stage').addEventListener('click', () => stage(!stageShown()));
  $('view-all').addEventListener('click', () => view(true));
  $('view-answer').addEventListener('click', () => view(false));
  $('key-form').addEventListener('submit', () => {
    key.set($('key-entry').value.trim());
    $('key-entry').value = '';
    greet();
  });
  for (const d of document.querySelectorAll('dialog')) {
    d.addEventListener('click', (e) => { if (e.target === d) d.close(); }); // the backdrop
  }
}

settings.begin();
stage(kept.stage ?? true);
wire();
buttons();
for (const c of chats.all()) for (const m of c.messages) delete m.busy; // a reload ended them
log.show(current, model, welcome());
greet();
$('message').focus({ preventScroll: true });

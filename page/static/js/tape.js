// The tape: committed text, and behind it the window, a column for each slot. What
// became of the slot stands above, what the next pass will find there below.

import { $, el, still } from './dom.js';
import { columns } from './film.js';

const mostText = 600; // characters before the window

const marks = { ' ': '·', '\n': '⏎', '\t': '⇥', '\r': '␍' };

/** visible is a token's text in a cell: blanks at its ends can be seen. */
function visible(text) {
  const special = /^<\|(.*)\|>$/.exec(text);
  if (special) return { text: special[1].replaceAll('_', ' '), special: true };
  const seen = text.replace(/[\n\t\r]/g, (c) => marks[c]).replace(/^ +$/, (s) => '␣'.repeat(s.length));
  return { text: seen, special: false };
}

/** level is how dark a mask is: 0 to 5 by its entropy in nats. */
export function level(entropy) {
  return [0.1, 0.4, 0.75, 1.5, 3].filter((bound) => entropy >= bound).length;
}

function cell(slot) {
  if (!slot) return el('span', { class: 'cell none', text: '\u00a0' });
  if (slot.state === 'mask') {
    const known = slot.entropy !== undefined;
    return el('span', { class: `cell mask${known ? '' : ' unknown'}`, 'data-level': known ? level(slot.entropy) : null, text: known ? number(slot.entropy) : '–' });
  }
  const { text, special } = visible(slot.text ?? '');
  return el('span', { class: `cell ${slot.state}${special ? ' special' : ''}`, text });
}

let trailed = { film: null, at: 0 };
const mostTrail = 60;

/** trail shows the passes before one of them, the newest first, a line each. */
function trail(film, at) {
  const list = $('trail');
  let from = trailed.at;
  if (film !== trailed.film || at < from || at - from > mostTrail) {
    list.replaceChildren();
    from = Math.max(0, at - mostTrail);
  }
  for (let i = from; i < at; i++) {
    const step = film.steps[i];
    list.prepend(el('li', { 'data-at': i }, el('span', { class: 'no', text: step.forward }), el('span', { class: 'cells' }, ...step.slots.map(cell))));
    if (list.childElementCount > mostTrail) list.lastElementChild.remove();
  }
  trailed = { film, at };
}

const number = (h) => (h < 0.095 ? h.toFixed(2).replace(/^0/, '') : h < 9.95 ? h.toFixed(1) : h.toFixed(0));

/** draw shows a film at a pass; behind the last, its end. */
export function draw(film, at) {
  const tape = $('tape');
  const step = film.steps[at];
  let text = film.before(at);
  const cut = text.length > mostText;
  if (cut) text = text.slice(text.indexOf(' ', text.length - mostText) + 1);
  const newest = at > 0 ? film.steps[Math.min(at, film.length) - 1].text.length : 0;
  const fresh = Math.min(newest, text.length);
  tape.replaceChildren();
  if (cut) tape.append(el('span', { class: 'cut', text: '… ' }));
  tape.append(text.slice(0, text.length - fresh), el('span', { class: 'fresh', text: text.slice(text.length - fresh) }));
  if (step) {
    tape.append(el('span', { class: 'edge' }));
    for (const { slot, next } of columns(step)) tape.append(el('span', { class: 'column' }, cell(slot), cell(next)));
  } else if (film.ended) {
    tape.append(el('span', { class: 'end', text: 'end' }));
  }
  tape.classList.toggle('still', still());
  trail(film, Math.min(at, film.length));
  const paper = $('paper');
  // The window stays in view, its beginning where it is too large.
  const last = tape.lastElementChild?.getBoundingClientRect();
  const edge = tape.querySelector('.edge')?.getBoundingClientRect() ?? last;
  const seen = paper.getBoundingClientRect();
  if (!last) return;
  const down = Math.min(last.bottom - seen.bottom + 12, edge.top - seen.top - 12);
  const up = edge.top - seen.top - 12;
  if (down > 0) paper.scrollTop += down;
  else if (up < 0) paper.scrollTop += up;
}

// All sequences: what the server runs, and who had rows in the last pass.

import { $, el } from './dom.js';
import { get } from './api.js';

const every = 500;

export class Sequences {
  #timer = 0;
  #mine;

  /** mine reports whether a request is this page's. */
  constructor(mine) {
    this.#mine = mine;
    document.addEventListener('visibilitychange', () => { if (this.#timer && !document.hidden) this.#poll(); });
  }

  show(on) {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (on) this.#poll();
  }

  async #poll() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#poll(), every);
    if (document.hidden) return;
    try {
      this.#draw(await get('slots'));
    } catch (e) {
      $('all-note').textContent = e.message;
    }
  }

  #draw(slots) {
    const rows = slots.requests;
    const all = rows.reduce((n, r) => n + r.rows, 0);
    const note = rows.length
      ? `${slots.running} of ${slots.total} places taken, ${slots.waiting} waiting. The last pass had ${all} rows.`
      : 'Nobody is asking anything now. Requests share forward passes: send some at once, from here or from another client, and each has a line here.';
    if ($('all-note').textContent !== note) $('all-note').textContent = note;
    $('all-rows').replaceChildren(...rows.map((r) => {
      const bar = el('span', { class: `bar-of ${r.state}` });
      bar.style.setProperty('--share', all ? r.rows / all : 0);
      return el('tr', {},
        el('th', { scope: 'row' }, el('code', { text: r.id.slice(0, 16) }), this.#mine(r.id) ? el('span', { class: 'own', text: 'this page' }) : null),
        el('td', { text: r.state }), el('td', { text: r.mode }),
        el('td', { class: 'n', text: r.prompt }), el('td', { class: 'n', text: r.tokens }),
        el('td', { class: 'share' }, el('span', { class: 'n', text: r.rows }), bar));
    }));
  }
}

// Screen readers get an answer by sentence: a live region that changes with every
// token reads fragments, or nothing.

import { $, el } from './dom.js';

const most = 30; // sentences in the region

export class Announcer {
  #rest = '';

  /** feed takes text as it comes, and says the sentences that it completes. */
  feed(text) {
    this.#rest += text;
    for (;;) {
      const end = /[.!?…:;]["')\]]*\s|\n/.exec(this.#rest);
      if (!end) return;
      const n = end.index + end[0].length;
      say(this.#rest.slice(0, n));
      this.#rest = this.#rest.slice(n);
    }
  }

  /** end says what is left. */
  end() {
    say(this.#rest);
    this.#rest = '';
  }
}

export function say(text) {
  text = text.trim();
  if (!text) return;
  const region = $('announcer');
  region.append(el('p', { text }));
  while (region.childElementCount > most) region.firstElementChild.remove();
}

// Plays a film: at its own pace, since a small model makes a pass in milliseconds.

import { $, copy, still } from './dom.js';
import { counted, sample, told } from './film.js';
import * as strip from './strip.js';
import * as tape from './tape.js';

const catchUp = 6000; // ms that the picture may be behind, about
const fastest = 40;

export class Player {
  #film = null;
  #at = 0;
  #playing = false;
  #timer = 0;
  #shown = { first: 0, slots: 1 };

  constructor() {
    const on = (id, f) => $(id).addEventListener('click', f);
    on('first', () => this.seek(0));
    on('back', () => this.seek(this.#at - 1));
    on('forward', () => this.seek(this.#at + 1));
    on('last', () => this.seek(Infinity));
    on('play', () => this.toggle());
    on('copy-pass', () => this.#copy());
    $('seek').addEventListener('input', (e) => this.seek(Number(e.target.value)));
    $('pace').addEventListener('change', () => this.#schedule());
    $('chart').addEventListener('click', (e) => {
      const box = e.currentTarget.getBoundingClientRect();
      this.seek(this.#shown.first + Math.floor(((e.clientX - box.left) / box.width) * this.#shown.slots));
    });
    $('trail').addEventListener('click', (e) => {
      const line = e.target.closest('li');
      if (line) this.seek(Number(line.dataset.at));
    });
    $('stage').addEventListener('keydown', (e) => this.#key(e));
    this.clear();
  }

  get film() {
    return this.#film;
  }

  /** show begins with a film; it may still grow. */
  show(film, playing = true) {
    this.#film = film;
    this.#at = 0;
    this.#playing = playing;
    this.#empty(false);
    this.changed();
  }

  /** clear shows that there is no film. */
  clear() {
    this.#film = null;
    this.#playing = false;
    clearTimeout(this.#timer);
    this.#timer = 0;
    this.#empty(true);
    tape.draw(sample, 1);
    $('spoken').textContent = '';
    $('where').textContent = 'No pass yet';
    for (const e of document.querySelectorAll('#figures dd')) e.textContent = '–';
    this.#enable();
  }

  #empty(empty) {
    $('paper').classList.toggle('bare', empty);
    $('empty').hidden = !empty;
    $('trail').hidden = $('strip').hidden = empty;
  }

  /** changed says that the film has grown, or has ended. */
  changed() {
    this.#draw();
    if (!this.#timer) this.#schedule();
  }

  toggle() {
    if (!this.#film) return;
    this.#playing = !this.#playing;
    if (this.#playing && this.#film.ended && this.#at >= this.#film.length) this.#at = 0;
    this.#draw();
    this.#schedule();
  }

  /** seek stops at a pass; the film's length is its end. */
  seek(to) {
    if (!this.#film) return;
    this.#playing = false;
    this.#schedule(); // not at all, that is
    this.#at = Math.max(0, Math.min(to, this.#end()));
    this.#draw();
    $('spoken').setAttribute('aria-live', 'polite');
    $('spoken').textContent = told(this.#film, this.#at);
  }

  /** #end is the last place: behind the last pass once the answer has ended. */
  #end() {
    return this.#film.ended ? this.#film.length : Math.max(0, this.#film.length - 1);
  }

  #schedule() {
    clearTimeout(this.#timer);
    this.#timer = 0;
    if (!this.#playing || !this.#film) return;
    const left = this.#end() - this.#at;
    if (left <= 0) {
      if (this.#film.ended) {
        this.#playing = false;
        this.#draw();
      }
      return;
    }
    const pace = Number($('pace').value);
    if (pace === 0 || still()) { // the newest, at most 25 times a second, or twice
      this.#timer = setTimeout(() => this.#step(left), still() ? 500 : fastest);
      return;
    }
    this.#timer = setTimeout(() => this.#step(1), Math.min(pace, Math.max(fastest, catchUp / left)));
  }

  #step(n) {
    this.#timer = 0;
    this.#at = Math.min(this.#at + n, this.#end());
    this.#draw();
    this.#schedule();
  }

  #draw() {
    const film = this.#film;
    if (!film) return;
    tape.draw(film, this.#at);
    this.#shown = strip.draw(film, this.#at);
    const seek = $('seek');
    seek.max = this.#end();
    seek.value = this.#at;
    const step = film.steps[this.#at];
    const behind = film.ended ? 0 : film.length - 1 - this.#at;
    let where = film.length ? `Pass ${step?.forward ?? film.steps.at(-1).forward} of ${film.steps.at(-1).forward}` : 'Reading the prompt';
    if (!step && film.ended) where = `All ${film.steps.at(-1)?.forward ?? 0} passes`;
    if (step) where += ` · ${step.rows} ${step.rows === 1 ? 'row' : 'rows'} · ${step.ms.toFixed(1)} ms`;
    if (step && step.pass.sequences > 1) where += ` · with ${step.pass.sequences - 1} other${step.pass.sequences > 2 ? 's' : ''}, ${step.pass.rows} rows`;
    if (behind > 2) where += ` · ${behind} behind`;
    if (film.missed) where += ` · ${film.missed} not shown`;
    $('where').textContent = where;
    seek.setAttribute('aria-valuetext', where);
    if (this.#playing) $('spoken').setAttribute('aria-live', 'off');
    $('spoken').textContent = told(film, this.#at);
    this.#figures();
    this.#enable();
  }

  #figures() {
    const film = this.#film;
    const sum = counted(film.steps);
    const f = film.figures;
    const set = (id, text) => { $(id).textContent = text; };
    const ms = film.steps.reduce((t, s) => t + s.ms, 0);
    const rate = f ? f.rate : ms ? (sum.tokens / ms) * 1000 : 0;
    set('f-rate', rate ? Math.round(rate).toLocaleString('en') : '–');
    const each = f?.perForward ?? (sum.forwards ? sum.tokens / sum.forwards : 0);
    set('f-forward', each ? each.toFixed(2) : '–');
    set('f-first', film.first ? `${film.first < 1000 ? film.first.toFixed(0) + ' ms' : (film.first / 1000).toFixed(2) + ' s'}` : '–');
    set('f-rows', sum.forwards ? (sum.rows / sum.forwards).toFixed(1) : '–');
    set('f-accepted', sum.drafts ? `${sum.accepted} / ${sum.drafts}` : '–');
    set('f-cached', f ? `${f.cached} / ${f.prompt}` : '–');
  }

  #enable() {
    const film = this.#film;
    const end = film ? this.#end() : 0;
    const off = (id, disabled) => $(id).setAttribute('aria-disabled', disabled);
    off('first', !film || this.#at === 0);
    off('back', !film || this.#at === 0);
    off('forward', !film || this.#at >= end);
    off('last', !film || this.#at >= end);
    off('play', !film);
    off('copy-pass', !film?.steps[this.#at]);
    $('play-icon').setAttribute('href', this.#playing ? '#i-pause' : '#i-play');
    $('play-label').textContent = this.#playing ? 'Pause' : 'Play';
  }

  #copy() {
    const step = this.#film?.steps[this.#at];
    if (step) copy(JSON.stringify(step, null, 2), `pass ${step.forward}`);
  }

  #key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest('select, input, .scroller')) return;
    const at = this.#at;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: Infinity }[e.key];
    if (to !== undefined) this.seek(to);
    else if (e.key === ' ' && e.target.id === 'paper') this.toggle();
    else return;
    e.preventDefault();
  }
}

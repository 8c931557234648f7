// The conversation as it is shown.

import { $, copy, el } from './dom.js';
import { render } from './markdown.js';

const slowest = 400; // ms between two drawings of an answer that grows

export class Log {
  #do;
  #views = new Map(); // by message id
  #follow = true; // the end stays in view

  /** actions: edit(id, text), again(id), watch(id), watchable(id), ask(text). */
  constructor(actions) {
    this.#do = actions;
    const log = $('log');
    log.addEventListener('scroll', () => {
      this.#follow = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
    });
  }

  /** show draws a conversation, or the welcome where there is none yet. */
  show(chat, model, examples) {
    this.#views.clear();
    this.#follow = true;
    if (chat.messages.length === 0) {
      $('log').replaceChildren(this.#welcome(model, examples));
      return;
    }
    $('log').replaceChildren(...chat.messages.map((m) => this.#message(m, model)));
    this.#toEnd();
  }

  /** append adds a message. */
  append(m, model) {
    $('log').querySelector('.welcome')?.remove();
    $('log').append(this.#message(m, model));
    this.#follow = true;
    this.#toEnd();
  }

  /** update draws an answer anew, soon: the longer that takes the less often. */
  update(m, now = false) {
    const view = this.#views.get(m.id);
    if (!view) return;
    if (now) {
      clearTimeout(view.timer);
      this.#fill(view, m);
    } else if (!view.timer) {
      view.timer = setTimeout(() => this.#fill(view, m), Math.min(slowest, 30 + 4 * view.took));
    }
  }

  #fill(view, m) {
    view.timer = 0;
    const began = performance.now();
    view.body.replaceChildren(render(m.content));
    if (m.reasoning && !view.reasoning.textContent) view.thinking.hidden = false;
    view.reasoning.textContent = m.reasoning ?? '';
    view.article.classList.toggle('busy', m.busy === true);
    if (m.busy) view.article.setAttribute('aria-busy', 'true');
    else view.article.removeAttribute('aria-busy');
    view.figures.textContent = m.note ?? '';
    view.watch.hidden = !this.#do.watchable(m.id);
    view.tools.hidden = m.busy === true;
    view.took = performance.now() - began;
    this.#toEnd();
  }

  #toEnd() {
    if (this.#follow) $('log').scrollTop = $('log').scrollHeight;
  }

  #message(m, model) {
    const button = (text, label, f) => el('button', { type: 'button', class: 'quiet', text, 'aria-label': label, on: { click: f } });
    if (m.role === 'user') {
      const body = el('p', { class: 'said', text: m.content });
      const article = el('article', { class: 'message user', 'aria-label': 'You' }, el('h2', { class: 'who', text: 'You' }), body);
      const tools = el('div', { class: 'actions' }, button('Edit', 'Edit and send again', () => this.#edit(article, body, tools, m)));
      article.append(tools);
      return article;
    }
    const view = { took: 0, timer: 0, body: el('div', { class: 'markdown' }), reasoning: el('div', { class: 'said' }), figures: el('p', { class: 'note' }) };
    view.thinking = el('details', { class: 'thinking', hidden: true }, el('summary', { text: 'Thinking' }), view.reasoning);
    view.watch = button('Watch', 'Watch the window of this answer', () => this.#do.watch(m.id));
    view.tools = el('div', { class: 'actions' }, view.watch,
      button('Copy', 'Copy this answer', () => copy(m.content, 'the answer')),
      button('Again', 'Answer again', () => this.#do.again(m.id)));
    view.article = el('article', { class: 'message assistant', 'aria-label': model }, el('h2', { class: 'who', text: model }),
      view.thinking, view.body, el('div', { class: 'foot' }, view.figures, view.tools));
    this.#views.set(m.id, view);
    this.#fill(view, m);
    return view.article;
  }

  #edit(article, body, tools, m) {
    const area = el('textarea', { 'aria-label': 'Edit the message', rows: Math.min(8, m.content.split('\n').length + 1) });
    area.value = m.content;
    const close = () => {
      form.replaceWith(body);
      tools.hidden = false;
      tools.querySelector('button').focus();
    };
    const form = el('form', { class: 'edit' }, area, el('div', { class: 'row' },
      el('button', { type: 'submit', class: 'primary', text: 'Send' }),
      el('button', { type: 'button', class: 'quiet', text: 'Cancel', on: { click: close } })));
    form.addEventListener('submit', (e) => {
      e.preventDefault();
      if (area.value.trim()) this.#do.edit(m.id, area.value.trim());
    });
    form.addEventListener('keydown', (e) => {
      if (e.key === 'Escape') close();
      else if (e.key === 'Enter' && !e.shiftKey && e.target === area && !e.isComposing) {
        e.preventDefault();
        form.requestSubmit();
      }
    });
    body.replaceWith(form);
    tools.hidden = true;
    area.focus();
  }

  #welcome(model, { title, text, list }) {
    return el('div', { class: 'welcome' }, el('h2', { text: title }), el('p', { text }),
      el('ul', {}, ...list.map((q) => el('li', {}, el('button', { type: 'button', class: 'example', text: q, on: { click: () => this.#do.ask(q) } })))));
  }
}

// Markdown of the model. What it writes is text: HTML in it is shown, not obeyed, and
// what marked makes of the rest goes through DOMPurify, which is the only code here
// that makes markup of text.

import { Marked } from '../third_party/marked/marked.esm.js';
import DOMPurify from '../third_party/dompurify/purify.es.mjs';
import { copy, el } from './dom.js';

const escaped = (s) => s.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

/** levels puts a text's headings under the page's, without gaps. */
function levels(tokens) {
  const depths = [...new Set(tokens.filter((t) => t.type === 'heading').map((t) => t.depth))].sort();
  for (const t of tokens) if (t.type === 'heading') t.depth = Math.min(6, 3 + depths.indexOf(t.depth));
}

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text, block }) => (block ? `<p>${escaped(text)}</p>` : escaped(text)),
    image: ({ text, href }) => escaped(`${text || 'image'}: ${href}`), // nothing is fetched
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
});

const allowed = {
  RETURN_DOM_FRAGMENT: true,
  ALLOWED_TAGS: ['p', 'br', 'hr', 'h3', 'h4', 'h5', 'h6', 'strong', 'em', 'del', 'code', 'pre', 'blockquote', 'ul', 'ol', 'li', 'a', 'table', 'thead', 'tbody', 'tr', 'th', 'td'],
  ALLOWED_ATTR: ['href', 'start', 'align', 'class'],
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
  ALLOW_DATA_ATTR: false,
};

/** render makes elements of a text. */
export function render(text) {
  const tokens = marked.lexer(text);
  levels(tokens);
  const fragment = DOMPurify.sanitize(marked.parser(tokens), allowed);
  for (const a of fragment.querySelectorAll('a')) {
    a.target = '_blank';
    a.rel = 'noopener noreferrer nofollow';
  }
  for (const pre of fragment.querySelectorAll('pre')) frame(pre);
  for (const table of fragment.querySelectorAll('table')) {
    const box = el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': 'Table' });
    table.replaceWith(box);
    box.append(table);
  }
  return fragment;
}

/** frame puts a code block's language and a button for copying above it. */
function frame(pre) {
  const code = pre.querySelector('code');
  const language = /language-([\w+#-]{1,20})/.exec(code?.className ?? '')?.[1] ?? 'text';
  const button = el('button', { type: 'button', class: 'quiet', text: 'Copy', on: { click: () => copy(pre.textContent, 'the code') } });
  const box = el('div', { class: 'code-block' }, el('div', { class: 'code-head' }, el('span', { text: language }), button));
  pre.replaceWith(box);
  pre.tabIndex = 0;
  box.append(pre);
}

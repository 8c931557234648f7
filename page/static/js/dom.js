// Elements are made here, of text and of other elements: never of markup.

export const $ = (id) => document.getElementById(id);

/** el makes an element: props are attributes, except text, and on: handlers by event. */
export function el(name, props = {}, ...children) {
  const e = document.createElement(name);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === 'text') e.textContent = value;
    else if (key === 'on') for (const [event, f] of Object.entries(value)) e.addEventListener(event, f);
    else e.setAttribute(key, value === true ? '' : value);
  }
  e.append(...children.filter((c) => c !== null && c !== undefined));
  return e;
}

const toastTime = 8000;

/** toast shows a message for a while; it is announced. */
export function toast(text, kind = 'error') {
  const close = el('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', text: '×' });
  const t = el('div', { class: `toast ${kind}` }, el('p', { text }), close);
  close.addEventListener('click', () => t.remove());
  const list = $('toasts');
  while (list.childElementCount > 2) list.firstElementChild.remove();
  list.append(t);
  setTimeout(() => t.remove(), toastTime);
}

/** copy puts text on the clipboard, also where a page is not on a secure origin. */
export async function copy(text, what) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else if (!copyBySelection(text)) throw new Error('refused');
    toast(`Copied ${what}`, 'done');
  } catch {
    toast(`The browser did not let ${what} be copied`);
  }
}

function copyBySelection(text) {
  const area = el('textarea', { class: 'hidden', readonly: true });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const ok = document.execCommand('copy');
  area.remove();
  focused?.focus();
  return ok;
}

/** save gives the reader a file. */
export function save(name, value) {
  const url = URL.createObjectURL(new Blob([JSON.stringify(value, null, 2)], { type: 'application/json' }));
  el('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** still reports whether the reader wants things not to move. */
export const still = () => matchMedia('(prefers-reduced-motion: reduce)').matches;

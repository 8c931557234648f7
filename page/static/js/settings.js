// The settings: what goes with every request.

import { $ } from './dom.js';
import { key } from './api.js';
import { keepSettings, settings } from './store.js';

const fields = ['mode', 'window', 'system', 'temperature', 'most-tokens', 'seed', 'schema'];
const schemes = [['', 'as the system has them'], ['light', 'light'], ['dark', 'dark']];

/** begin fills the fields in, and keeps what is changed. */
export function begin() {
  for (const id of fields) {
    const field = $(id);
    if (settings[id]) field.value = settings[id];
    field.addEventListener('input', () => {
      settings[id] = field.value;
      keepSettings();
    });
  }
  $('thinking').checked = settings.thinking ?? true;
  $('thinking').addEventListener('change', () => {
    settings.thinking = $('thinking').checked;
    keepSettings();
  });
  $('schema').addEventListener('input', checkSchema);
  checkSchema();
  $('key').addEventListener('change', () => key.set($('key').value.trim()));
  $('open-settings').addEventListener('click', () => {
    $('key').value = key.get();
    $('settings').showModal();
  });
  $('scheme').addEventListener('click', () => {
    const now = schemes.findIndex(([s]) => s === (document.documentElement.dataset.scheme ?? ''));
    setScheme(schemes[(now + 1) % schemes.length][0]);
  });
  setScheme(document.documentElement.dataset.scheme ?? '');
}

function setScheme(scheme) {
  if (scheme) document.documentElement.dataset.scheme = scheme;
  else delete document.documentElement.dataset.scheme;
  try {
    localStorage.setItem('windrow.scheme', scheme);
  } catch { /* it lasts as long as the page */ }
  $('scheme-label').textContent = `Colours: ${schemes.find(([s]) => s === scheme)[1]}`;
  $('scheme').title = $('scheme-label').textContent;
}

/** parsed is the schema, undefined where there is none. */
function parsed() {
  const text = $('schema').value.trim();
  return text ? JSON.parse(text) : undefined;
}

function checkSchema() {
  let note = 'Answers are held to it. Leave it empty for free text.';
  try {
    parsed();
    $('schema').removeAttribute('aria-invalid');
  } catch (e) {
    note = `This is no JSON yet: ${e.message}`;
    $('schema').setAttribute('aria-invalid', 'true');
  }
  $('schema-note').textContent = note;
}

/** knows says what the model has: thinking that can be switched. */
export function knows(props) {
  $('thinking-pick').hidden = !/enable_thinking/.test(props.chat_template ?? '');
}

/** body is a request for an answer to messages; it throws where the schema is no JSON. */
export function body(messages, steps) {
  const b = { stream: true, stream_options: { include_usage: true }, timings_per_token: true, messages: [] };
  if (steps) b.windrow = { steps: true };
  const system = $('system').value.trim();
  if (system) b.messages.push({ role: 'system', content: system });
  b.messages.push(...messages.map(({ role, content }) => ({ role, content })));
  if ($('mode').value) b.mode = $('mode').value;
  if ($('window').value) b.window = Number($('window').value);
  const number = (id, name) => {
    if ($(id).value !== '') b[name] = Number($(id).value);
  };
  number('temperature', 'temperature');
  number('most-tokens', 'max_completion_tokens');
  number('seed', 'seed');
  let schema;
  try {
    schema = parsed();
  } catch {
    throw new Error('The JSON schema in the settings is no JSON');
  }
  if (schema !== undefined) b.response_format = { type: 'json_schema', json_schema: { name: 'answer', schema } };
  // A form of the answer and thinking do not go together yet.
  if (!$('thinking-pick').hidden) b.chat_template_kwargs = { enable_thinking: $('thinking').checked && schema === undefined };
  return b;
}

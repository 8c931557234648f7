// What editors ask an ollama server before they use /v1: by ollama's own client.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Ollama } from 'ollama';
import { servers } from './cases.js';

const key = process.env.WINDROW_KEY;

test('version', async () => {
  const { version } = await new Ollama({ host: servers.tools }).version();
  assert.match(version, /^\d+\.\d+\.\d+$/);
});

test('list', async () => {
  const { models } = await new Ollama({ host: servers.tools }).list();
  assert.deepEqual(models.map((m) => m.name), ['tiny-tools']);
});

test('show', async () => {
  const { capabilities, template } = await new Ollama({ host: servers.tools }).show({ model: 'tiny-tools' });
  assert.deepEqual(capabilities, ['completion', 'tools', 'thinking']);
  assert.match(template, /tool_call/);
  await assert.rejects(new Ollama({ host: servers.binary }).show({ model: 'another' }), /another/);
});

test('keys', async () => {
  await assert.rejects(new Ollama({ host: servers.locked }).list(), { status_code: 401 });
  const headers = { Authorization: `Bearer ${key}` };
  assert.equal((await new Ollama({ host: servers.locked, headers }).list()).models.length, 1);
});

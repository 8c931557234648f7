// What cases do not have: the models, and helpers of clients.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';
import { servers } from './cases.js';

const client = new OpenAI({ baseURL: servers.binary + '/v1', apiKey: 'any', maxRetries: 0 });

test('models', async () => {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((m) => m.id), ['tiny-gsm']);
  assert.equal((await client.models.retrieve('tiny-gsm')).object, 'model');
});

test('the stream helper gives what create does', async () => {
  const body = { model: 'tiny-gsm', seed: 5, temperature: 0.8, messages: [{ role: 'user', content: 'A hall has 5 rows with 9 chairs in each row. How many chairs are there?' }] };
  const whole = await client.chat.completions.create(body);
  const streamed = await client.chat.completions.stream(body).finalChatCompletion();
  assert.equal(streamed.choices[0].message.content, whole.choices[0].message.content);
  assert.equal(streamed.choices[0].finish_reason, whole.choices[0].finish_reason);
});

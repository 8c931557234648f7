// Every case of the details through every client: npm's part of TestDetails, which
// starts the servers and gives their addresses in WINDROW_SERVERS.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { CannotSend, attempt, details } from './cases.js';
import { openai } from './adapters/openai.js';
import { anthropic } from './adapters/anthropic.js';
import { ai } from './adapters/ai.js';
import { langchain } from './adapters/langchain.js';

const adapters = [openai, ai, langchain, anthropic];
const marks = {};

for (const adapter of adapters) {
  marks[adapter.name] = {};
  test(adapter.name, async (t) => {
    for (const [i, c] of details.cases.entries()) {
      if (c.api && c.api !== adapter.api && !adapter.also?.includes(c.api)) continue;
      await t.test(`${c.detail}/${i}`, { timeout: 120_000 }, async (t) => {
        let wrong;
        try {
          wrong = await attempt(adapter, c, false);
        } catch (e) {
          if (!(e instanceof CannotSend)) throw e;
          t.diagnostic(`${adapter.name} does not send ${e.message}`);
          return;
        }
        assert.equal(wrong, '');
        // What throws here was noticed, too.
        const spoiled = await attempt(adapter, c, true).catch((e) => String(e));
        t.diagnostic(`spoiled: ${spoiled}`);
        const mark = spoiled ? '✓' : '–';
        if (mark === '✓' || !marks[adapter.name][c.detail]) marks[adapter.name][c.detail] = mark;
      });
    }
  });
}

after(() => {
  const path = process.env.WINDROW_CELLS;
  if (path) writeFileSync(path, JSON.stringify({ names: adapters.map((a) => a.name), marks }));
});

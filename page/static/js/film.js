// A film is the passes of one answer, as the server told them: docs/page.md.

const mostSteps = 5000;

export class Film {
  steps = [];
  text = ''; // all committed text
  offsets = []; // where in it each step's text begins
  missed = 0;
  ended = false;
  began = 0; // when it was asked for
  first = 0; // ms until the first token
  figures = null; // the server's, once the answer has ended

  /** add takes the windrow member of a chunk. */
  add({ steps, dropped, rest }) {
    this.missed += dropped;
    for (const step of steps) {
      this.steps.push(step);
      this.offsets.push(this.text.length);
      this.text += step.text;
    }
    if (this.steps.length > mostSteps) {
      const n = this.steps.length - mostSteps;
      this.missed += n;
      this.steps.splice(0, n);
      this.offsets.splice(0, n);
    }
    if (rest) this.text += rest;
  }

  get length() {
    return this.steps.length;
  }

  /** before is the text that was committed before a step; all of it behind the last. */
  before(i) {
    return i < this.length ? this.text.slice(0, this.offsets[i]) : this.text;
  }
}

/** sample shows what a pass looks like, before there is one. */
export const sample = new Film();
sample.add({
  dropped: 0,
  steps: [
    { forward: 0, tokens: 4, rows: 4, ms: 0, text: 'A window of', slots: [], next: [] },
    {
      forward: 1, tokens: 3, rows: 9, ms: 0, text: '', pass: { sequences: 1 },
      slots: [
        { state: 'committed', text: ' tokens' }, { state: 'accepted', text: ' at' }, { state: 'accepted', text: ' once' },
        ...[0.02, 0.11, 0.34, 0.38, 0.92, 2.4].map((entropy) => ({ state: 'mask', entropy })),
      ],
      next: [{ slot: 0, state: 'causal', text: ',' }, ...[' row', ' by', ' row'].map((text, i) => ({ slot: i + 1, state: 'draft', text }))],
    },
  ],
});

/** columns are a step's slots, with what the pass put there for the next one. */
export function columns(step) {
  const list = step.slots.map((slot) => ({ slot, next: null }));
  for (const fill of step.next) {
    const at = step.tokens + fill.slot;
    while (list.length <= at) list.push({ slot: null, next: null });
    list[at].next = fill;
  }
  return list;
}

/** counted sums up steps. */
export function counted(steps) {
  const sum = { forwards: steps.length, tokens: 0, rows: 0, drafts: 0, accepted: 0 };
  for (const s of steps) {
    sum.tokens += s.tokens;
    sum.rows += s.rows;
    for (const slot of s.slots) {
      if (slot.state === 'accepted') sum.accepted++;
      if (slot.state === 'accepted' || slot.state === 'struck') sum.drafts++;
    }
  }
  return sum;
}

const quoted = (list) => list.map((s) => `“${(s.text ?? '').trim() || 'space'}”`).join(', ');

/** told says a step in words. */
export function told(film, i) {
  if (i >= film.length) return film.ended ? `The end, after ${film.length} passes: ${film.text}` : 'Waiting for the next pass';
  const step = film.steps[i];
  const of = (...states) => step.slots.filter((s) => states.includes(s.state));
  const parts = [`Pass ${step.forward}, ${step.rows} rows`];
  const solid = of('committed', 'accepted');
  if (solid.length) parts.push(`committed ${quoted(solid)}`);
  if (of('accepted').length) parts.push(`${of('accepted').length} of them drafts`);
  if (of('struck').length) parts.push(`struck ${quoted(of('struck'))}`);
  if (of('kept').length) parts.push(`filled and waiting ${quoted(of('kept'))}`);
  const masks = of('mask');
  const known = masks.map((m) => m.entropy).filter((h) => h !== undefined);
  if (masks.length) parts.push(`${masks.length} masks` + (known.length ? `, entropy ${Math.min(...known).toFixed(2)} to ${Math.max(...known).toFixed(2)} nats` : ''));
  if (step.next.length) parts.push(`for the next pass ${quoted(step.next)}`);
  return parts.join('; ') + '.';
}

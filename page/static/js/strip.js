// The strip chart: rows and committed tokens of each pass.

import { $ } from './dom.js';

const most = 240; // passes at a time
const least = 24; // places that are there from the beginning
const barWidth = 10, gap = 2;

/** draw shows the passes around one of them. Returns the first and how many. */
export function draw(film, at) {
  const n = Math.min(film.length, most);
  const first = Math.max(0, Math.min(at - most / 2, film.length - n)) | 0;
  const shown = film.steps.slice(first, first + n);
  const top = Math.max(1, ...shown.map((s) => s.rows));
  const slots = Math.max(n, least);
  const width = slots * (barWidth + gap);
  const chart = $('chart');
  chart.setAttribute('viewBox', `0 0 ${width} 100`);
  const bars = (height) => shown.map((s, i) => {
    const h = (100 * height(s)) / top;
    return h ? `M${i * (barWidth + gap)} 100v${-h}h${barWidth}v${h}z` : '';
  }).join('');
  chart.querySelector('.rows').setAttribute('d', bars((s) => s.rows));
  chart.querySelector('.took').setAttribute('d', bars((s) => s.tokens));
  const now = chart.querySelector('.now');
  now.setAttribute('x', (at - first) * (barWidth + gap) - gap / 2);
  now.setAttribute('y', 0);
  now.setAttribute('width', at < film.length ? barWidth + gap : 0);
  now.setAttribute('height', 100);
  $('most').textContent = `up to ${top}`;
  $('seek').style.width = `${(100 * n) / slots}%`;
  return { first, slots };
}

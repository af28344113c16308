import { describe, expect, test } from 'vitest';
import { BUCKETS } from '../../../src/core/lag/buckets.ts';
import { exactly, maxOf, sumOf, uniformUpTo } from '../../../src/core/lag/distribution.ts';
import { type Density, quantileOf } from '../../../src/core/lag/index.ts';
import { read, tableUnder } from '../../docs/markdown.ts';
import { addScaled } from './shapes.ts';

const PAGE = 'docs/concepts.md';

const plane: Density = new Float64Array(BUCKETS);
addScaled(plane, exactly(0.03), 0.9);
addScaled(plane, uniformUpTo(4), 0.1);
const proxy = uniformUpTo(1);
const gateway = uniformUpTo(10);
const slower = maxOf([proxy, gateway]);

describe('the example of the combined lag', () => {
  test('its table is what the core computes', () => {
    const parts = [plane, proxy, gateway, slower, sumOf(plane, slower)];
    const shown = (seconds: number) => `${seconds < 0.1 ? seconds.toFixed(2) : seconds.toFixed(1)}s`;
    const computed = parts.map((part) =>
      [50, 90, 99].map((percentile) => shown(quantileOf(part, percentile))),
    );
    const table = tableUnder(PAGE, 'How the lag is put together');
    const written = table.map((row) =>
      ['p50', 'p90', 'p99'].map((column) => row[column]?.replaceAll('*', '')),
    );
    expect(written).toEqual(computed);
  });

  test('percentiles added up are what the text says', () => {
    const added = [plane, proxy, gateway].reduce((sum, part) => sum + quantileOf(part, 99), 0);
    expect(read(PAGE)).toContain(`added up would be ${added.toFixed(1)} s`);
  });
});

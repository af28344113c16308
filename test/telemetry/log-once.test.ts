import { expect, it } from 'vitest';
import { LogOnce } from '../../src/telemetry/log-once.ts';
import { createLogger } from '../../src/telemetry/logs.ts';

it('logs each kind of trouble of a subject once, and its end', () => {
  const lines: { readonly level: string; readonly msg: string; readonly pod?: string }[] = [];
  const once = new LogOnce(createLogger('info', { write: (line) => void lines.push(JSON.parse(line)) }));
  once.over('pods', {}, 'never in trouble');
  once.warn('pods', { pod: 'a', reason: 'Throttled' }, 'fails');
  once.warn('pods', { pod: 'b', reason: 'Throttled' }, 'fails');
  once.info('nodes', { reason: 'Throttled' }, 'nodes, too');
  once.error('pods', { reason: 'Forbidden' }, 'fails');
  once.error('pods', { reason: 'Forbidden' }, 'fails for good');
  once.over('pods', {}, 'over');
  once.over('pods', {}, 'over');
  once.error('pods', { reason: 'Forbidden' }, 'fails for good');
  expect(lines.map(({ level, msg, pod }) => [level, msg, pod].filter(Boolean).join(' '))).toEqual([
    'warn fails a',
    'info nodes, too',
    'error fails',
    'error fails for good',
    'info over',
    'error fails for good',
  ]);
});

import { describe, expect, it } from 'vitest';
import { linger } from './linger.ts';

describe('linger prove refuses before it asks anything', () => {
  it.each([
    ['to send nothing', ['--urls-only'], '--urls-only: expected a --url'],
    [
      'two gateways of one name',
      ['--url', 'http://shop.example/a', '--url', 'http://shop.example/b'],
      '--url: expected different names, got "shop.example" twice',
    ],
    [
      'more ways than a sender takes',
      [
        '--url-from',
        'cluster',
        '--url',
        Array.from({ length: 15 }, (_, index) => `http://${index}.example`).join(','),
      ],
      '--url: expected at most 14 from the cluster, got 15',
    ],
    ['a timeout that senders refuse', ['--timeout', '90s'], '--timeout: expected 10ms to 60s'],
    ['no timeout', ['--timeout', '0'], '--timeout: expected 10ms to 60s'],
    ['a header that HTTP cannot carry', ['--header', 'X-Name: →'], '--header: expected NAME:VALUE'],
  ])('%s', async (_, flags, problem) => {
    const { code, stderr } = await linger(['prove', 'deployment/web', '--kubeconfig', '/none', ...flags]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(problem)]);
  });
});

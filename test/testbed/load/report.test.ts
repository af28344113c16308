import { describe, expect, it } from 'vitest';
import { parseConntrack } from './conntrack.ts';
import type { PodLife } from './lives.ts';
import { sourceKey, sources, usablePorts } from './ports.ts';
import { type Backend, causeOf, type LossCause } from './report.ts';

describe('the source ports of load clients', () => {
  it('are never those that Linux hands out itself', () => {
    expect(usablePorts.filter((port) => port < 1_024 || (port >= 32_768 && port <= 60_999))).toEqual([]);
  });

  it('come once each, without those that are taken', () => {
    const taken = new Set(['10.0.0.1:1024', '10.0.0.2:1026']);
    const all = [...sources(['10.0.0.1', '10.0.0.2'], taken)].map(sourceKey);
    expect(new Set(all).size).toBe(all.length);
    expect(all.length).toBe(2 * usablePorts.length - taken.size);
    expect(all.filter((key) => taken.has(key))).toEqual([]);
  });
});

describe('a line of conntrack', () => {
  it.each([
    [
      '    [NEW] tcp      6 120 SYN_SENT src=10.202.255.16 dst=10.201.152.3 sport=1024 dport=80 [UNREPLIED] src=10.202.0.7 dst=10.202.255.16 sport=8080 dport=1024',
      { source: '10.202.255.16:1024', destination: '10.201.152.3:80', backend: '10.202.0.7:8080' },
    ],
    [
      'tcp      6 86393 ESTABLISHED src=127.0.0.1 dst=127.0.0.1 sport=46152 dport=2379 src=127.0.0.1 dst=127.0.0.1 sport=2379 dport=46152 [ASSURED] mark=0 use=1',
      { source: '127.0.0.1:46152', destination: '127.0.0.1:2379', backend: '127.0.0.1:2379' },
    ],
    ['conntrack v1.4.7 (conntrack-tools): 3 flow events have been shown.', undefined],
    ['', undefined],
  ])('%s', (line, expected) => {
    const text = ({ address, port }: { address: string; port: number }) => `${address}:${port}`;
    const parsed = parseConntrack(line);
    expect(
      parsed && {
        source: text(parsed.source),
        destination: text(parsed.destination),
        backend: text(parsed.backend),
      },
    ).toEqual(expected);
  });
});

describe('why a request was lost', () => {
  const endpoint: Backend = { address: '10.202.0.7', port: 8080 };
  const loss = { openedAt: 1_000, failedAt: 1_500, kind: 'refused', detail: '', source: '' } as const;
  const life = (events: Partial<PodLife>): PodLife => ({
    pod: 'a',
    uid: 'u',
    address: '10.202.0.7',
    deletedAt: undefined,
    sigtermAt: undefined,
    goneAt: undefined,
    ...events,
  });
  const cases: [string, Backend, PodLife | undefined, LossCause][] = [
    ['nobody knows where it went', undefined, undefined, 'unknown'],
    ['it went nowhere', 'none', undefined, 'noEndpoint'],
    ['it went to an address of no known pod', endpoint, undefined, 'unknownPod'],
    ['the pod lives', endpoint, life({}), 'alive'],
    ['the pod was deleted afterwards', endpoint, life({ deletedAt: 1_501, sigtermAt: 1_600 }), 'alive'],
    ['the pod was deleted, without a SIGTERM so far', endpoint, life({ deletedAt: 900 }), 'terminating'],
    [
      'the pod was deleted before, stopped after',
      endpoint,
      life({ deletedAt: 900, sigtermAt: 1_501 }),
      'terminating',
    ],
    ['SIGTERM came in the middle', endpoint, life({ deletedAt: 1_100, sigtermAt: 1_200 }), 'cutBySigterm'],
    ['SIGTERM had come', endpoint, life({ deletedAt: 900, sigtermAt: 1_000 }), 'afterSigterm'],
    ['SIGTERM without a deletion: a restart', endpoint, life({ sigtermAt: 900 }), 'afterSigterm'],
  ];
  it.each(cases)('%s', (_, backend, pod, cause) => {
    expect(causeOf(loss, backend, pod)).toBe(cause);
  });
});

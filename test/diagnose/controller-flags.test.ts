import { describe, expect, it } from 'vitest';
import { controllerFlags, DEFAULT_FLAGS } from '../../src/diagnose/controller-metrics.ts';

const WORKERS = DEFAULT_FLAGS.workers;
const NO_BATCH = DEFAULT_FLAGS.batchSeconds;

describe('a command line', () => {
  it.each([
    ['nothing', [], {}],
    ['only the program', ['kube-controller-manager'], {}],
    ['an equals sign', ['kube-controller-manager', '--kube-api-qps=100'], { qps: 100 }],
    ['two words', ['--kube-api-qps', '100', '--kube-api-burst', '120'], { qps: 100, burst: 120 }],
    ['one dash', ['-kube-api-qps=100'], { qps: 100 }],
    ['a fraction', ['--kube-api-qps=0.5'], { qps: 0.5 }],
    ['the last of two counts', ['--kube-api-qps=100', '--kube-api-qps=300'], { qps: 300 }],
    ['a shell', ['sh', '-c', 'kube-controller-manager --kube-api-qps=100 --v=2'], { qps: 100 }],
    ['workers', ['--concurrent-endpoint-syncs=30'], { workers: { ...WORKERS, endpoint: 30 } }],
    [
      'slice workers',
      ['--concurrent-service-endpoint-syncs=30'],
      { workers: { ...WORKERS, endpoint_slice: 30 } },
    ],
    [
      'mirroring workers',
      ['--mirroring-concurrent-service-endpoint-syncs=30'],
      { workers: { ...WORKERS, endpoint_slice_mirroring: 30 } },
    ],
    [
      'a batch period',
      ['--endpoint-updates-batch-period=500ms'],
      { batchSeconds: { ...NO_BATCH, endpoint: 0.5 } },
    ],
    [
      'a batch period of slices',
      ['--endpointslice-updates-batch-period=1m'],
      { batchSeconds: { ...NO_BATCH, endpoint_slice: 60 } },
    ],
    ['a batch period of nothing', ['--endpoint-updates-batch-period=0s'], {}],
    ['what is no value', ['--kube-api-qps=many', '--kube-api-burst='], {}],
    ['no limit at all', ['--kube-api-qps=-1'], { qps: Number.POSITIVE_INFINITY }],
  ])('%s', (_what, words, expected) => {
    expect(controllerFlags(words)).toEqual({ ...DEFAULT_FLAGS, ...expected, known: true });
  });
});

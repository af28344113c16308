import { describe, expect, it } from 'vitest';
import { priorityFacts } from '../../src/diagnose/facts.ts';

/** As Kubernetes 1.36.3 prints it. */
const dump = (waiting: number, rejected: number, timedOut: number) => `\
PriorityLevelName, ActiveQueues, IsIdle, IsQuiescing, WaitingRequests, ExecutingRequests, DispatchedRequests, RejectedRequests, TimedoutRequests, CancelledRequests
exempt,            0,            false,  false,       0,               1,                 6061,               0,                0,                0
workload-high,     0,            true,   false,       ${waiting},               0,                 13668,              ${rejected},                ${timedOut},                0
workload-low,      0,            true,   false,       9,               0,                 0,                  9,                9,                0
`;

describe('what the controller-manager’s priority level says', () => {
  it('waiting at the end, the others since the beginning', () => {
    expect(priorityFacts(dump(9, 5, 1), dump(3, 7, 2))).toEqual({
      level: 'workload-high',
      waiting: 3,
      rejected: 2,
      timedOut: 1,
    });
  });

  it('another API server that answers the second time has other counts', () => {
    expect(priorityFacts(dump(0, 50, 10), dump(0, 7, 2))).toMatchObject({ rejected: 0, timedOut: 0 });
  });

  it.each([
    ['nothing', ''],
    ['a page of something else', '<html>\n<body>'],
    ['a cluster that has no such level', dump(0, 0, 0).replace('workload-high', 'mine')],
  ])('%s: nothing', (_what, text) => {
    expect(priorityFacts(text, dump(0, 0, 0))).toBeUndefined();
    expect(priorityFacts(dump(0, 0, 0), text)).toBeUndefined();
  });

  it('a version that has fewer columns', () => {
    const text = 'PriorityLevelName, WaitingRequests\nworkload-high, 4\n';
    expect(priorityFacts(text, text)).toEqual({
      level: 'workload-high',
      waiting: 4,
      rejected: 0,
      timedOut: 0,
    });
  });
});

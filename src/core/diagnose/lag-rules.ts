import { count, span } from './amounts.ts';
import { CONTROLLER_METRICS, type Facts, type StageFacts } from './facts.ts';
import { type Finding, finding } from './findings.ts';
import { SLOW_SECONDS } from './thresholds.ts';

/** Rules about what was measured, and about what was not seen. */

export function slowWithdrawals(facts: Facts): Finding | undefined {
  const slow = slowStages(facts);
  if (slow.length === 0) return undefined;
  return finding(
    'SlowWithdrawals',
    `Endpoints are withdrawn late: ${slow.map(summaryOf).join('; ')}.`,
    slow.map(evidenceOf).map((text) => `${facts.lag?.from}: ${text}`),
  );
}

export function slowBefore(facts: Facts): Finding | undefined {
  if (slowStages(facts).length > 0) return undefined;
  const slow = (facts.lag?.life ?? []).filter(({ p99 = 0 }) => p99 >= SLOW_SECONDS);
  if (slow.length === 0) return undefined;
  const said = slow.map(({ stage, samples, p50 = 0, p99 = 0 }) => {
    return `${stage}: p99 ${span(p99)}, p50 ${span(p50)} of ${count(samples, 'removal')}`;
  });
  return finding(
    'SlowBefore',
    'Not now, but since this Linger was started endpoints have been withdrawn late. Waits follow that.',
    said.map((text) => `${facts.lag?.from}: ${text}`),
    ['Run this again while linger_removals_oldest_unresolved_seconds is high.'],
  );
}

/** @param causes what else was found, and would explain it */
export function lagUnexplained(facts: Facts, causes: readonly Finding[]): Finding | undefined {
  const slow = slowStages(facts);
  const explained = causes.some(({ code, severity }) => severity !== 'info' && code !== 'SlowWithdrawals');
  // Without the metrics nothing can be said of the controllers, and ControllerNotSeen says that.
  if (slow.length === 0 || explained || facts.controller?.seconds === undefined) return undefined;
  const batch = facts.flags.known
    ? []
    : [
        'Look at the flags: --endpoint-updates-batch-period and --endpointslice-updates-batch-period delay on purpose.',
      ];
  return finding(
    'LagUnexplained',
    'Endpoints are withdrawn late, but the queues of the controllers are short, their client is not throttled and their workers are not busy. What is slow lies before the queues or behind the write.',
    slow.map(evidenceOf),
    [
      ...batch,
      'Before the queues: the controller-manager’s own watch (its log, "watch of *v1.Pod closed"; its CPU), and its pod stage, which matches each pod against all Services of its namespace and has no metric.',
      'Behind the write: the watch that measured. Its API server may be behind (apiserver_watch_cache_read_wait_seconds, CPU).',
      'Run it again while it happens.',
    ],
  );
}

export function controllerNotSeen(facts: Facts): Finding | undefined {
  if (facts.controller !== undefined) return undefined;
  const failed = facts.looks.filter(({ what, seen }) => what === CONTROLLER_METRICS && !seen);
  return finding(
    'ControllerNotSeen',
    'The controller-manager’s metrics could not be read, so a throttled client, long queues and busy workers cannot be told apart.',
    failed.map(({ text }) => text),
    [...new Set(failed.flatMap(({ remedy }) => (remedy === undefined ? [] : [remedy])))],
  );
}

/** @param found everything that the other rules say */
export function nothingWrong(facts: Facts, found: readonly Finding[]): Finding | undefined {
  const measured = (facts.lag?.stages ?? []).some(({ samples }) => samples > 0);
  if (found.some(({ severity }) => severity !== 'info')) return undefined;
  if (facts.controller === undefined && !measured) return undefined;
  const lags = (facts.lag?.stages ?? []).filter(({ samples }) => samples > 0).map(summaryOf);
  const said = lags.length > 0 ? ` Measured: ${lags.join('; ')}.` : ' No removal was measured meanwhile.';
  return finding(
    'NothingWrong',
    `Nothing that delays withdrawals was seen.${said}`,
    facts.looks.filter(({ seen }) => seen).map(({ what, text }) => `${what}: ${text}`),
    ['If endpoints are late at times, run this again while they are.'],
  );
}

/** Late now: of what ended meanwhile, or of what still waits. */
function slowStages({ lag }: Facts): readonly StageFacts[] {
  return (lag?.stages ?? []).filter(
    ({ p99 = 0, oldestSeconds = 0 }) => p99 >= SLOW_SECONDS || oldestSeconds >= SLOW_SECONDS,
  );
}

function summaryOf({ stage, samples, p99, waiting, oldestSeconds }: StageFacts): string {
  const ended =
    p99 === undefined ? 'no removal has ended' : `p99 ${span(p99)} of ${count(samples, 'removal')}`;
  const open =
    waiting === 0
      ? ''
      : `, ${waiting} still waiting${oldestSeconds === undefined ? '' : `, the oldest for ${span(oldestSeconds)}`}`;
  return `${stage}: ${ended}${open}`;
}

function evidenceOf(facts: StageFacts): string {
  const { p50 } = facts;
  return p50 === undefined ? summaryOf(facts) : `${summaryOf(facts)}, p50 ${span(p50)}`;
}

import { CONTROL_PLANE } from '../lag/index.ts';
import type { Exposure } from './decide.ts';
import { BUILT_IN } from './policy-values.ts';
import { spanInWords } from './wait.ts';

/**
 * What a wait or an exposure is based on: removals measured in this cluster, a lag that a policy or a DiscoveryConsumer
 * declares, or `wait.initial` where not enough is known.
 */
export const BASES = ['measured', 'declared', 'assumed'] as const;
export type Basis = (typeof BASES)[number];

export interface Evidence {
  readonly basis: Basis;
  /** How many removals have been measured, whether or not they suffice; 0 where the number is declared. */
  readonly removals: number;
  /** How many seconds back they reach. */
  readonly historySeconds: number;
  /** `measured: 812 removals over 5 d`, `declared by gateway`, `assumed: nothing is measured yet, and 30s is built in`. */
  readonly text: string;
}

/**
 * The evidence for the lag and the wait of a pod. Each output that shows one of these numbers shows this beside it: the
 * `text`, or only the `basis` where space is short.
 */
export function evidenceOf({ policy, choice, lag }: Pick<Exposure, 'policy' | 'choice' | 'lag'>): Evidence {
  const { why, origin } = choice;
  const nothing = { removals: 0, historySeconds: 0 };
  if (why === 'fixed') return { basis: 'declared', ...nothing, text: `declared by ${origin}` };
  const { samples: removals, historySeconds } = lag;
  const counting = lag.parts.filter(({ enough }) => enough);
  const declarers = counting.filter(({ source }) => source === 'declared').map(({ name }) => name);
  const unknown = lag.parts.filter(({ enough }) => !enough).map(({ name }) => name);
  const without = unknown.length === 0 ? '' : `; too little is known of ${unknown.join(', ')}`;
  if (why === 'declared')
    return { basis: 'declared', ...nothing, text: `declared by ${declarers.join(', ')}${without}` };
  if (why !== 'initial') {
    const measured = counting.filter(({ source }) => source === 'measured');
    const least = {
      removals: Math.min(...measured.map(({ samples }) => samples)),
      historySeconds: Math.min(...measured.map((part) => part.historySeconds)),
    };
    const beside = declarers.length === 0 ? '' : `; ${declarers.join(', ')} declared`;
    const extent = `${least.removals} removals over ${spanInWords(least.historySeconds)}`;
    return { basis: 'measured', ...least, text: `measured: ${extent}${beside}${without}` };
  }
  const { value: initial, origin: whose } = policy['wait.initial'];
  const by = whose === BUILT_IN ? 'is built in' : `is wait.initial of ${whose}`;
  const extent = `${removals} removals over ${spanInWords(historySeconds)}`;
  const lacking = !unknown.includes(CONTROL_PLANE)
    ? `too little is known of ${unknown.join(', ')}`
    : removals > 0
      ? `${extent} are too few`
      : 'nothing is measured yet';
  return { basis: 'assumed', removals, historySeconds, text: `assumed: ${lacking}, and ${initial}s ${by}` };
}

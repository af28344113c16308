import type { LoadReport } from '../../testbed/load/load.ts';
import type { Outcome } from './traffic.ts';

/** One stand's run, for the table of losses. */
export interface Run {
  readonly hook: string;
  readonly application: 'exit' | 'drain';
  readonly rollouts: number;
  readonly outcome: Outcome;
}

export const LOSSES_HEAD = [
  'hook',
  'application at SIGTERM',
  'client',
  'updates',
  'requests',
  'lost',
  'kinds',
  'causes',
];

const APPLICATIONS = { exit: 'exits at once', drain: 'drains' };

export function lossRows({ hook, application, rollouts, outcome }: Run): readonly string[][] {
  const row = (client: string, { total, lost, byKind, byCause }: LoadReport) => {
    const cells = [hook, APPLICATIONS[application], client, rollouts, total, lost];
    return [...cells.map(String), countsInWords(byKind), countsInWords(byCause)];
  };
  return [row('new connections', outcome.newConnections), row('keep-alive', outcome.keepAlive)];
}

function countsInWords(counts: Readonly<Record<string, number>>): string {
  const words = Object.entries(counts).map(([name, count]) => `${count} ${name}`);
  return words.join(', ') || '–';
}

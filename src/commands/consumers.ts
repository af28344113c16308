import { stringify } from 'yaml';
import { CONDITIONS } from '../core/catalog/conditions.ts';
import { LingerError } from '../core/catalog/errors.ts';
import type { ToldConsumers } from '../core/consumers/told.ts';
import type { ConsumerView } from '../core/consumers/view.ts';
import { formatDuration } from '../core/schema/duration.ts';
import { renderConsumers } from '../render/consumers.ts';
import type { ConsumersSettings, OutputFormat } from '../settings/commands.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';
import { readToldConsumers } from '../sources/cluster-once.ts';
import { connectAsKubectl, nameOf } from './as-kubectl.ts';
import type { Terminal } from './terminal.ts';

const FINDINGS_EXIT_CODE = 3;
const ANY = 'any';

export interface ConsumersContext extends Terminal {
  readonly kube: KubeEnvironment;
  /** Whether somebody could answer the question of a credential plugin. */
  readonly interactive: boolean;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** One object; somebody is waiting. */
const ANSWER_WITHIN_MS = 30_000;

/** The leader tells at least every 5 minutes; twice that, and some for a change of leader. */
const OLD_SECONDS = 900;

/**
 * `linger consumers`: what the leader of a running Linger has measured of each consumer.
 * @returns the exit code: 3 when a condition has one of the reasons of --fail-on
 * @throws LingerError, ConnectionError
 */
export async function consumers(settings: ConsumersSettings, context: ConsumersContext): Promise<number> {
  const { failOn, lingerNamespace, output } = settings;
  checkReasons(failOn);
  const { kube, interactive, now, print, warn } = context;
  const connection = await connectAsKubectl(settings, kube, interactive);
  // A plugin's own words, where it gives none.
  await connection.credentials();
  const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const told = await readToldConsumers(connection, lingerNamespace, signal, nameOf(connection));
  const age = now() - told.asOf;
  if (age > OLD_SECONDS)
    warn(
      `this was told ${formatDuration(Math.round(age))} ago: no replica of Linger seems to lead there now\n`,
    );
  print(RENDERERS[output](told, now()));
  return told.consumers.some((view) => isAskedFor(view, failOn)) ? FINDINGS_EXIT_CODE : 0;
}

const RENDERERS: Readonly<Record<OutputFormat, (told: ToldConsumers, now: number) => string>> = {
  table: renderConsumers,
  json: (told) => `${JSON.stringify(told, undefined, 2)}\n`,
  yaml: (told) => stringify(told),
};

/** A misspelt reason would never be found, and the check that was meant would pass for ever. */
function checkReasons(reasons: readonly string[] = []): void {
  const known = [ANY, ...Object.keys(CONDITIONS)];
  const unknown = reasons.find((reason) => !known.includes(reason));
  if (unknown === undefined) return;
  throw new LingerError(
    'settings-invalid',
    `--fail-on: expected some of ${known.join(', ')}, got "${unknown}"`,
  );
}

/** `any` is what cannot be relied on: where it is only too early to say, nothing fails. */
function isAskedFor({ condition }: ConsumerView, reasons: readonly string[] = []): boolean {
  return reasons.includes(condition.reason) || (condition.status === 'False' && reasons.includes(ANY));
}

import type { ProveReport } from '../../src/prove/index.ts';
import type { GatewayLoss, PollingGateway } from '../../test/cluster-suite/support/polling-gateway.ts';
import type { Released } from '../../test/scenarios/hold/setting.ts';
import { table } from '../../test/scenarios/table.ts';
import type { PodLife } from '../../test/testbed/load/lives.ts';
import { causeOf } from '../../test/testbed/load/report.ts';
import { round } from '../statistics.ts';

/** A pod that went. Instants in milliseconds since the epoch; NaN: not known. */
export interface Gone {
  readonly name: string;
  readonly wait: number | 'Hold';
  readonly life: PodLife;
  readonly deletedAt: number;
  /** From the last of slices and Endpoints. */
  readonly withdrawnAt: number;
  /** By the polling gateway. */
  readonly letGoAt: number;
  /** By the application's own log. */
  readonly sigtermAt: number;
  readonly goneAt: number;
}

export function goneIn(
  { pods }: ProveReport,
  lives: readonly PodLife[],
  gateway: Pick<PollingGateway, 'letGoOf'>,
): readonly Gone[] {
  return pods.flatMap(({ name, wait, deletedAt, withdrawnAt, withdrawnFromEndpointsAt, goneAt }) => {
    const life = lives.find(({ pod }) => pod === name);
    if (life === undefined || deletedAt === null) return [];
    const at = (text: string | null) => Date.parse(text ?? '');
    return [
      {
        name,
        wait,
        life,
        deletedAt: at(deletedAt),
        goneAt: at(goneAt),
        withdrawnAt: Math.max(at(withdrawnAt), at(withdrawnFromEndpointsAt)),
        letGoAt: gateway.letGoOf(life.address ?? '') ?? Number.NaN,
        sigtermAt: life.sigtermAt ?? Number.NaN,
      },
    ];
  });
}

export const since = (from: number, to: number): number => round((to - from) / 1_000, 2);

/** `0.1 s`, `0.1 to 9.8 s`. */
export function spanned(values: readonly number[], digits = 1): string {
  const known = values.filter(Number.isFinite);
  if (known.length === 0) return '–';
  const [least, most] = [Math.min(...known), Math.max(...known)].map((each) => each.toFixed(digits));
  return least === most ? `${least} s` : `${least} to ${most} s`;
}

export interface LossyRun {
  readonly report: ProveReport;
  readonly gone: readonly Gone[];
  readonly losses: readonly GatewayLoss[];
  /** What Linger says of each pod that it held. */
  readonly released: readonly Released[];
  /** The longest turn of the process that is the gateway, and the load of this machine. */
  readonly stalledMs: number;
  readonly load: number;
}

type Rows = readonly (readonly (string | number)[])[];

const POD_HEAD = ['pod', 'waits by', 'withdrawn', 'dropped by edge', 'released by Linger', 'SIGTERM', 'gone'];
const LOSS_HEAD = [
  'lost',
  'through',
  'kind',
  'cause',
  'took',
  'sent after SIGTERM',
  'after edge dropped it',
  'after gone',
];

/**
 * What was lost, by prove and, through the gateway, by its own record of where it sent each connection; and what became of
 * each pod. bench/README.md says how to read it.
 */
export function accountOf(run: LossyRun): string {
  const { report, losses, stalledMs, load } = run;
  const seen = [
    ...losses.map((each) => ofGateway(each, run)),
    ...report.failures.map((each) => ofProve(each, run)),
  ];
  const groups = Map.groupBy(seen, ({ through, kind, cause }) => [through, kind, cause].join('\n'));
  const lost = [...groups.values()].map((all): Rows[number] => {
    const [{ through, kind, cause } = { through: '', kind: '', cause: '' }] = all;
    const span = (of: (each: Seen) => number) => spanned(all.map(of), 2);
    const afters = [span((each) => each.afterSigterm), span((each) => each.afterLetGo)];
    return [
      all.length,
      through,
      kind,
      cause,
      span((each) => each.took),
      ...afters,
      span((each) => each.afterGone),
    ];
  });
  const circumstances = `gateway's process stalled for up to ${Math.round(stalledMs)} ms; load ${load.toFixed(1)}`;
  return [table(POD_HEAD, podRows(run)), table(LOSS_HEAD, lost), circumstances, ...report.notes].join('\n\n');
}

/** `Gone after 7.4 s (envoy)` */
export function releaseText({ reason, seconds, waitingFor, last }: Released): string {
  return `${reason} after ${seconds.toFixed(1)} s (${(waitingFor ?? last ?? []).join(', ')})`;
}

function podRows({ gone, released }: LossyRun): Rows {
  return gone.map(({ name, wait, deletedAt, withdrawnAt, letGoAt, sigtermAt, goneAt }) => {
    const found = released.find(({ pod }) => pod === name);
    const why = found === undefined ? '–' : releaseText(found);
    const [withdrawn, letGo, sigterm, end] = [withdrawnAt, letGoAt, sigtermAt, goneAt].map((at) =>
      spanned([since(deletedAt, at)], 2),
    );
    return [name, wait === 'Hold' ? wait : `${wait} s`, withdrawn, letGo, why, sigterm, end].map(String);
  });
}

/** A lost request, and seconds from what had happened to its pod until it was sent. */
interface Seen {
  readonly through: string;
  readonly kind: string;
  readonly cause: string;
  readonly took: number;
  readonly afterSigterm: number;
  readonly afterLetGo: number;
  readonly afterGone: number;
}

function after(at: number, pod: Gone | undefined): Pick<Seen, 'afterSigterm' | 'afterLetGo' | 'afterGone'> {
  const { sigtermAt = Number.NaN, letGoAt = Number.NaN, goneAt = Number.NaN } = pod ?? {};
  const [afterSigterm, afterLetGo, afterGone] = [sigtermAt, letGoAt, goneAt].map((each) => since(each, at));
  return { afterSigterm: afterSigterm!, afterLetGo: afterLetGo!, afterGone: afterGone! };
}

function ofGateway({ openedAt, failedAt, backend, kind }: GatewayLoss, { gone }: LossyRun): Seen {
  const [address, port] = backend?.split(':') ?? [];
  const pod = gone.find(({ life }) => life.address === address);
  const raw = { openedAt, failedAt, kind: 'reset', detail: '', source: '' } as const;
  const sentTo = address === undefined ? 'none' : { address, port: Number(port) };
  // Pods that stayed are not among those that went.
  const cause = pod === undefined && address !== undefined ? 'alive' : causeOf(raw, sentTo, pod?.life);
  return { through: 'edge itself', kind, cause, took: since(openedAt, failedAt), ...after(openedAt, pod) };
}

/** Where it may have been sent to one of several pods: to the one whose SIGTERM is closest. */
function ofProve(
  { at, tookMs, way, kind, cause, pods }: ProveReport['failures'][number],
  { gone }: LossyRun,
): Seen {
  const sentAt = Date.parse(at);
  const distance = ({ sigtermAt }: Gone) => Math.abs(sentAt - sigtermAt) || 0;
  const [pod] = gone.filter(({ name }) => pods.includes(name)).toSorted((a, b) => distance(a) - distance(b));
  return { through: way, kind, cause, took: tookMs / 1_000, ...after(sentAt, pod) };
}

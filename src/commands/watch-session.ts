import type { ChangeKind } from '../core/changes/change.ts';
import type { Interruption } from '../core/changes/interruptions.ts';
import type { ObservedChange } from '../core/changes/observer.ts';
import { ChangeSummary } from '../core/changes/summary.ts';
import { DISCARDS, type DiscardCounts, type DiscardReason } from '../core/lag/discards.ts';
import type { LagStage } from '../core/lag/sample.ts';
import { ChangeTable, changeLine } from '../render/changes.ts';
import { showSeconds } from '../render/seconds.ts';
import { renderSummary, type WaitingRemoval, type WatchGap } from '../render/watch-summary.ts';
import type { WatchSettings } from '../settings/commands.ts';
import type { EndpointWatch } from '../sources/kube/endpoint-watch.ts';
import type { LiveTerminal } from './live-terminal.ts';

export interface WatchClock {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** The wall's, for people. */
  readonly date: () => Date;
}

export interface SessionOptions extends WatchClock {
  readonly settings: WatchSettings;
  readonly terminal: LiveTerminal;
  readonly colour: boolean;
  /** What is watched, for people: `all namespaces of https://…`. */
  readonly where: string;
}

interface Interrupted {
  readonly watch: EndpointWatch;
  readonly interruption: Interruption;
}

/** A backlog of a moment is an ordinary removal under way. */
const BACKLOG_SECONDS = 1;

/** Ages are read by people; and in a backlog of thousands it costs something to find the oldest. */
const STATUS_EVERY_MS = 500;

/** Prints what the watches see: call {@link look} several times a second, and {@link finish} at the end. */
export class WatchSession {
  readonly #watches: readonly EndpointWatch[];
  readonly #options: SessionOptions;
  readonly #begunAt: number;
  readonly #summary = new ChangeSummary();
  readonly #table: ChangeTable;
  readonly #isWantedPod: (name: string | undefined) => boolean;
  readonly #announced = new Set<string>();
  readonly #begun = Promise.withResolvers<void>();
  #greeted = false;
  #statusMadeAt = Number.NEGATIVE_INFINITY;

  constructor(watches: readonly EndpointWatch[], options: SessionOptions) {
    this.#watches = watches;
    this.#options = options;
    this.#begunAt = options.clock();
    this.#isWantedPod = podFilter(options.settings.pod);
    const namespaces = options.settings.namespace?.length !== 1;
    this.#table = new ChangeTable({ namespaces, colour: options.colour });
    if (options.settings.output === 'table') options.terminal.print(this.#table.header());
  }

  /** Resolves once everything that is watched is seen when it happens. */
  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  look(): void {
    const { clock, terminal } = this.#options;
    const now = clock();
    this.#printAll(this.#watches.flatMap(({ observer }) => observer.take(now)));
    this.#greet();
    this.#announceInterruptions();
    if (now - this.#statusMadeAt < STATUS_EVERY_MS) return;
    this.#statusMadeAt = now;
    terminal.status(this.#statusAt(now));
  }

  /** @returns whether a lag was longer than `failOnLag` */
  finish(): boolean {
    const { settings, terminal, clock } = this.#options;
    this.#printAll(this.#watches.flatMap(({ observer }) => observer.takeAll()));
    terminal.status('');
    const now = clock();
    const unresolved = this.#unresolvedAt(now);
    const { slowest } = this.#summary;
    if (!settings.quiet) {
      const text = renderSummary({
        seconds: (now - this.#begunAt) / 1000,
        sources: this.#summary.sources(settings.source),
        slowest,
        unresolved,
        discarded: this.#discarded(),
        gaps: this.#interruptions().map((each) => this.#gapOf(each, now)),
      });
      // One JSON object a line, and nothing else, is what a program reads.
      if (settings.output === 'json') terminal.note(`\n${text.trimEnd()}`);
      else terminal.print(`\n${text}`);
    }
    const worst = Math.max(slowest[0]?.lag ?? 0, unresolved[0]?.ageSeconds ?? 0);
    return settings.failOnLag !== undefined && worst > settings.failOnLag;
  }

  #printAll(changes: readonly ObservedChange[]): void {
    const { settings, terminal } = this.#options;
    const { output, change: kinds, minLag } = settings;
    const wanted = changes.filter(({ pod }) => this.#isWantedPod(pod));
    for (const change of wanted) this.#summary.add(change);
    const lines = wanted
      .filter((each) => isShown(each, kinds, minLag))
      .map((each) => {
        const time = this.#dateOf(each.at);
        return output === 'json'
          ? `${JSON.stringify(changeLine(each, time))}\n`
          : this.#table.row(each, time);
      });
    terminal.print(lines.join(''));
  }

  #greet(): void {
    if (this.#greeted || !this.#watches.every(({ begun }) => begun)) return;
    this.#greeted = true;
    this.#begun.resolve();
    const { terminal, where, settings } = this.#options;
    const services = this.#watches.flatMap((watch) => [...watch.services]);
    const known = `${services.length} ${services.length === 1 ? 'Service' : 'Services'}`;
    terminal.note(`Watching ${where}: ${known}. Ctrl-C ends it with a summary.`);
    const missing = settings.service?.filter((name) => !services.some((each) => each.endsWith(`/${name}`)));
    for (const name of missing ?? []) terminal.note(`There is no Service ${name} yet.`);
    const nobody = settings.selector !== undefined && !this.#watches.some(({ selection }) => selection?.any);
    if (nobody) terminal.note('No pod has the labels of --selector yet.');
  }

  #announceInterruptions(): void {
    const { terminal } = this.#options;
    for (const { watch, interruption } of this.#interruptions()) {
      const { stream, since, until, cause } = interruption;
      const what = nameOf(watch, interruption);
      const key = `${this.#watches.indexOf(watch)}/${stream}/${since}`;
      const at = this.#dateOf(since).toISOString();
      if (!this.#announced.has(key)) {
        this.#announced.add(key);
        terminal.note(`${at} ${what}: interrupted${cause === undefined ? '' : `: ${cause}`}`);
      }
      if (until === undefined || this.#announced.has(`${key}/ended`)) continue;
      this.#announced.add(`${key}/ended`);
      const lasted = showSeconds((until - since) / 1000);
      terminal.note(`${this.#dateOf(until).toISOString()} ${what}: current again after ${lasted}`);
    }
  }

  #interruptions(): readonly Interrupted[] {
    return this.#watches.flatMap((watch) =>
      watch.interruptions.all.map((interruption) => ({ watch, interruption })),
    );
  }

  #gapOf({ watch, interruption }: Interrupted, now: number): WatchGap {
    const { since, until, cause } = interruption;
    return {
      what: nameOf(watch, interruption),
      since: this.#dateOf(since),
      seconds: ((until ?? now) - since) / 1000,
      goesOn: until === undefined,
      cause,
    };
  }

  #statusAt(now: number): string {
    const unresolved = this.#unresolvedAt(now);
    const [oldest] = unresolved;
    if (oldest === undefined || oldest.ageSeconds < BACKLOG_SECONDS) return '';
    const { ageSeconds, source, namespace, service, pod } = oldest;
    return `${unresolved.length} not withdrawn yet, for up to ${showSeconds(ageSeconds)}: ${pod} in ${namespace}/${service} (${source})`;
  }

  /** Oldest first. */
  #unresolvedAt(now: number): readonly WaitingRemoval[] {
    return this.#watches
      .flatMap(({ observer }) => [...observer.unresolved()])
      .filter(({ pod }) => this.#isWantedPod(pod))
      .map(({ stage, namespace, name, pod, since }) => ({
        source: stage,
        namespace,
        service: name,
        pod,
        ageSeconds: (now - since) / 1000,
      }))
      .toSorted((a, b) => b.ageSeconds - a.ageSeconds);
  }

  #discarded(): DiscardCounts {
    const all = this.#watches.map(({ observer }) => observer.discarded);
    const reasons = Object.keys(DISCARDS) as DiscardReason[];
    const sums = reasons.map((reason) => [reason, all.reduce((sum, counts) => sum + counts[reason], 0)]);
    return Object.fromEntries(sums) as DiscardCounts;
  }

  #dateOf(at: number): Date {
    const { clock, date } = this.#options;
    return new Date(date().getTime() - (clock() - at));
  }
}

function isShown(
  { change, lag }: ObservedChange,
  kinds: readonly ChangeKind[],
  minLag: number | undefined,
): boolean {
  return kinds.includes(change) && (minLag === undefined || (lag !== undefined && lag >= minLag));
}

/** @param pattern with `*` for any characters and `?` for one; undefined: every name, and none */
function podFilter(pattern: string | undefined): (name: string | undefined) => boolean {
  if (pattern === undefined) return () => true;
  const source = pattern
    .replace(/[\\^$.|+()[\]{}]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${source}$`);
  return (name) => name !== undefined && expression.test(name);
}

/** Streams are called after what they bring; the sources by their own names. */
const STREAM_NAMES: Readonly<Record<Interruption['stream'], LagStage | 'pods' | 'Services'>> = {
  pods: 'pods',
  services: 'Services',
  EndpointSlice: 'EndpointSlice',
  Endpoints: 'Endpoints',
};

function nameOf({ scope }: EndpointWatch, { stream }: Interruption): string {
  const name = STREAM_NAMES[stream];
  return scope.namespace === undefined ? name : `${name} in ${scope.namespace}`;
}

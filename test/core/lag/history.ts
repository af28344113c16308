import type { ClusterEvent, Stream } from '../../../src/core/lag/events.ts';
import { ALL_CURRENT, deleted, endpoints, marker, service, slice, terminating } from './sample-events.ts';

/** One thing that a random history does; the numbers are taken modulo what there is to choose from. */
export interface Step {
  readonly after: number;
  readonly kind: 'create' | 'write' | 'terminate' | 'delete' | 'end' | 'reshard' | 'break' | 'rotate';
  readonly pod: number;
  readonly object: number;
  readonly state: number;
  readonly lasting: number;
  readonly delay: number;
}

export type State = 'ready' | 'notReady' | 'terminating';

/** Objects of the Services `web` and `six`, and one of a Service that never withdraws. */
export const OBJECTS = ['web-1', 'web-2', 'six-1', 'web', 'never-1'] as const;
export type ObjectName = (typeof OBJECTS)[number];
export const GROUP_OF = {
  'web-1': 'web',
  'web-2': 'web',
  'six-1': 'six',
  web: 'Endpoints',
  'never-1': 'never',
} as const satisfies Record<ObjectName, string>;
export const streamOf = (object: ObjectName) => (object === 'web' ? 'Endpoints' : 'EndpointSlice');

const STREAMS = ['pods', 'EndpointSlice', 'Endpoints'] as const satisfies readonly Stream[];
export type Interruptible = (typeof STREAMS)[number];

/** What happened, when, and what its watch says of it; `uid` is the pod that it is about. */
export interface Truth {
  readonly t: number;
  readonly stream: Interruptible;
  readonly uid: string;
  readonly delay: number;
  readonly object?: ObjectName;
  readonly state?: State | 'absent';
  readonly event: (at: number) => ClusterEvent;
}

export interface Interruption {
  readonly stream: Interruptible;
  readonly kind: 'break' | 'rotate';
  readonly from: number;
  readonly to: number;
}

type Listing = ReadonlyMap<string, State>;

/** A cluster in which these steps really happened. */
export class History {
  readonly truths: Truth[] = [];
  readonly interruptions: Interruption[] = [];
  readonly #objects = new Map<ObjectName, Map<string, State>>(OBJECTS.map((name) => [name, new Map()]));
  readonly #alive: string[] = [];
  readonly #terminating = new Set<string>();
  #now = 1_000;
  #uids = 0;

  constructor(steps: readonly Step[]) {
    for (const step of steps) {
      this.#now += step.after;
      this.#take(step);
    }
  }

  #take(step: Step): void {
    const uid = this.#alive[step.pod % Math.max(1, this.#alive.length)];
    const object = OBJECTS[step.object % OBJECTS.length]!;
    if (step.kind === 'break' || step.kind === 'rotate') this.#interrupt(step);
    else if (step.kind === 'create' || uid === undefined) this.#create(step);
    else if (step.kind === 'write') this.#randomWrite(uid, object, step);
    else if (step.kind === 'terminate') this.#terminate(uid, step);
    else if (step.kind === 'delete') this.#delete(uid, step);
    else if (step.kind === 'end') this.#end(uid, step);
    else this.#reshard(uid, step);
  }

  #create(step: Step): void {
    this.#uids += 1;
    const uid = `u${this.#uids}`;
    this.#alive.push(uid);
    for (const object of ['web-1', 'six-1', 'web', 'never-1'] as const)
      this.#write(uid, object, 'ready', step);
  }

  /** As the controllers do it: terminating, then withdrawn from one object after the other, then deleted. */
  #end(uid: string, step: Step): void {
    this.#terminate(uid, step);
    for (const object of OBJECTS) {
      if (!this.#objects.get(object)!.has(uid)) continue;
      this.#now += (step.lasting * (1 + OBJECTS.indexOf(object))) % 700;
      this.#write(uid, object, object === 'web' || step.state % 3 === 0 ? 'absent' : 'terminating', step);
    }
    this.#now += step.after;
    this.#delete(uid, step);
  }

  #randomWrite(uid: string, object: ObjectName, step: Step): void {
    const ending = this.#terminating.has(uid);
    const choices = ending ? ['terminating', 'notReady', 'absent'] : ['ready', 'ready', 'notReady', 'absent'];
    const state = choices[step.state % choices.length] as State | 'absent';
    // Endpoints have no such condition: a terminating pod is not in them.
    this.#write(uid, object, object === 'web' && state === 'terminating' ? 'absent' : state, step);
  }

  /** The other slice lists the pod before this one drops it. */
  #reshard(uid: string, step: Step): void {
    const [from, to] = this.#objects.get('web-1')!.has(uid)
      ? (['web-1', 'web-2'] as const)
      : (['web-2', 'web-1'] as const);
    const state = this.#objects.get(from)!.get(uid);
    if (state === undefined || this.#objects.get(to)!.has(uid)) return;
    this.#write(uid, to, state, step);
    this.#now += step.after % 20;
    this.#write(uid, from, 'absent', step);
  }

  #write(uid: string, object: ObjectName, state: State | 'absent', { delay }: Step): void {
    const listing = this.#objects.get(object)!;
    if (state === 'absent') listing.delete(uid);
    else listing.set(uid, state);
    const event = stateEvent(object, new Map(listing));
    this.truths.push({ t: this.#now, stream: streamOf(object), uid, delay, object, state, event });
  }

  #terminate(uid: string, { delay }: Step): void {
    if (this.#terminating.has(uid)) return;
    this.#terminating.add(uid);
    const event = (at: number) => terminating(at, uid);
    this.truths.push({ t: this.#now, stream: 'pods', uid, delay, event });
  }

  #delete(uid: string, { delay }: Step): void {
    this.#terminating.add(uid);
    this.#alive.splice(this.#alive.indexOf(uid), 1);
    const event = (at: number) => deleted(at, uid);
    this.truths.push({ t: this.#now, stream: 'pods', uid, delay, event });
    // What still lists it when it is gone goes some time later.
    for (const object of OBJECTS) {
      if (!this.#objects.get(object)!.has(uid)) continue;
      this.#now += delay;
      this.#write(uid, object, 'absent', { delay } as Step);
    }
  }

  #interrupt({ kind, object, lasting }: Step): void {
    const stream = STREAMS[object % STREAMS.length]!;
    const latest = this.interruptions.filter((each) => each.stream === stream).at(-1);
    if (latest !== undefined && latest.to >= this.#now) return;
    // Halves, so that no event comes at the same instant.
    const from = this.#now + 0.5;
    this.interruptions.push({ stream, kind: kind as 'break' | 'rotate', from, to: from + 1 + lasting });
  }
}

function stateEvent(object: ObjectName, listing: Listing): (at: number) => ClusterEvent {
  const uids = (...states: State[]) =>
    [...listing].flatMap(([uid, state]) => (states.includes(state) ? [uid] : []));
  if (object === 'web') return (at) => endpoints(at, uids('ready'), uids('notReady'));
  const more = {
    name: object,
    serviceName: GROUP_OF[object],
  };
  return (at) => slice(at, Object.fromEntries(listing), more);
}

/** The recorder's input: `truth` is what an event stands for, if it comes from a watch. */
export interface Delivery {
  readonly at: number;
  readonly event: ClusterEvent;
  readonly truth?: Truth;
}

/** Each stream by itself, late by at most the truths' delays, with its interruptions; then all of them in time. */
export function deliveriesOf(history: History): Delivery[] {
  const streams = STREAMS.map((stream) => streamDeliveries(history, stream));
  const setup = [
    ...ALL_CURRENT,
    service(),
    service({ name: 'six' }),
    service({ name: 'never', publishNotReadyAddresses: true }),
  ];
  return [...setup.map((event) => ({ at: 0, event })), ...streams.flat().sort((a, b) => a.at - b.at)];
}

function streamDeliveries(history: History, stream: Interruptible): Delivery[] {
  const truths = history.truths.filter((each) => each.stream === stream);
  const interruptions = history.interruptions.filter((each) => each.stream === stream);
  const deliveries: Delivery[] = [];
  let previous = 0;
  for (const truth of truths) {
    const due = Math.max(previous, truth.t + truth.delay);
    const gap = interruptions.find(({ from, to }) => due > from && truth.t < to);
    // What a break swallows keeps its place, too: a watch shows nothing of what came after it before the break.
    previous = due;
    if (gap?.kind === 'break') continue;
    const at = gap !== undefined && due < gap.to ? gap.to : due;
    previous = at;
    deliveries.push({ at, event: truth.event(at), truth });
  }
  for (const { kind, from, to } of interruptions) {
    const says = kind === 'break' ? 'StreamBroken' : 'StreamRotated';
    deliveries.push({ at: from, event: marker(from, says, stream) });
    if (kind === 'break') deliveries.push(...listAt(truths, stream, to));
    deliveries.push({ at: to, event: marker(to, 'StreamCurrent', stream) });
  }
  return deliveries.sort((a, b) => a.at - b.at);
}

/** The list that a broken watch restarts with. */
function listAt(truths: readonly Truth[], stream: Interruptible, at: number): Delivery[] {
  const latest = new Map<string, Truth>();
  for (const truth of truths) if (truth.t < at) latest.set(truth.object ?? truth.uid, truth);
  const items = [...latest.values()].map((truth) => truth.event(at));
  const isGone = ({ type }: ClusterEvent) => type === 'PodDeleted';
  // A deleted pod is in no list; the list-watch notices at its end.
  const events = [...items.filter((event) => !isGone(event)), ...items.filter(isGone)];
  return [marker(at, 'ListBegins', stream), ...events, marker(at, 'ListEnds', stream)].map((event) => ({
    at,
    event,
  }));
}

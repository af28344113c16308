import type { Server } from 'node:net';
import type { Registry } from '@prometheus-io/client';
import { asError } from '../api/index.ts';
import type { KubeConnection, ObjectEvents, PodMetadata, ResourceEvent } from '../cluster/index.ts';
import type { World } from '../decision/index.ts';
import { type ClusterEvent, witnessName } from '../lag/index.ts';
import type { Lead } from '../leader/index.ts';
import type { Inspecting, Measurement } from '../measurement/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { type HeldPod, HeldPods } from './held-pods.ts';
import { type HeldView, type HoldSources, Holds, type Release } from './holds.ts';
import { Inquiries } from './inquiries.ts';
import { Releases } from './releases.ts';
import { HoldService, type Route } from './service.ts';

/** The operator's settings of the Hold Service. */
export interface HoldSettings {
  readonly relay: {
    /** Where other replicas reach this replica's Hold Service: `10.0.3.7:8445` or `[fd00::7]:8445`. */
    readonly address: string;
    /** Authenticates relaying replicas; the same for all. */
    readonly key: Buffer;
  };
}

export interface HoldContext extends HoldSettings, Pick<HoldSources, 'reports'> {
  readonly inspecting: Pick<Inspecting, 'usersOf' | 'want' | 'done' | 'onChange'>;
  readonly connection: KubeConnection;
  readonly events: ObjectEvents;
  readonly world: () => World;
  readonly measurement: Pick<Measurement, 'listing' | 'withdraws' | 'onChange' | 'consumers'>;
  /** A pod's hooks have been let go. */
  readonly onRelease: (release: Release) => void;
  /** Whether the cluster has been read, and the watches of pods and endpoints are current. */
  readonly current: () => boolean;
  /** The leader's address for relayed connections, from the Lease. */
  readonly leader: () => string | undefined;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** A replica's part in holding pods. */
export interface RunningHold {
  /** Not listening yet. */
  readonly server: Server;
  /** To be called with each event of the pods' watch. */
  readonly onPod: (event: ResourceEvent<PodMetadata>) => void;
  /** To be called with each event of the watches. */
  readonly observe: (event: ClusterEvent) => void;
  /** A pod with hook Hold, until the watch has shown it to be gone. */
  readonly pod: (uid: string) => HeldPod | undefined;
  /** To be called whenever this replica leads. */
  readonly lead: (lead: Lead) => void;
  /** An instance of the consumer has said what it has applied. */
  readonly heard: (consumer: string) => void;
  /** undefined: this replica does not lead. */
  readonly list: () => readonly HeldView[] | undefined;
  readonly close: () => void;
}

export function startHold(context: HoldContext): RunningHold {
  const { connection, measurement, clock, signal, logger, leader } = context;
  const { address, key } = context.relay;
  const wall = Date.now;
  const once = new LogOnce(logger);
  const inquiries = new Inquiries({ connection, clock, signal });
  const releases = new Releases({ ...context, held: () => holds.size });
  const pods = new HeldPods({ clock, wall, onChange: (pod) => holds.touch(pod) });
  let leads: Lead | undefined;
  const isLeading = () => leads?.holds() === true;
  const holds: Holds = new Holds({
    ...context,
    leads: isLeading,
    listing: (uid) => measurement.listing(uid),
    withdraws: (group) => measurement.withdraws(group),
    followedSince: () => pods.followedSince,
    inquire: async (pod) => {
      try {
        const found = await inquiries.ask(pod);
        once.over('inquiries', {}, 'the API server answers about held pods again');
        return found;
      } catch (thrown) {
        const { message: problem } = asError(thrown);
        if (!signal.aborted)
          once.warn('inquiries', { problem }, 'the API server cannot be asked about a held pod');
        throw thrown;
      }
    },
    sawDeletion: pods.sawDeletion.bind(pods),
    onRelease: (release) => {
      releases.tell(release);
      context.onRelease(release);
      const { pod, lag } = release;
      const services = new Set(
        pod.withdrawals.map(({ group }) => witnessName(group.namespace, group.service)),
      );
      if (lag === undefined) return;
      for (const consumer of services) measurement.consumers.record({ consumer, direction: 'removal', lag });
    },
    onStranger: ({ namespace, name: pod }, { source }) => {
      releases.countStranger();
      once.warn(
        'strangers',
        { namespace, pod, source },
        'a helper called from an address that is not its pod’s; what it sees is left out',
      );
    },
  });
  measurement.onChange(pods.changed.bind(pods));
  context.inspecting.onChange((uid) => holds.touch({ uid }));

  const route = (): Route => {
    if (isLeading()) return 'here';
    const other = leader();
    // A Lease with this replica's own address stems from an earlier process.
    return other === undefined || other === address ? undefined : hostAndPort(other);
  };
  const service = new HoldService({ holds, pods, route, key, clock, wall, logger });
  return {
    server: service.server,
    onPod: pods.apply.bind(pods),
    observe: pods.observe.bind(pods),
    pod: pods.withUid.bind(pods),
    lead: (lead) => {
      leads = lead;
      const over = () => {
        if (leads === lead) leads = undefined;
        holds.end();
        // Helpers reconnect, and are relayed to the next leader.
        service.hangUp();
      };
      lead.signal.addEventListener('abort', over, { once: true });
      // Connections that were relayed so far are held here from now on.
      service.hangUp();
    },
    heard: holds.heard.bind(holds),
    list: () => (isLeading() ? holds.list() : undefined),
    close: () => service.close(),
  };
}

/** `10.0.3.7:8445` or `[fd00::7]:8445`. @returns undefined for what is neither */
function hostAndPort(address: string): Exclude<Route, 'here'> {
  const [, six, four, port] = /^(?:\[([\da-f:.]+)\]|([\d.]+)):(\d{1,5})$/i.exec(address) ?? [];
  const host = six ?? four;
  return host === undefined ? undefined : { host, port: Number(port) };
}

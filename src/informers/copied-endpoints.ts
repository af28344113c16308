import { join } from 'node:path';
import {
  type KubeFailure,
  type Resource,
  type ResourceEvent,
  readKubeconfig,
  watchResource,
} from '../cluster/index.ts';
import { asError, type EndpointsSpec, objectKey } from '../core/api/index.ts';
import { pause } from '../timing/index.ts';
import {
  type EndpointsProjection,
  endpointSlicesResource,
  endpointsResource,
  type SliceProjection,
} from './endpoints.ts';
import { ListedAddresses } from './listed-addresses.ts';

/** How soon an unreadable kubeconfig is read again. Milliseconds. */
const READ_AGAIN_MS = 5_000;

const KINDS = ['EndpointSlice', 'Endpoints'] as const;
type Kind = (typeof KINDS)[number];

interface CopiedEndpointsOptions {
  /** The folder of --inspect-files; undefined: it is not set. */
  readonly folder: string | undefined;
  readonly clock: () => number;
  readonly signal: AbortSignal;
  /** Converts an address to its canonical spelling; undefined: it is not an address. */
  readonly canonical: (address: string) => string | undefined;
}

/** The name of the copy of a Service. */
export function copyOf(
  { copies = '{namespace}/{service}' }: EndpointsSpec,
  service: { readonly namespace: string; readonly name: string },
): string {
  return copies.replaceAll('{namespace}', service.namespace).replaceAll('{service}', service.name);
}

/**
 * The ready addresses in all EndpointSlices and Endpoints of another cluster, kept up to date by watches until the signal
 * aborts.
 */
export class CopiedEndpoints {
  readonly #options: CopiedEndpointsOptions;
  readonly #listed: ListedAddresses;
  /** Why a kind is not current, by kind. */
  readonly #troubles = new Map<Kind, string>(KINDS.map((kind) => [kind, NOT_READ]));
  /** The URL of the API server; a placeholder until the kubeconfig has been read. */
  server = new URL('https://the-other-cluster');

  constructor(spec: EndpointsSpec, options: CopiedEndpointsOptions) {
    this.#options = options;
    this.#listed = new ListedAddresses(options.clock);
    void this.#run(spec);
  }

  /**
   * Which of these addresses a copy lists as ready, or until when it did so recently; or why that is not known.
   * @param isCopy whether a Service is such a copy
   */
  find(
    wanted: Iterable<string>,
    isCopy: (service: string) => boolean,
  ): ReadonlyMap<string, true | number> | string {
    const [trouble = this.#listed.trouble] = this.#troubles.values();
    return trouble ?? this.#listed.find(wanted, isCopy);
  }

  async #run({ kubeconfigFile }: EndpointsSpec): Promise<void> {
    const { folder, clock, signal } = this.#options;
    do {
      try {
        if (folder === undefined) throw new Error('--inspect-files names no folder');
        const connection = await readKubeconfig(join(folder, kubeconfigFile), { selfContained: true });
        this.server = connection.server;
        const follow = <T>(kind: Kind, resource: Resource<T>, read: (object: T) => ServiceAddresses) =>
          watchResource(resource, connection, this.#handlers(kind, read), {
            clock,
            signal,
            random: Math.random,
          });
        follow('EndpointSlice', endpointSlicesResource(), readSlice);
        follow('Endpoints', endpointsResource(), readEndpoints);
        return;
      } catch (error) {
        const trouble = `cannot be read: ${asError(error).message}`;
        for (const kind of KINDS) this.#troubles.set(kind, trouble);
      }
    } while (await pause(READ_AGAIN_MS, signal));
  }

  #handlers<T>(kind: Kind, read: (object: T) => ServiceAddresses) {
    return {
      onEvent: (event: ResourceEvent<T>) => {
        const { identity } = event;
        const listed = event.type === 'deleted' ? undefined : read(event.object);
        this.#set(`${kind}/${objectKey(identity)}`, identity.namespace, listed);
      },
      onStream: ({ type }: { readonly type: string }) => {
        if (type === 'StreamCurrent') this.#troubles.delete(kind);
        else if (type !== 'StreamRotated') this.#troubles.set(kind, NOT_READ);
      },
      onFailure: ({ reason }: KubeFailure) =>
        void this.#troubles.set(kind, `cannot be read: watching ${kind} objects failed (${reason})`),
    };
  }

  #set(key: string, namespace: string, { service, addresses = [] }: Partial<ServiceAddresses> = {}): void {
    const { canonical } = this.#options;
    const ready = service === undefined ? [] : addresses.flatMap((each) => canonical(each) ?? []);
    this.#listed.set(key, `${namespace}/${service}`, ready);
  }
}

const NOT_READ = 'have not been read yet';

interface ServiceAddresses {
  readonly service: string | undefined;
  readonly addresses: readonly string[];
}

function readSlice({ serviceName, endpoints }: SliceProjection): ServiceAddresses {
  const ready = endpoints.filter((each) => each.ready);
  return { service: serviceName, addresses: ready.flatMap(({ addresses = [] }) => [...addresses]) };
}

function readEndpoints({ name, ready }: EndpointsProjection): ServiceAddresses {
  return { service: name, addresses: ready.flatMap(({ ip }) => ip ?? []) };
}

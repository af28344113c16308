import { isRecord, isString } from '../../core/schema/shape.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { ObjectFailure, requestObject } from '../../kube/object-request.ts';
import { newAgent } from '../../kube/request.ts';

export const CANARY_SERVICE = 'linger-canary';

/** Where connections to the Service go. */
export interface ServiceAddress {
  readonly address: string;
  readonly port: number;
}

/** Asks for the canary's Service: over one connection, until {@link close}. */
export class CanaryService {
  readonly #connection: KubeConnection;
  readonly #path: string;
  readonly #requestMs: number;
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(options: {
    readonly connection: KubeConnection;
    readonly namespace: string;
    /** Milliseconds. */
    readonly requestMs: number;
  }) {
    this.#connection = options.connection;
    this.#path = `/api/v1/namespaces/${options.namespace}/services/${CANARY_SERVICE}`;
    this.#requestMs = options.requestMs;
    this.#agent = newAgent(options.connection);
  }

  /**
   * @returns undefined when there is no such Service, or none with a ClusterIP and a port
   * @throws ObjectFailure; the signal's reason once that has aborted
   */
  async read(signal: AbortSignal): Promise<ServiceAddress | undefined> {
    const [agent, withinMs] = [this.#agent, this.#requestMs];
    try {
      const request = { method: 'GET' as const, path: this.#path, agent, signal, withinMs };
      return addressOf((await requestObject(this.#connection, request)).spec);
    } catch (error) {
      if (error instanceof ObjectFailure && error.reason === 'NotFound') return undefined;
      throw error;
    }
  }

  close(): void {
    this.#agent.destroy();
  }
}

function addressOf(spec: unknown): ServiceAddress | undefined {
  const { clusterIP, ports } = isRecord(spec) ? spec : {};
  const [first] = Array.isArray(ports) ? ports : [];
  const port = isRecord(first) ? first.port : undefined;
  if (!isString(clusterIP) || clusterIP === '' || clusterIP === 'None') return undefined;
  return typeof port === 'number' ? { address: clusterIP, port } : undefined;
}

import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { type WaitOptions, waitUntil } from '../../testbed/cluster.ts';
import type { Gateway } from '../../testbed/gateways.ts';
import type { Backend } from '../../testbed/load/report.ts';
import type { Target } from '../../testbed/load/targets.ts';

/** Requests through a gateway, and where it sent them, by its own log. */
export function gatewayTarget(gateway: Pick<Gateway, 'name' | 'address' | 'port' | 'sent'>): Target {
  const { name, address, port } = gateway;
  let backends: ReadonlyMap<string, Backend> | undefined;
  return {
    description: `new connection per request through ${name}`,
    next: () => ({ address, port }),
    // Asked once all requests have ended.
    backendOf: (source) => {
      backends ??= new Map(gateway.sent().map((each) => [each.client, endpointOf(each.backend)]));
      return backends.get(source);
    },
    answered: () => undefined,
    notes: () => [],
    stop: () => undefined,
  };
}

function endpointOf(text: string): Backend {
  const [, address = '', port] = /^([\d.]+):(\d+)$/.exec(text) ?? [];
  return address === '' ? 'none' : { address, port: Number(port) };
}

/** Waits until the gateway's page shows this many endpoints of a Service. */
export async function listed(gateway: Gateway, addresses: readonly string[], options: WaitOptions = {}) {
  await waitUntil(
    `${gateway.name} to list ${addresses.join(', ')}`,
    async () => {
      const page = await pageOf(gateway);
      return addresses.every((each) => page.includes(each));
    },
    { timeoutMs: 60_000, ...options },
  );
}

async function pageOf({ page: { url, socketPath } }: Gateway): Promise<string> {
  const [answer] = (await once(get(url, { socketPath, timeout: 5_000 }), 'response')) as [IncomingMessage];
  return text(answer);
}

const LOOK_MS = 25;

/** Reads a gateway's page continuously. */
export class PageWatch {
  /** By `address:port`, when the first page without it arrived. Milliseconds since the epoch. */
  readonly gone = new Map<string, number>();
  readonly #gateway: Gateway;
  readonly #port: number;
  #shown: ReadonlySet<string> = new Set();
  #stopped = false;
  readonly #ended: Promise<void>;

  /** @param port of the pods */
  constructor(gateway: Gateway, port: number) {
    this.#gateway = gateway;
    this.#port = port;
    this.#ended = this.#read();
  }

  /** Resolves once it has shown an `address:port`. */
  async has(address: string): Promise<void> {
    await waitUntil(`${this.#gateway.name} to list ${address}`, () => this.#shown.has(address) || undefined);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    await this.#ended;
  }

  async #read(): Promise<void> {
    while (!this.#stopped) {
      const page = await pageOf(this.#gateway).catch(() => undefined);
      if (page !== undefined) this.#take(page);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  #take(page: string): void {
    // HAProxy shows a server that is gone from DNS as in maintenance, until another address replaces it.
    const used = page.split('\n').filter((line) => !/,MAINT\b/.test(line));
    // Traefik shows one that is terminating as fenced, and the health of each in a list by itself.
    const sentTo = used.join('\n').replaceAll(/\{[^{}]*"fenced":true[^{}]*\}|"serverStatus":\{[^{}]*\}/g, '');
    const shown = new Set([...sentTo.matchAll(/\b(?:\d+\.){3}\d+:\d+\b/g)].map(([address]) => address));
    for (const address of this.#shown)
      if (!shown.has(address) && address.endsWith(`:${this.#port}`)) this.gone.set(address, Date.now());
    for (const address of shown) this.gone.delete(address);
    this.#shown = shown;
  }
}

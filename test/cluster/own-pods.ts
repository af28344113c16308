import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import jsonpatch from 'fast-json-patch';
import type { KubeConnection } from '../../src/cluster/connection.ts';

interface ModelPod {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly labels: Record<string, string>;
    deletionTimestamp?: string;
  };
  readonly spec?: { readonly nodeName: string };
  readonly status: {
    readonly phase: string;
    readonly podIP?: string;
    readonly conditions: readonly { readonly type: string; readonly status: string }[];
  };
}

/** The pods of one namespace, as the API server serves them: listed by labels, changed by JSON patches. */
export class OwnPods {
  readonly pods = new Map<string, ModelPod>();
  /** Every change, in words: `web-1 linger.dev/canary=off`. */
  readonly patches: string[] = [];
  /** What the server answers to every request instead of doing its work. */
  failing: number | undefined;
  /** The spec of the one Service that there is; undefined: there is none. */
  service: unknown;
  /** Called after a patch has been applied. */
  onPatched: (pod: ModelPod) => void = () => undefined;
  readonly #server = http.createServer((request, response) => void this.#answer(request, response));

  static async start(): Promise<OwnPods> {
    const own = new OwnPods();
    own.#server.listen(0, '127.0.0.1');
    await once(own.#server, 'listening');
    return own;
  }

  get connection(): KubeConnection {
    const { port } = this.#server.address() as AddressInfo;
    return { server: new URL(`http://127.0.0.1:${port}`), credentials: async () => ({}) };
  }

  add(
    name: string,
    labels: Record<string, string>,
    podIP?: string,
    ready = true,
    nodeName?: string,
  ): ModelPod {
    const metadata = { name, uid: `uid-${name}`, resourceVersion: '1', labels };
    const status = {
      phase: 'Running',
      ...(podIP === undefined ? {} : { podIP }),
      conditions: [{ type: 'Ready', status: ready ? 'True' : 'False' }],
    };
    const pod = { metadata, status, ...(nodeName === undefined ? {} : { spec: { nodeName } }) };
    this.pods.set(name, pod);
    return pod;
  }

  labels(name: string): Record<string, string> | undefined {
    return this.pods.get(name)?.metadata.labels;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #answer(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const say = (status: number, body: unknown) => response.writeHead(status).end(JSON.stringify(body));
    if (this.failing !== undefined) return void say(this.failing, { message: 'failing' });
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://model');
    if (pathname.includes('/services/')) {
      const metadata = { name: 'linger-canary', resourceVersion: '1' };
      return void say(this.service === undefined ? 404 : 200, { metadata, spec: this.service });
    }
    const [, named] = /^metadata\.name=(.+)$/.exec(searchParams.get('fieldSelector') ?? '') ?? [];
    if (request.method === 'GET' && named !== undefined) {
      return void say(200, {
        metadata: { resourceVersion: '1' },
        items: [...this.pods.values()].filter(({ metadata }) => metadata.name === named),
      });
    }
    if (request.method === 'GET') {
      const selector = searchParams.get('labelSelector') ?? '';
      return void say(200, {
        metadata: { resourceVersion: '1' },
        items: [...this.pods.values()].filter((pod) => isSelected(pod, selector)),
      });
    }
    const pod = this.pods.get(pathname.slice(pathname.lastIndexOf('/') + 1));
    if (pod === undefined) return void say(404, { message: 'not found' });
    if (request.headers['content-type'] !== 'application/json-patch+json') return void say(415, {});
    const patch = JSON.parse(Buffer.concat(chunks).toString()) as jsonpatch.Operation[];
    try {
      const { newDocument } = jsonpatch.applyPatch(structuredClone(pod), patch, true);
      this.pods.set(pod.metadata.name, newDocument);
      const [change] = patch.slice(-1) as { path: string; value?: string }[];
      const label = change?.path.slice('/metadata/labels/'.length).replace('~1', '/');
      this.patches.push(`${pod.metadata.name} ${label}=${change?.value ?? ''}`);
      say(200, newDocument);
      this.onPatched(newDocument);
    } catch {
      say(422, { message: 'the server rejected our request' });
    }
  }
}

/** `key` or `key=value`. */
function isSelected({ metadata }: ModelPod, selector: string): boolean {
  const [key = '', value] = selector.split('=');
  return value === undefined ? Object.hasOwn(metadata.labels, key) : metadata.labels[key] === value;
}

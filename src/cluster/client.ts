import type { Agent } from 'node:http';
import type { RequestContext } from '@kubernetes/client-node';
import { isString } from '../core/api/index.ts';
import { withSignal } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, type FailureReason, KubeFailure } from './failure.ts';
import { ask, type KubeRequest, newAgent, readText } from './request.ts';

type ClientNode = typeof import('./client-node.ts');

/** The names of the typed APIs in client-node.ts. */
export type ApiName = Extract<keyof ClientNode, `${string}Api`>;

export interface ApiCall {
  readonly signal: AbortSignal;
  /** The timeout for the whole response. Milliseconds. */
  readonly withinMs: number;
  /** The format of a patch's body. Default: `json-patch`, RFC 6902. */
  readonly patch?: 'json-patch' | 'merge-patch' | 'apply-patch';
  /** The connection pool to use. Default: the one that all callers of this connection share. */
  readonly agent?: Agent;
}

/**
 * Enough for a list of a few hundred small objects, or for a ConfigMap: it has 1 MiB, which base64 and managedFields
 * multiply.
 */
const LONGEST_ANSWER = 8 * 1024 * 1024;

const SHARED_CONNECTIONS = 8;

const shared = new WeakMap<KubeConnection, Agent>();

/**
 * Calls the Kubernetes API through client-node's typed client: `callApi(connection, 'CoreV1Api', call, (core) =>
 * core.readNamespacedConfigMap({ name, namespace }))`.
 *
 * client-node writes the request and parses the response. The bytes go through Linger's own transport, because client-node
 * opens a new connection pool for each request and has no deadline.
 * @throws KubeFailure; the signal's reason once that has aborted
 */
export async function callApi<Name extends ApiName, T>(
  connection: KubeConnection,
  name: Name,
  call: ApiCall,
  use: (api: InstanceType<ClientNode[Name]>) => Promise<T>,
): Promise<T> {
  const library = await import('./client-node.ts');
  return whole(call, (signal) => {
    const send = async (request: RequestContext) => {
      const { pathname, search } = new URL(request.getUrl());
      const [method, body] = [request.getHttpMethod().toString(), request.getBody()];
      const sent = { method, path: pathname + search, text: body === undefined ? undefined : String(body) };
      const text = await answerTo(connection, sent, { ...call, signal });
      // The API server answers in JSON. Set the header, because client-node rejects a response whose content type a proxy
      // has dropped.
      const headers = { 'content-type': 'application/json' };
      return new library.ResponseContext(200, headers, {
        text: async () => text,
        binary: async () => Buffer.from(text),
        stream: () => null,
      });
    };
    const configuration = library.createConfiguration({
      baseServer: new library.ServerConfiguration(connection.server.origin, {}),
      httpApi: library.wrapHttpLibrary({ send }),
    });
    return use(new library[name](configuration) as InstanceType<ClientNode[Name]>);
  });
}

/** Calls a path of the Kubernetes API, without a typed client: for kinds that are known only at runtime. */
export function callPath(
  connection: KubeConnection,
  { object, ...sent }: Omit<Sent, 'text'> & { readonly object?: object | undefined },
  call: ApiCall,
): Promise<unknown> {
  const text = object && JSON.stringify(object);
  const send = (signal: AbortSignal) => answerTo(connection, { ...sent, text }, { ...call, signal });
  return whole(call, async (signal) => JSON.parse(await send(signal)));
}

/** Limits work to the call's time, and converts its failures. */
function whole<T>(call: ApiCall, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  return withSignal(call, async (signal) => {
    try {
      call.signal.throwIfAborted();
      return await work(signal);
    } catch (thrown) {
      call.signal.throwIfAborted();
      if (signal.aborted) throw new KubeFailure('Unreachable', `no full answer within ${call.withinMs} ms`);
      const { reason, message, retryAfterMs } = asFailure(thrown, 'Malformed');
      throw new KubeFailure(OF_AN_OBJECT[reason] ?? reason, message, retryAfterMs);
    }
  });
}

/** What a failure means when the request is about a single object. */
const OF_AN_OBJECT: Partial<Record<FailureReason, FailureReason>> = {
  NotServed: 'NotFound',
  Expired: 'Refused',
  Cut: 'Unreachable',
};

/** @returns undefined if the object does not exist */
export async function unlessNotFound<T>(call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (thrown) {
    if (thrown instanceof KubeFailure && thrown.reason === 'NotFound') return undefined;
    throw thrown;
  }
}

/** The API server's version, such as `v1.30.4-eks-a737599`. @throws KubeFailure; the signal's reason once aborted */
export async function kubeVersion(connection: KubeConnection, signal: AbortSignal): Promise<string> {
  const call = { signal, withinMs: VERSION_MS };
  const { gitVersion } = await callApi(connection, 'VersionApi', call, (api) => api.getCode());
  if (isString(gitVersion)) return gitVersion;
  throw new KubeFailure('Malformed', `expected a version, got ${JSON.stringify(gitVersion)}`);
}

const VERSION_MS = 10_000;

type Sent = Required<Pick<KubeRequest, 'method' | 'path'>> & { readonly text: string | undefined };

async function answerTo(connection: KubeConnection, sent: Sent, call: ApiCall): Promise<string> {
  const { method, path, text } = sent;
  const { signal, withinMs: answerMs, patch = 'json-patch', agent = sharedAgent(connection) } = call;
  const patched = `${patch}+${patch === 'apply-patch' ? 'yaml' : 'json'}`;
  const contentType = `application/${method === 'PATCH' ? patched : 'json'}`;
  const body = text === undefined ? undefined : { contentType, text };
  const response = await ask(connection, { method, path, body, agent, signal, answerMs });
  return readText(response, LONGEST_ANSWER, answerMs);
}

function sharedAgent(connection: KubeConnection): Agent {
  const agent = shared.get(connection) ?? newAgent(connection, SHARED_CONNECTIONS);
  shared.set(connection, agent);
  return agent;
}

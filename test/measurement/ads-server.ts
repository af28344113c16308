import { type Metadata, Server, ServerCredentials, type ServerDuplexStream, status } from '@grpc/grpc-js';
import protobuf from 'protobufjs';
import type { AtEnd } from '../webhook/connection.ts';

/** The messages of ADS as Envoy's API has them, without the fields that nobody here reads or writes. */
const { root } = protobuf.parse(`syntax = "proto3";
message Value { oneof kind { string string_value = 3; } }
message Struct { map<string, Value> fields = 1; }
message Node { string id = 1; Struct metadata = 3; }
message Status { int32 code = 1; string message = 2; }
message Any { string type_url = 1; bytes value = 2; }
message DeltaDiscoveryRequest {
  Node node = 1; string type_url = 2; repeated string resource_names_subscribe = 3;
  repeated string resource_names_unsubscribe = 4; string response_nonce = 6; Status error_detail = 7;
}
message Resource { string version = 1; Any resource = 2; string name = 3; }
message DeltaDiscoveryResponse {
  string system_version_info = 1; repeated Resource resources = 2; string type_url = 4; string nonce = 5;
  repeated string removed_resources = 6;
}
message SocketAddress { int32 protocol = 1; string address = 2; uint32 port_value = 3; }
message Address { SocketAddress socket_address = 1; }
message Endpoint { Address address = 1; }
message LbEndpoint { Endpoint endpoint = 1; int32 health_status = 2; uint32 weight = 4; }
message Locality { string region = 1; }
message LocalityLbEndpoints { Locality locality = 1; repeated LbEndpoint lb_endpoints = 2; }
message ClusterLoadAssignment { string cluster_name = 1; repeated LocalityLbEndpoints endpoints = 2; }
`);

const ENDPOINTS = 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment';

function encode(type: string, object: object): Buffer {
  return Buffer.from(root.lookupType(type).encode(root.lookupType(type).fromObject(object)).finish());
}

interface Request {
  readonly node?: {
    readonly id: string;
    readonly metadata: { readonly fields: Readonly<Record<string, { readonly stringValue: string }>> };
  };
  readonly typeUrl: string;
  readonly resourceNamesSubscribe: readonly string[];
  readonly resourceNamesUnsubscribe: readonly string[];
  readonly responseNonce: string;
  readonly errorDetail?: { readonly code: number };
}

/** An endpoint: its address, and HealthStatus if it is not HEALTHY. */
type Endpoint = string | readonly [address: string, health: number];

interface AdsOptions {
  readonly tls?: { readonly cert: string; readonly key: string };
  /** Clients without this token are refused. */
  readonly token?: () => string;
  readonly port?: number;
}

/** Speaks ADS as istiod does: it answers each name that is subscribed, and pushes what changes. */
export class AdsServer {
  readonly requests: Request[] = [];
  /** Answers of these names are kept back. */
  readonly silent = new Set<string>();
  readonly #clusters = new Map<string, readonly Endpoint[]>();
  readonly #streams = new Set<ServerDuplexStream<Buffer, Buffer>>();
  readonly #subscribed = new Set<string>();
  readonly #server = new Server();
  #nonce = 0;
  port = 0;

  static async start(atEnd: AtEnd, { tls, token, port = 0 }: AdsOptions = {}): Promise<AdsServer> {
    const ads = new AdsServer();
    const asIs = (bytes: Buffer) => bytes;
    const service = {
      delta: {
        path: '/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources',
        requestStream: true,
        responseStream: true,
        requestSerialize: asIs,
        requestDeserialize: asIs,
        responseSerialize: asIs,
        responseDeserialize: asIs,
      },
    };
    ads.#server.addService(service, {
      delta: (call: ServerDuplexStream<Buffer, Buffer>) => {
        if (token !== undefined && bearerOf(call.metadata) !== token())
          call.emit('error', { code: status.UNAUTHENTICATED, details: 'authentication failure' });
        else ads.#take(call);
      },
    });
    const credentials =
      tls === undefined
        ? ServerCredentials.createInsecure()
        : ServerCredentials.createSsl(null, [
            { cert_chain: Buffer.from(tls.cert), private_key: Buffer.from(tls.key) },
          ]);
    ads.port = await new Promise((resolve, reject) =>
      ads.#server.bindAsync(`127.0.0.1:${port}`, credentials, (error, bound) =>
        error === null ? resolve(bound) : reject(error),
      ),
    );
    atEnd(() => ads.stop());
    return ads;
  }

  stop(): void {
    this.#server.forceShutdown();
  }

  get streams(): number {
    return this.#streams.size;
  }

  get subscribed(): readonly string[] {
    return [...this.#subscribed].toSorted();
  }

  /** Istiod ends a stream after half an hour. */
  endStreams(): void {
    for (const stream of this.#streams) stream.end();
    this.#streams.clear();
    this.#subscribed.clear();
  }

  /** Sets the endpoints of a cluster, and pushes them to who has subscribed. */
  push(cluster: string, ...endpoints: readonly Endpoint[]): void {
    this.#clusters.set(cluster, endpoints);
    if (this.#subscribed.has(cluster)) this.#answer([cluster]);
  }

  /** The cluster is gone. */
  remove(cluster: string): void {
    this.#clusters.delete(cluster);
    this.send(encode('DeltaDiscoveryResponse', this.#response({ removedResources: [cluster] })));
  }

  send(bytes: Buffer): void {
    for (const stream of this.#streams) stream.write(bytes);
  }

  /** A push of one cluster, in bytes. */
  static bytes(cluster: string, endpoints: readonly Endpoint[], nonce = 'n'): Buffer {
    const resources = [resourceOf(cluster, endpoints)];
    return encode('DeltaDiscoveryResponse', { typeUrl: ENDPOINTS, nonce, resources });
  }

  #take(call: ServerDuplexStream<Buffer, Buffer>): void {
    this.#streams.add(call);
    for (const event of ['error', 'cancelled']) call.on(event, () => this.#streams.delete(call));
    call.on('data', (bytes: Buffer) => {
      const type = root.lookupType('DeltaDiscoveryRequest');
      const request = type.toObject(type.decode(bytes), { arrays: true, defaults: false }) as Request;
      this.requests.push(request);
      for (const name of request.resourceNamesUnsubscribe) this.#subscribed.delete(name);
      for (const name of request.resourceNamesSubscribe) this.#subscribed.add(name);
      this.#answer(request.resourceNamesSubscribe.filter((name) => !this.silent.has(name)));
    });
    call.on('end', () => call.end());
  }

  #response(more: object): object {
    this.#nonce += 1;
    return { typeUrl: ENDPOINTS, nonce: `n${this.#nonce}`, ...more };
  }

  #answer(names: readonly string[]): void {
    if (names.length === 0) return;
    const resources = names.map((name) => resourceOf(name, this.#clusters.get(name) ?? []));
    this.send(encode('DeltaDiscoveryResponse', this.#response({ resources })));
  }
}

function resourceOf(name: string, endpoints: readonly Endpoint[]): object {
  const lbEndpoints = endpoints.map((each) => {
    const [address, healthStatus] = typeof each === 'string' ? ([each, 1] as const) : each;
    const socketAddress = { protocol: 0, address, portValue: 8080 };
    return { endpoint: { address: { socketAddress } }, healthStatus, weight: 300 };
  });
  // Two localities, as pods of two zones are.
  const half = Math.ceil(lbEndpoints.length / 2);
  const localities = [lbEndpoints.slice(0, half), lbEndpoints.slice(half)].map((of, index) => ({
    locality: { region: `zone-${index}` },
    lbEndpoints: of,
  }));
  const value = encode('ClusterLoadAssignment', { clusterName: name, endpoints: localities });
  return { name, version: '1', resource: { typeUrl: ENDPOINTS, value } };
}

function bearerOf(metadata: Metadata): string | undefined {
  return String(metadata.get('authorization')[0] ?? '').replace(/^Bearer /, '');
}

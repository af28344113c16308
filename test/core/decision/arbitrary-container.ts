import fc, { type Arbitrary } from 'fast-check';
import { members, oftenAbsent } from './arbitrary-json.ts';
import { type ContainerObject, exec, type JsonObject, sleep } from './sample-pod.ts';

/** What a container's members depend on. */
export interface ContainerMembers {
  /** The pod's grace: the API server rejects a native sleep that is longer. */
  readonly grace: number;
  /** The names of the pod's volumes. */
  readonly volumes: readonly string[];
}

const port = fc.integer({ min: 1, max: 65_535 });

/** Ports of one container: names and numbers unique; a pod without a host network needs no host ports. */
const PORTS = fc
  .uniqueArray(port, { maxLength: 3 })
  .chain((numbers) =>
    fc.tuple(
      ...numbers.map((containerPort, index) =>
        fc
          .record({ protocol: oftenAbsent(fc.constantFrom('TCP', 'UDP', 'SCTP')), named: fc.boolean() })
          .map(({ protocol, named }) =>
            members({ containerPort, protocol, name: named ? `port-${index}` : undefined }),
          ),
      ),
    ),
  );

const PROBE_ACTION: Arbitrary<JsonObject> = fc.oneof(
  port.map((number) => ({ httpGet: { path: '/healthz', port: number, scheme: 'HTTP' } })),
  port.map((number) => ({ tcpSocket: { port: number } })),
  port.map((number) => ({ grpc: { port: number } })),
  fc.constant(exec('cat', '/run/healthy')),
);

const TIMING = fc
  .record({
    periodSeconds: oftenAbsent(fc.integer({ min: 1, max: 60 })),
    timeoutSeconds: oftenAbsent(fc.integer({ min: 1, max: 10 })),
    failureThreshold: oftenAbsent(fc.integer({ min: 1, max: 10 })),
    initialDelaySeconds: oftenAbsent(fc.integer({ min: 0, max: 60 })),
  })
  .map(members);

const READINESS = fc.tuple(PROBE_ACTION, TIMING).map(([action, timing]) => ({ ...action, ...timing }));

/** Only liveness and startup probes may have a grace of their own. */
const KILLING_PROBE = fc
  .tuple(READINESS, oftenAbsent(fc.integer({ min: 1, max: 120 })))
  .map(([probe, terminationGracePeriodSeconds]) => members({ ...probe, terminationGracePeriodSeconds }));

const WORDS = fc.array(fc.string({ minLength: 1, maxLength: 12 }), { minLength: 1, maxLength: 3 });

/** Hooks of every kind: the forms that Extend knows, near misses, and what it must never touch. */
function handlers(grace: number): Arbitrary<JsonObject> {
  const seconds = fc.integer({ min: 0, max: grace });
  const text = fc.integer({ min: 0, max: 100 }).map(String);
  return fc.oneof(
    seconds.map(sleep),
    text.map((each) => exec('sleep', each)),
    text.map((each) => exec('/bin/sleep', each)),
    text.map((each) => exec('sh', '-c', `sleep ${each}`)),
    text.map((each) => exec('/bin/sh', '-c', `sleep ${each}; nginx -s quit`)),
    text.map((each) => exec('sleep', `${each}s`)),
    WORDS.map((words) => exec(...words)),
    port.map((number) => ({ httpGet: { path: '/drain', port: number } })),
    port.map((number) => ({ tcpSocket: { port: number } })),
  );
}

function lifecycles(grace: number): Arbitrary<JsonObject | null> {
  const started = fc.oneof(
    fc.constant(exec('/bin/true')),
    fc.constant({ httpGet: { path: '/warm', port: 8080 } }),
  );
  return fc.oneof(
    handlers(grace).map((preStop) => ({ preStop })),
    fc.tuple(handlers(grace), started).map(([preStop, postStart]) => ({ postStart, preStop })),
    started.map((postStart) => ({ postStart })),
    started.map((postStart) => ({ postStart, preStop: null })),
    fc.constant(null),
  );
}

const RESOURCES = fc.constantFrom(
  {},
  { requests: { cpu: '10m', memory: '16Mi' } },
  { requests: { cpu: '10m' }, limits: { cpu: '1', memory: '64Mi' } },
);

const ENVIRONMENT = fc.constantFrom<JsonObject[]>(
  [],
  [{ name: 'A', value: '~/"quoted"' }],
  [{ name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
);

function common(name: string, volumes: readonly string[]): Arbitrary<ContainerObject> {
  const mounts = fc
    .subarray([...volumes])
    .map((chosen) => chosen.map((volume) => ({ name: volume, mountPath: `/mnt/${volume}` })));
  return fc
    .record({
      command: oftenAbsent(WORDS),
      args: oftenAbsent(WORDS),
      env: oftenAbsent(ENVIRONMENT),
      resources: oftenAbsent(RESOURCES),
      volumeMounts: oftenAbsent(mounts),
      imagePullPolicy: oftenAbsent(fc.constantFrom('Always', 'IfNotPresent', 'Never')),
      workingDir: oftenAbsent(fc.constant('/srv')),
      ports: oftenAbsent(fc.oneof(PORTS, fc.constant(null))),
    })
    .map((optional) => ({ name, image: `registry.example/team/${name}:1.2.3`, ...members(optional) }));
}

/** What containers have that run as long as the pod. */
function running(grace: number): Arbitrary<JsonObject> {
  return fc
    .record({
      readinessProbe: oftenAbsent(fc.oneof(READINESS, fc.constant(null))),
      livenessProbe: oftenAbsent(KILLING_PROBE),
      startupProbe: oftenAbsent(KILLING_PROBE),
      lifecycle: oftenAbsent(lifecycles(grace)),
    })
    .map(members);
}

/** A member of spec.containers. */
export function ordinaryContainer(
  name: string,
  { grace, volumes }: ContainerMembers,
): Arbitrary<ContainerObject> {
  return fc.tuple(common(name, volumes), running(grace)).map(([basic, more]) => ({ ...basic, ...more }));
}

/** A member of spec.initContainers: one that ends, or a native sidecar, which may have hooks and probes. */
export function startingContainer(
  name: string,
  { grace, volumes }: ContainerMembers,
): Arbitrary<ContainerObject> {
  const sidecar = running(grace).map((more): JsonObject => ({ restartPolicy: 'Always', ...more }));
  return fc
    .tuple(common(name, volumes), fc.oneof(fc.constant<JsonObject>({}), sidecar))
    .map(([basic, more]) => ({ ...basic, ...more }));
}

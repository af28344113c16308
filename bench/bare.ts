import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { parseArgs } from 'node:util';

// The floor for an HTTPS webhook on Node: node:https, JSON.parse, the same mutation as Linger's, nothing else.
// No policy, no checks, no limits, no metrics: what Linger's work costs is the distance from here.

interface Pod {
  metadata: { annotations?: Record<string, string> };
  spec: {
    containers: { name: string; lifecycle?: { preStop?: object } }[];
    terminationGracePeriodSeconds?: number;
  };
}
type Operation = { op: 'add' | 'replace'; path: string; value: unknown };

const WAIT_SECONDS = 30; // Linger's wait while it has measured nothing (`initial`)
const DEFAULT_GRACE_SECONDS = 30; // what the API server sets when the author set nothing

function patchOf({ metadata, spec }: Pod): Operation[] {
  const operations: Operation[] = [];
  const preStop = { sleep: { seconds: WAIT_SECONDS } };
  const hooked: string[] = [];
  for (const [index, { name, lifecycle }] of spec.containers.entries()) {
    if (lifecycle?.preStop) continue;
    hooked.push(name);
    const path = `/spec/containers/${index}/lifecycle`;
    if (lifecycle) operations.push({ op: 'add', path: `${path}/preStop`, value: preStop });
    else operations.push({ op: 'add', path, value: { preStop } });
  }
  const baseGrace = spec.terminationGracePeriodSeconds ?? DEFAULT_GRACE_SECONDS;
  const grace = baseGrace + WAIT_SECONDS;
  operations.push({ op: 'add', path: '/spec/terminationGracePeriodSeconds', value: grace });
  const plan = JSON.stringify({
    v: 1,
    wait: WAIT_SECONDS,
    grace,
    baseGrace,
    hook: 'Sleep',
    containers: hooked,
  });
  if (metadata.annotations)
    operations.push({ op: 'add', path: '/metadata/annotations/linger.dev~1plan', value: plan });
  else operations.push({ op: 'add', path: '/metadata/annotations', value: { 'linger.dev/plan': plan } });
  return operations;
}

function answer(body: string): string {
  const { request } = JSON.parse(body) as { request: { uid: string; object: Pod } };
  const patch = Buffer.from(JSON.stringify(patchOf(request.object))).toString('base64');
  const response = { uid: request.uid, allowed: true, patchType: 'JSONPatch', patch };
  return JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response });
}

const { values } = parseArgs({
  options: {
    host: { type: 'string', default: '127.0.0.1' },
    port: { type: 'string', default: '9443' },
    cert: { type: 'string', default: 'tls.crt' },
    key: { type: 'string', default: 'tls.key' },
  },
});
createServer({ cert: readFileSync(values.cert), key: readFileSync(values.key) }, (request, response) => {
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const text = answer(Buffer.concat(chunks).toString());
    response.writeHead(200, {
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    });
    response.end(text);
  });
}).listen(Number(values.port), values.host);

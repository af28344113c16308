import { createHash, randomBytes } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import http from 'node:http';
import { type AddressInfo, connect as connectTcp } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, serving, until } from '../cli/linger.ts';
import { holdOf } from '../hold/arena.ts';
import { freePort, HostileCluster, made, service, slice, TERMINATING } from './attacks/hostile-cluster.ts';
import { atEndOfFile, connect, requestBytes } from './connection.ts';
import { listening } from './listening.ts';
import { bodyOf } from './reviews.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();
/** The lines of a key's body. */
function linesOf(key: string): readonly string[] {
  const lines = key.split('\n').filter((line) => /^[\w+/=]{32,}$/.test(line));
  expect(lines.length).toBeGreaterThan(1);
  return lines;
}

const secret = () => randomBytes(16).toString('base64url');

it('a replica that leads, holds, inspects and fails prints no secret, whatever the level of its log', async () => {
  const [kubeToken, reportToken, pageToken, holdToken, unknownToken, keyText] = [
    secret(),
    secret(),
    secret(),
    secret(),
    secret(),
    secret(),
  ];
  const seen: string[] = [];
  const page = http.createServer((request, response) => {
    seen.push(request.headers.authorization ?? '');
    response.writeHead(500).end(`no: ${request.headers.authorization}`);
  });
  await listening(page, atEnd);
  const url = `http://127.0.0.1:${(page.address() as AddressInfo).port}/page`;

  const cluster = await HostileCluster.start(atEnd);
  const inspect = { url, syncInterval: '1s', format: 'Text', tokenFile: 'page-token' };
  const spec = { appliesTo: { namespaceSelector: {} }, measure: { inspect } };
  const { plan } = holdOf(holdToken);
  const hash = createHash('sha256').update(holdToken).digest('hex');
  const annotations = `"annotations":${JSON.stringify({ 'linger.dev/plan': plan, 'linger.dev/hold-token': hash })}`;
  const pod = (more = '') => made('shop', 'web', `"labels":{"app":"web"},${annotations}${more}`);
  cluster.list('discoveryconsumers', [() => made('', 'edge', '', `"spec":${JSON.stringify(spec)}`)]);
  cluster.list('namespaces', [() => made('', 'shop')]);
  cluster.list('services', [() => service('shop', 'web')]);
  cluster.list('endpointslices', [() => slice('shop', 'web', 'web', ['web'])]);
  cluster.list('pods', [() => pod()]);

  const directory = await emptyDirectory(atEnd);
  const config = JSON.parse(cluster.kubeconfig) as { contexts: [{ context: object }] };
  const users = [{ name: 'me', user: { token: kubeToken } }];
  config.contexts[0].context = { cluster: 'model', user: 'me' };
  await writeFile(join(directory, 'config'), JSON.stringify({ ...config, users }));
  await writeFile(join(directory, 'page-token'), pageToken);
  const holdPort = await freePort();
  const server = await serving(
    certs(),
    [
      ...['--log-level', 'trace', '--kubeconfig', join(directory, 'config'), '--inspect-files', directory],
      ...['--namespace', 'linger', '--identity', 'replica', '--hold-port', String(holdPort), '--drain', '1s'],
      ...['--canary-port', String(await freePort()), '--canary-every', '0', '--audit-every', '0'],
    ],
    { atEnd },
  );
  const logged = (text: string) => until(async () => server.stdout().includes(text));
  await logged('leading');
  expect(cluster.credentials).toContain(`Bearer ${kubeToken}`);
  const key = await readFile(join(certs(), 'tls.key'), 'utf8');

  // A review, a report that is refused, calls of helpers, and a page that cannot be read.
  const connection = await connect(server, atEnd);
  connection.write(requestBytes(bodyOf()));
  await connection.answer();
  const report = `POST /v1/consumers/edge/reports HTTP/1.1\r\nHost: l\r\nAuthorization: Bearer ${reportToken}\r\nContent-Length: 2\r\n\r\n{}`;
  const reporting = await connect(server, atEnd);
  reporting.write(report);
  await reporting.answer();
  for (const token of [holdToken, unknownToken]) {
    const call = connectTcp(holdPort, '127.0.0.1').on('error', () => undefined);
    call.write(`linger-hold/1 ${token}\n`);
    atEnd(() => call.destroy());
  }
  await cluster.send('pods', 'MODIFIED', [() => pod(`,${TERMINATING}`)]);
  await cluster.send('endpointslices', 'MODIFIED', [() => slice('shop', 'web', 'web', ['web'], false)]);
  await until(async () => seen.includes(`Bearer ${pageToken}`));

  // Files of certificates that cannot be used, and an API server that is gone.
  await writeFile(
    join(certs(), 'tls.key'),
    `-----BEGIN PRIVATE KEY-----\n${keyText}\n-----END PRIVATE KEY-----\n`,
  );
  await logged('certificate files unusable');
  await cluster.stop();
  await logged('watch failed');
  await sleep(500);
  server.kill('SIGTERM');
  await server.exited;

  const printed = server.stdout() + server.stderr();
  expect(printed).toContain('"level":"debug"');
  const secrets = [kubeToken, reportToken, pageToken, holdToken, unknownToken, keyText, ...linesOf(key)];
  expect(secrets.filter((each) => printed.includes(each))).toEqual([]);
});

it('nor does one that shares its certificates by a Secret', async () => {
  const cluster = await HostileCluster.start(atEnd);
  const directory = await emptyDirectory(atEnd);
  await writeFile(join(directory, 'config'), cluster.kubeconfig);
  const server = await serving(
    directory,
    [
      ...['--log-level', 'trace', '--kubeconfig', join(directory, 'config')],
      ...['--namespace', 'linger', '--identity', 'replica', '--certs-secret', 'linger-certificates'],
      ...['--canary-port', String(await freePort()), '--canary-every', '0', '--audit-every', '0'],
    ],
    { atEnd },
  );
  const path = '/api/v1/namespaces/linger/secrets/linger-certificates';
  await until(async () => server.stdout().includes('shared certificates written'));
  const { data = {} } = cluster.stored(path) as { data?: Record<string, string> };
  const keys = ['tls.key', 'ca.key'].flatMap((name) => {
    const text = Buffer.from(data[name] ?? '', 'base64').toString();
    return [...linesOf(text), (data[name] ?? '').slice(0, 64)];
  });
  // A broken certificate is issued again, and logged.
  cluster.store(path, { ...(cluster.stored(path) as object), data: { ...data, 'tls.key': data['ca.key'] } });
  await server.logged('shared certificates written', 2);
  server.kill('SIGINT');
  await server.exited;
  const printed = server.stdout() + server.stderr();
  expect(keys.filter((each) => printed.includes(each))).toEqual([]);
});

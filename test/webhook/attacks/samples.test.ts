import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { sharedCertificates } from '../../cli/certificates.ts';
import { emptyDirectory, serving, until } from '../../cli/linger.ts';
import { atEndOfFile } from '../connection.ts';
import {
  EVIL_PODS,
  EVIL_SERVICES,
  ending,
  evilSlices,
  freePort,
  HostileCluster,
  made,
  service,
  WEB,
  webSlices,
} from './hostile-cluster.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();

/** How long the slices go on listing the pods of the other namespace. */
const LAG_SECONDS = 3;

it('60,000 removals that one tenant leaves open cost another namespace none of its samples', {
  timeout: 300_000,
}, async () => {
  const cluster = await HostileCluster.start(atEnd);
  cluster.list(
    'pods',
    WEB.map((name) => () => made('shop', name, '"labels":{"app":"web"}')),
  );
  cluster.list('services', [
    () => service('shop', 'web'),
    ...EVIL_SERVICES.map((name) => () => service('evil', name, 'x')),
  ]);
  cluster.list(
    'namespaces',
    ['shop', 'evil'].map((name) => () => made('', name)),
  );
  cluster.list('endpointslices', [...evilSlices, ...webSlices(true)]);
  const directory = await emptyDirectory(atEnd);
  await writeFile(join(directory, 'config'), cluster.kubeconfig);
  const server = await serving(
    certs(),
    [
      ...['--kubeconfig', join(directory, 'config'), '--namespace', 'linger', '--identity', 'replica'],
      ...['--canary-port', String(await freePort()), '--canary-every', '0', '--audit-every', '0'],
    ],
    { atEnd },
  );
  await until(async () => server.logs().some(({ msg }) => String(msg).includes('leading')));
  const discarded = (reason: string) => server.count(`linger_removals_discarded_total{reason="${reason}"}`);
  const samples = () => server.count('linger_removal_lag_seconds_count{stage="EndpointSlice"}');

  await cluster.send('pods', 'MODIFIED', ending('evil', EVIL_PODS, 'x'));
  await until(async () => (await discarded('TooMany')) === 35_000);
  // A watch that a busy machine makes late costs a sample, and is counted as that: then the next hundred pods are removed.
  let removed = 0;
  for (const slice of webSlices(false)) {
    await cluster.send('pods', 'MODIFIED', ending('shop', WEB.slice(removed, removed + 100), 'web'));
    await sleep(LAG_SECONDS * 1_000);
    await cluster.send('endpointslices', 'MODIFIED', [slice]);
    removed += 100;
    await until(async () => (await samples()) + (await discarded('Late')) === removed);
    if ((await samples()) > 0) break;
  }
  expect(await discarded('TooMany')).toBe(35_000);
  expect(await samples()).toBeGreaterThan(0);
  const total = await server.count('linger_removal_lag_seconds_sum{stage="EndpointSlice"}');
  expect(total / (await samples())).toBeGreaterThan(LAG_SECONDS / 2);
});

import { expect, it, onTestFinished, vi } from 'vitest';
import { issueSecret } from '../../src/certs/issue.ts';
import { planRotation } from '../../src/certs/rotation-plan.ts';
import { SecretSource } from '../../src/certs/secret-source.ts';
import { createLogger, createMetrics } from '../../src/telemetry/index.ts';

import { type ApiObject, ModelApi } from '../leader/model-api.ts';
import { DAY_MS, days } from './fixture.ts';

vi.setConfig({ testTimeout: 60_000 });

const SECRET = '/api/v1/namespaces/linger/secrets/linger-certificates';
const CONFIGURATION = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/linger';
const encoded = (text: string) => Buffer.from(text).toString('base64');
const textIn = (api: ModelApi, key: string) => {
  const data = api.objects.get(SECRET)?.data as Record<string, string>;
  return Buffer.from(data[key] ?? '', 'base64').toString();
};

/** An API server whose Secret holds nothing that can be used, but something of others. */
async function withUselessSecret(): Promise<ModelApi> {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  const metadata = { name: 'linger-certificates', labels: { team: 'a' } };
  const data = { 'tls.crt': encoded('no certificate'), theirs: encoded('kept') };
  api.put(SECRET, { apiVersion: 'v1', kind: 'Secret', metadata, data });
  return api;
}

async function openSource(api: ModelApi, lines: string[] = [], openWithinMs = 30_000) {
  const stopping = new AbortController();
  onTestFinished(() => stopping.abort());
  const surroundings = {
    logger: createLogger('info', { write: (line: string) => void lines.push(line) }),
    metrics: createMetrics('test'),
    signal: stopping.signal,
  };
  const source = await SecretSource.open({
    ...surroundings,
    connection: { server: api.url, credentials: async () => ({}) },
    namespace: 'linger',
    identity: 'a',
    secret: 'linger-certificates',
    configuration: 'linger',
    names: ['linger.linger.svc'],
    openWithinMs,
  });
  return { source, surroundings, stopping };
}

it('replaces what it cannot use in the Secret, and keeps what others have put there', async () => {
  const api = await withUselessSecret();
  const { source } = await openSource(api);
  expect(source.get().origin).toBe('shared');
  expect(source.get().cert).toBe(textIn(api, 'tls.crt'));
  expect(source.commonKeys).toEqual([textIn(api, 'common.key')]);
  expect(textIn(api, 'theirs')).toBe('kept');
  expect(api.objects.get(SECRET)?.metadata.labels).toEqual({ team: 'a' });
});

it('makes what is missing once, however late its watch is', async () => {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  putConfiguration(api, '');
  api.isLate = (path) => path === SECRET;
  let writes = 0;
  api.before = ({ method, path }) => {
    if (method === 'PATCH' && path === SECRET) writes += 1;
  };
  const { source, surroundings } = await openSource(api);
  void source.follow(() => undefined, surroundings);
  const { registry } = surroundings.metrics;
  await vi.waitFor(async () => expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 1$/m), {
    timeout: 10_000,
  });
  expect(writes).toBe(1);
  expect(source.get().cert).toBe(textIn(api, 'tls.crt'));
});

it('looks again when another replica was faster', async () => {
  const api = await withUselessSecret();
  let patches = 0;
  api.before = ({ method }) => {
    if (method === 'PATCH' && patches++ === 0) api.put(SECRET, api.objects.get(SECRET) as ApiObject);
  };
  const { source } = await openSource(api);
  expect(patches).toBeGreaterThanOrEqual(2);
  expect(source.get().cert).toBe(textIn(api, 'tls.crt'));
});

it('leaves nothing behind on the signal of the process with each look', async () => {
  const { source, surroundings, stopping } = await openSource(await withUselessSecret());
  const joined = vi.spyOn(AbortSignal, 'any');
  onTestFinished(() => joined.mockRestore());
  const looked = vi.spyOn(surroundings.metrics.certificateTrusted, 'set');
  const ended = source.follow(() => undefined, surroundings);
  await vi.waitFor(() => expect(looked).toHaveBeenCalled());
  await new Promise((resolve) => setImmediate(resolve));
  stopping.abort();
  await ended;
  expect(joined).not.toHaveBeenCalled();
});

it('shows its watches, as others are shown', async () => {
  const api = await withUselessSecret();
  const { source, surroundings } = await openSource(api);
  void source.follow(() => undefined, surroundings);
  expect(Object.keys(source.watches())).toEqual(['secrets', 'mutatingwebhookconfigurations']);
});

it('says that there is no webhook configuration, and knows one', async () => {
  const api = await withUselessSecret();
  const lines: string[] = [];
  const { source, surroundings } = await openSource(api, lines);
  expect(source.configured()).toBe(false);
  void source.follow(() => undefined, surroundings);
  await vi.waitFor(() =>
    expect(lines.join('')).toMatch(/webhook configuration missing; no pod creation reaches/),
  );
  const clientConfig = { caBundle: encoded(source.get().caBundle) };
  const webhooks = [{ name: 'pods.linger.dev', clientConfig }];
  api.put(CONFIGURATION, { metadata: { name: 'linger' }, webhooks });
  expect((await openSource(api)).source.configured()).toBe(true);
});

it('shows whether it is trusted only where somebody looks', async () => {
  const { registry, certificateTrusted } = createMetrics('test');
  expect(await registry.metrics()).not.toMatch(/^linger_certificate_trusted/m);
  certificateTrusted.set(0);
  expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 0$/m);
});

/** Trusts nothing of Linger's. */
function putConfiguration(api: ModelApi, caBundle: string): void {
  const webhooks = [{ name: 'pods.linger.dev', clientConfig: { caBundle: encoded(caBundle) } }];
  api.put(CONFIGURATION, { metadata: { name: 'linger' }, webhooks });
}

it('shows that it is trusted once the watch has brought what it has written', async () => {
  const api = await withUselessSecret();
  putConfiguration(api, '');
  const { source, surroundings } = await openSource(api);
  void source.follow(() => undefined, surroundings);
  const { registry } = surroundings.metrics;
  await vi.waitFor(async () => expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 1$/m), {
    timeout: 10_000,
  });
  // If it were repaired at once, the metric would never show it.
  api.refuse = ({ method, path }) =>
    method === 'PATCH' && path === CONFIGURATION ? { status: 503 } : undefined;
  putConfiguration(api, source.get().caBundle.slice(0, 100));
  await vi.waitFor(async () => expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 0$/m), {
    timeout: 10_000,
  });
  api.refuse = () => undefined;
  await vi.waitFor(async () => expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 1$/m), {
    timeout: 10_000,
  });
});

it('says that it is not trusted where it may not change that', async () => {
  const api = await withUselessSecret();
  putConfiguration(api, '');
  api.refuse = ({ method, path }) =>
    method === 'PATCH' && path === CONFIGURATION ? { status: 403 } : undefined;
  const lines: string[] = [];
  const { source, surroundings } = await openSource(api, lines);
  void source.follow(() => undefined, surroundings);
  const { registry } = surroundings.metrics;
  await vi.waitFor(async () => expect(await registry.metrics()).toMatch(/^linger_certificate_trusted 0$/m));
  expect(lines.join('')).toMatch(/renewing the shared certificates failed/);
});

it('serves what is good though it may not write what is due', async () => {
  const api = await withUselessSecret();
  const nothing = { secret: undefined, trust: undefined, serving: undefined, names: ['linger.linger.svc'] };
  const made = days(-250, new Date());
  // Its authority is due at two thirds of its year, its certificate is not.
  const old = await issueSecret(planRotation(nothing, made).issue!, {}, made, 400 * DAY_MS);
  const data = Object.fromEntries(Object.entries(old).map(([file, text]) => [file, encoded(text)]));
  api.put(SECRET, { metadata: { name: 'linger-certificates' }, data });
  api.refuse = ({ method, path }) => (method === 'PATCH' && path === SECRET ? { status: 403 } : undefined);
  const { source } = await openSource(api);
  expect(source.get().cert).toBe(old['tls.crt']);
});

it('signs with the key of the certificate where the Secret holds no other any more', async () => {
  const api = await withUselessSecret();
  const { source: first } = await openSource(api);
  const [own = ''] = first.commonKeys;
  const { data, ...rest } = api.objects.get(SECRET) as ApiObject;
  const { 'common.key': _, ...without } = data as Record<string, string>;
  api.put(SECRET, { ...rest, data: without });
  const { source: second } = await openSource(api);
  expect(second.commonKeys).toEqual([second.get().key]);
  await vi.waitFor(() => expect(first.commonKeys).toEqual([second.get().key, own]));
});

const caBundleIn = (api: ModelApi) => {
  const webhooks = api.objects.get(CONFIGURATION)?.webhooks ?? [];
  const [webhook] = webhooks as { clientConfig: { caBundle: string } }[];
  return Buffer.from(webhook?.clientConfig.caBundle ?? '', 'base64').toString();
};

it('puts the caBundle back though it may not even read the Secret any more', async () => {
  const api = await withUselessSecret();
  putConfiguration(api, '');
  const { source, surroundings } = await openSource(api);
  expect(caBundleIn(api)).toBe(source.get().caBundle);
  api.refuse = ({ path }) => (path === SECRET ? { status: 403 } : undefined);
  putConfiguration(api, '');
  void source.follow(() => undefined, surroundings);
  await vi.waitFor(() => expect(caBundleIn(api)).toBe(source.get().caBundle), { timeout: 10_000 });
});

it('serves, and renews, though it may not read the webhook configuration, and does not say that there is none', async () => {
  const api = await withUselessSecret();
  api.refuse = ({ path }) => (path === CONFIGURATION ? { status: 403 } : undefined);
  const lines: string[] = [];
  const { source, surroundings } = await openSource(api, lines);
  expect(source.get().cert).toBe(textIn(api, 'tls.crt'));
  expect(source.configured()).toBeUndefined();
  void source.follow(() => undefined, surroundings);
  await vi.waitFor(() => expect(lines.join('')).toMatch(/renewing the shared certificates failed/));
  expect(lines.join('')).not.toMatch(/webhook configuration missing/);
  expect(await surroundings.metrics.registry.metrics()).not.toMatch(/^linger_certificate_trusted/m);
});

it('names the Secret only where that is what it may not read', async () => {
  const api = await withUselessSecret();
  api.refuse = ({ path }) => (path === SECRET ? { status: 403 } : undefined);
  await expect(openSource(api, [], 500)).rejects.toThrow(
    /linger-certificates can neither be read nor made: .*403/,
  );
});

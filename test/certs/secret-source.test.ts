import { expect, it, onTestFinished, vi } from 'vitest';
import { SecretSource } from '../../src/certs/secret-source.ts';
import { createLogger } from '../../src/telemetry/logs.ts';
import { createMetrics } from '../../src/telemetry/registry.ts';
import { type ApiObject, ModelApi } from '../leader/model-api.ts';

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

async function openSource(api: ModelApi, lines: string[] = []) {
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
    openWithinMs: 30_000,
  });
  return { source, surroundings, stopping };
}

it('replaces what it cannot use in the Secret, and keeps what others have put there', async () => {
  const api = await withUselessSecret();
  const { source } = await openSource(api);
  expect(source.get().origin).toBe('shared');
  expect(source.get().cert).toBe(textIn(api, 'tls.crt'));
  expect(source.commonKey()).toBe(textIn(api, 'common.key'));
  expect(textIn(api, 'theirs')).toBe('kept');
  expect(api.objects.get(SECRET)?.metadata.labels).toEqual({ team: 'a' });
});

it('looks again when another replica was faster', async () => {
  const api = await withUselessSecret();
  let patches = 0;
  api.before = ({ method }) => {
    if (method === 'PATCH' && patches++ === 0) api.put(SECRET, api.objects.get(SECRET) as ApiObject);
  };
  const { source } = await openSource(api);
  expect(patches).toBe(2);
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

it('says that there is no webhook configuration, and knows one', async () => {
  const api = await withUselessSecret();
  const lines: string[] = [];
  const { source, surroundings } = await openSource(api, lines);
  expect(source.configured()).toBe(false);
  void source.follow(() => undefined, surroundings);
  await vi.waitFor(() => expect(lines.join('')).toMatch(/there is no webhook configuration: no pod reaches/));
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

import { hkdfSync, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type CertificateSource, FileSource, type SigningKeys } from '../certs/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import { asError, LingerError } from '../core/api/index.ts';
import { fileText } from '../core/yaml/index.ts';
import { isUnspecified } from './addresses.ts';
import type { ServerContext } from './context.ts';

/** @throws LingerError, CertificateError */
export async function openCertificates(
  server: ServerContext,
  connection: KubeConnection | undefined,
): Promise<CertificateSource> {
  const { certs: directory, certsSecret, certNames, host } = server.options;
  // The certificate must also cover the listening address, unless that is a wildcard.
  const names = isUnspecified(host) ? certNames : [...certNames, host];
  return certsSecret === undefined
    ? FileSource.open({ directory, names }, new Date())
    : openSecret(certsSecret, names, connection, server);
}

async function openSecret(
  secret: string,
  names: readonly string[],
  connection: KubeConnection | undefined,
  { options, logger, metrics, signal }: ServerContext,
): Promise<CertificateSource> {
  const { placeOf } = await import('./cluster.ts');
  const place = connection && placeOf(options, connection);
  if (connection === undefined || place === undefined)
    throw new LingerError(
      'settings-invalid',
      "--certs-secret: expected a cluster, and Linger's own --namespace in it, got none",
    );
  const { SecretSource } = await import('../certs/index.ts');
  return SecretSource.open({
    connection,
    ...place,
    secret,
    configuration: options.webhookConfiguration,
    names,
    logger,
    metrics,
    openWithinMs: options.syncTimeout * 1000,
    signal,
  });
}

/**
 * Keys derived from the same secret in all replicas, so that each can verify what another has signed.
 * @param what they sign; no other keys sign that
 */
export function keysFor(what: string, certificates: CertificateSource): () => SigningKeys {
  const derived = (key: string) => Buffer.from(hkdfSync('sha256', key, '', what, 32));
  let latest: { readonly from: CertificateSource['commonKeys']; readonly keys: SigningKeys } | undefined;
  return () => {
    const from = certificates.commonKeys;
    const [newest, ...older] = from;
    if (latest?.from !== from) latest = { from, keys: [derived(newest), ...older.map(derived)] };
    return latest.keys;
  };
}

/** @throws LingerError `settings-invalid` */
export async function readClientCa(file: string): Promise<string> {
  try {
    const text = fileText(await readFile(file));
    for (const [certificate] of text.matchAll(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g))
      if (new X509Certificate(certificate).ca) return text;
  } catch (cause) {
    throw new LingerError(
      'settings-invalid',
      `--client-ca: ${file} cannot be read: ${asError(cause).message}`,
    );
  }
  throw new LingerError('settings-invalid', `--client-ca: ${file} holds no certificate of an authority`);
}

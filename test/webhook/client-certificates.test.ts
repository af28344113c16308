import forge from 'node-forge';
import { beforeAll, describe, expect, it } from 'vitest';
import { type Authority, issueAuthority, type KeyPair } from '../../src/certs/index.ts';
import { connect, requestBytes } from './connection.ts';
import { bodyOf, UID } from './reviews.ts';
import { responseOf, startWebhook } from './webhook.ts';

/** A certificate as openssl issues it for the API server: for no purpose in particular. */
function clientOf({ certificate: issuer, key }: Authority): KeyPair {
  const keys = forge.pki.rsa.generateKeyPair(2048);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = keys.publicKey;
  certificate.serialNumber = '02';
  certificate.validity = {
    notBefore: new Date(Date.now() - 60_000),
    notAfter: new Date(Date.now() + 3_600_000),
  };
  certificate.setSubject([{ name: 'commonName', value: 'kube-apiserver' }]);
  certificate.setIssuer(forge.pki.certificateFromPem(issuer).subject.attributes);
  certificate.sign(forge.pki.privateKeyFromPem(key), forge.md.sha256.create());
  return { cert: forge.pki.certificateToPem(certificate), key: forge.pki.privateKeyToPem(keys.privateKey) };
}

describe('a webhook that takes reviews only from clients with a certificate', () => {
  const ask = async (connection: Awaited<ReturnType<typeof connect>>) => {
    connection.write(requestBytes(bodyOf()));
    return connection.answer();
  };

  let authority: Authority;
  let client: KeyPair;
  let foreign: KeyPair;
  beforeAll(async () => {
    authority = await issueAuthority(new Date());
    client = clientOf(authority);
    foreign = clientOf(await issueAuthority(new Date()));
  });
  const start = (more = {}) => startWebhook({ clientCa: authority.certificate, ...more });

  it('answers a client with one, again after its own certificate has been renewed', async () => {
    const webhook = await start();
    for (const _ of [1, 2]) {
      const connection = await connect(webhook, undefined, client);
      expect(responseOf(await ask(connection)).uid).toBe(UID);
      webhook.renew();
    }
  });

  it('refuses one without: 403, and the connection is closed', async () => {
    const webhook = await start();
    const connection = await connect(webhook);
    const { status, body } = await ask(connection);
    expect([status, body]).toEqual([403, expect.stringContaining('--client-ca')]);
    await connection.closed;
    expect(await webhook.count('linger_http_responses_total{code="403"}')).toBe(1);
  });

  it('refuses one of another authority', async () => {
    const webhook = await start();
    expect((await ask(await connect(webhook, undefined, foreign))).status).toBe(403);
  });

  it('takes reports from clients without one', async () => {
    const reports = (_: unknown, response: { end: (text: string) => void }) => response.end('{}');
    const webhook = await start({ reports });
    expect((await webhook.request('POST', '/v1/consumers/edge/reports', '{}')).status).toBe(200);
  });
});

describe('what TLS is spoken', () => {
  const ECDHE = 'ECDHE-RSA-AES128-GCM-SHA256';
  it.each([
    ['TLS 1.3', { minVersion: 'TLSv1.3' }, 'ok'],
    ['TLS 1.2 with forward secrecy', { maxVersion: 'TLSv1.2', ciphers: ECDHE }, 'ok'],
    ['TLS 1.2 with RSA key exchange', { maxVersion: 'TLSv1.2', ciphers: 'AES128-GCM-SHA256' }, 'refused'],
    ['TLS 1.2 in CBC mode', { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-RSA-AES128-SHA' }, 'refused'],
    ['TLS 1.1', { minVersion: 'TLSv1.1', maxVersion: 'TLSv1.1', ciphers: 'ALL@SECLEVEL=0' }, 'refused'],
  ] as const)('%s: %s', async (_what, options, expected) => {
    const webhook = await startWebhook();
    for (const renewed of [false, true]) {
      if (renewed) webhook.renew();
      const outcome = await connect(webhook, undefined, options).then(
        () => 'ok',
        () => 'refused',
      );
      expect(outcome).toBe(expected);
    }
  });
});

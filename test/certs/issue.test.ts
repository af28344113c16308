import { X509Certificate } from 'node:crypto';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/issue.ts';
import type { Authority, KeyPair } from '../../src/certs/x509.ts';
import { days, devNames, handshake, serveHttps } from './fixture.ts';

const HOUR_MS = 3_600_000;
const names = [...devNames, 'linger.linger.svc', '*.apps.example.com', '10.96.0.17', '2001:db8::7'];
// X.509 counts in whole seconds.
const now = new Date(Math.floor(Date.now() / 1000) * 1000);
let authority: Authority;
let pair: KeyPair;

beforeAll(async () => {
  authority = await issueAuthority(now);
  pair = await issueServingCertificate(authority, names, now);
});

describe('the certificates', () => {
  it('last 365 and 7 days, from an hour ago', () => {
    const start = new Date(now.getTime() - HOUR_MS);
    const ca = new X509Certificate(authority.certificate);
    const leaf = new X509Certificate(pair.cert);
    expect([ca.validFromDate, ca.validToDate]).toEqual([start, days(365, now)]);
    expect([leaf.validFromDate, leaf.validToDate]).toEqual([start, days(7, now)]);
  });

  it('never outlive their authority', async () => {
    const late = days(364, now);
    const leaf = new X509Certificate((await issueServingCertificate(authority, ['a.example'], late)).cert);
    expect(leaf.validToDate).toEqual(days(365, now));
  });

  it('say what they are for', () => {
    const ca = new X509Certificate(authority.certificate);
    const leaf = new X509Certificate(pair.cert);
    expect(ca.ca).toBe(true);
    expect(leaf.ca).toBe(false);
    // id-kp-serverAuth, RFC 5280, 4.2.1.12
    expect(leaf.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
    expect(leaf.checkIssued(ca)).toBe(true);
    expect(leaf.verify(ca.publicKey)).toBe(true);
  });

  it('have positive serial numbers of 16 octets, each its own', () => {
    const serials = [authority.certificate, pair.cert].map((pem) => new X509Certificate(pem).serialNumber);
    for (const serial of serials) expect(serial).toMatch(/^[4-7][0-9A-F]{31}$/);
    expect(new Set(serials).size).toBe(2);
  });

  it.each([
    { wanted: ['localhost', 'b.example'], subject: 'CN=localhost' },
    { wanted: [`${'a'.repeat(60)}.example`, '*.b.example'], subject: 'CN=*.b.example' },
    { wanted: [`${'a'.repeat(60)}.example`], subject: undefined },
  ])(
    'carry as common name the first name of at most 64 characters: $subject',
    async ({ wanted, subject }) => {
      const issued = await issueServingCertificate(authority, wanted, now);
      expect(new X509Certificate(issued.cert).subject).toBe(subject);
      const { port } = await serveHttps(issued);
      expect(await handshake(port, wanted[0]!, authority.certificate)).toBe('ok');
    },
  );

  it('hold every IPv6 address as it was given', async () => {
    const group = fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 0xffff }));
    const address = fc
      .array(group, { minLength: 8, maxLength: 8 })
      .map((groups) => groups.map((each) => each.toString(16)).join(':'));
    const addresses = fc.sample(address, { numRuns: 300, seed: 17 });
    const leaf = new X509Certificate((await issueServingCertificate(authority, addresses, now)).cert);
    expect(addresses.filter((each) => leaf.checkIP(each) === undefined)).toEqual([]);
  });
});

describe('over TLS, a client that trusts the authority', () => {
  it.each([
    ...names.map((name) => [name.replace('*', 'shop'), 'ok']),
    ['example.org', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['apps.example.com', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['a.b.apps.example.com', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['127.0.0.2', 'ERR_TLS_CERT_ALTNAME_INVALID'],
    ['::2', 'ERR_TLS_CERT_ALTNAME_INVALID'],
  ])('calls the server %s: %s', async (name, outcome) => {
    const { port } = await serveHttps(pair);
    expect(await handshake(port, name!, authority.certificate)).toBe(outcome);
  });

  it('gets its HTTPS response', async () => {
    const { port } = await serveHttps(pair);
    const body = await new Promise<string>((resolve, reject) => {
      request({ host: 'localhost', family: 4, port, ca: authority.certificate, agent: false }, (response) =>
        resolve(text(response)),
      )
        .on('error', reject)
        .end();
    });
    expect(body).toBe('ok');
  });

  it('and one that trusts another authority refuses', async () => {
    const { port } = await serveHttps(pair);
    const other = await issueAuthority(now);
    expect(await handshake(port, 'localhost', other.certificate)).toBe('UNABLE_TO_VERIFY_LEAF_SIGNATURE');
  });
});

import { generateKeyPair as generateKeyPairCallback, randomBytes } from 'node:crypto';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import forge from 'node-forge';
import { firstNode, network, secondNode } from './network.ts';

/*
 * node-forge builds and signs, node:crypto makes the keys: the same pair that
 * Linger's own development certificates use, and no openssl program to look for.
 * forge knows RSA only, hence RSA.
 */
const generateKeyPair = promisify(generateKeyPairCallback);

/** Long enough for any cluster that somebody keeps up; every boot makes new ones. */
const VALID_DAYS = 365;

interface Pair {
  readonly certificate: string;
  readonly key: string;
}

interface Authority extends Pair {
  readonly subject: forge.pki.CertificateField[];
}

interface Leaf {
  readonly name: string;
  readonly commonName: string;
  readonly organization?: string;
  readonly dns?: readonly string[];
  readonly ips?: readonly string[];
  /** Whether a kubeconfig is written for it. */
  readonly client: boolean;
}

/** Kubernetes maps a client certificate's CN to the user and each O to a group. */
const leaves: readonly Leaf[] = [
  {
    name: 'apiserver',
    commonName: 'kube-apiserver',
    dns: ['kubernetes', 'kubernetes.default', 'kubernetes.default.svc', 'localhost'],
    ips: ['127.0.0.1', network.nodeAddress, network.serviceApiAddress, network.joined.other],
    client: false,
  },
  { name: 'admin', commonName: 'admin', organization: 'system:masters', client: true },
  { name: 'controller-manager', commonName: 'system:kube-controller-manager', client: true },
  { name: 'scheduler', commonName: 'system:kube-scheduler', client: true },
  { name: 'proxy', commonName: 'system:kube-proxy', client: true },
  ...[firstNode, secondNode].map(({ name, address }) => ({
    name,
    commonName: `system:node:${name}`,
    organization: 'system:nodes',
    dns: [name],
    ips: [address],
    client: true,
  })),
];

/**
 * Writes a new CA (`ca.crt`, `ca.key`), a pair and, for clients, a kubeconfig per
 * component, and the ServiceAccount signing keys (`sa.key`, `sa.pub`) into a directory.
 */
export async function writeCertificates(directory: string): Promise<void> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const ca = await createAuthority();
  writePair(directory, 'ca', ca);
  await Promise.all(
    leaves.map(async (leaf) => {
      const pair = await createLeaf(leaf, ca);
      writePair(directory, leaf.name, pair);
      if (leaf.client)
        writeSecret(join(directory, `${leaf.name}.kubeconfig`), kubeconfig(leaf.name, ca, pair));
    }),
  );
  const serviceAccount = await createKey();
  writeSecret(join(directory, 'sa.key'), serviceAccount.key);
  writeSecret(join(directory, 'sa.pub'), serviceAccount.publicKey);
}

function writePair(directory: string, name: string, pair: Pair): void {
  writeFileSync(join(directory, `${name}.crt`), pair.certificate);
  writeSecret(join(directory, `${name}.key`), pair.key);
}

function writeSecret(file: string, text: string): void {
  writeFileSync(file, text, { mode: 0o600 });
}

async function createKey(): Promise<{ key: string; publicKey: string }> {
  const { privateKey, publicKey } = await generateKeyPair('rsa', {
    modulusLength: 2048,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
  return { key: privateKey, publicKey };
}

async function createAuthority(): Promise<Authority> {
  const { key, publicKey } = await createKey();
  const subject = [{ name: 'commonName', value: 'linger test cluster' }];
  const certificate = newCertificate(publicKey, subject, subject);
  certificate.setExtensions([
    { name: 'basicConstraints', critical: true, cA: true },
    { name: 'keyUsage', critical: true, keyCertSign: true, cRLSign: true, digitalSignature: true },
    { name: 'subjectKeyIdentifier' },
  ]);
  return { certificate: signed(certificate, key), key, subject };
}

async function createLeaf(leaf: Leaf, ca: Authority): Promise<Pair> {
  const { key, publicKey } = await createKey();
  const subject = [{ name: 'commonName', value: leaf.commonName }];
  if (leaf.organization !== undefined) subject.push({ name: 'organizationName', value: leaf.organization });
  const certificate = newCertificate(publicKey, subject, ca.subject);
  // GeneralName types of RFC 5280: 2 is a dNSName, 7 an iPAddress.
  const names = [
    ...(leaf.dns ?? []).map((value) => ({ type: 2, value })),
    ...(leaf.ips ?? []).map((ip) => ({ type: 7, ip })),
  ];
  certificate.setExtensions([
    { name: 'keyUsage', critical: true, digitalSignature: true, keyEncipherment: true },
    // The node's and the API server's are used both ways.
    { name: 'extKeyUsage', serverAuth: true, clientAuth: true },
    ...(names.length > 0 ? [{ name: 'subjectAltName', altNames: names }] : []),
  ]);
  return { certificate: signed(certificate, ca.key), key };
}

function newCertificate(
  publicKey: string,
  subject: forge.pki.CertificateField[],
  issuer: forge.pki.CertificateField[],
): forge.pki.Certificate {
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = forge.pki.publicKeyFromPem(publicKey);
  // A positive integer in as few bytes as it takes: two leading zero bytes would be malformed.
  certificate.serialNumber = `01${randomBytes(15).toString('hex')}`;
  // An hour back, so that a clock that is corrected after the boot does not make them "not yet valid".
  certificate.validity.notBefore = new Date(Date.now() - 3_600_000);
  certificate.validity.notAfter = new Date(Date.now() + VALID_DAYS * 86_400_000);
  certificate.setSubject(subject);
  certificate.setIssuer(issuer);
  return certificate;
}

function signed(certificate: forge.pki.Certificate, key: string): string {
  certificate.sign(forge.pki.privateKeyFromPem(key), forge.md.sha256.create());
  return forge.pki.certificateToPem(certificate);
}

/** JSON is YAML, and everything is inline: the file works wherever it is copied to. */
function kubeconfig(user: string, ca: Pair, pair: Pair): string {
  const base64 = (text: string) => Buffer.from(text).toString('base64');
  return JSON.stringify(
    {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [
        {
          name: 'linger-test',
          cluster: {
            server: `https://${network.nodeAddress}:${network.apiPort}`,
            'certificate-authority-data': base64(ca.certificate),
          },
        },
      ],
      users: [
        {
          name: user,
          user: { 'client-certificate-data': base64(pair.certificate), 'client-key-data': base64(pair.key) },
        },
      ],
      contexts: [{ name: 'linger-test', context: { cluster: 'linger-test', user } }],
      'current-context': 'linger-test',
    },
    null,
    2,
  );
}

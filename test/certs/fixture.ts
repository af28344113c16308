import { once } from 'node:events';
import { cp, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:https';
import { connect as connectTcp, isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import forge from 'node-forge';
import { onTestFinished } from 'vitest';
import type { Authority, KeyPair } from '../../src/certs/x509.ts';
import { listening } from '../webhook/listening.ts';

export const DAY_MS = 24 * 3_600_000;
export const days = (count: number, from: Date): Date => new Date(from.getTime() + count * DAY_MS);
export const devNames = ['localhost', '127.0.0.1', '::1'];
export const allFiles = ['ca.crt', 'ca.key', 'tls.crt', 'tls.key'] as const;

/** A new empty directory, removed after the test. */
export async function emptyDirectory(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'linger-certs-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

export async function copyOf(template: string): Promise<string> {
  const directory = await emptyDirectory();
  await cp(template, directory, { recursive: true });
  return directory;
}

export async function write(directory: string, files: Readonly<Record<string, string>>): Promise<void> {
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, name), text);
}

export const read = (directory: string, name: string): Promise<string> =>
  readFile(join(directory, name), 'utf8');

/** Every file with its bytes, mode and modification time: what "untouched" means. */
export async function snapshot(directory: string): Promise<Record<string, unknown>> {
  const entries = await readdir(directory);
  const states = entries.map(async (name) => {
    const { mode, mtimeNs } = await stat(join(directory, name), { bigint: true });
    return [name, { bytes: await read(directory, name), mode, mtimeNs }] as const;
  });
  return Object.fromEntries(await Promise.all(states));
}

/** A real HTTPS server on a free port of the loopback. */
export async function serveHttps(pair: KeyPair): Promise<{ server: Server; port: number }> {
  const server = createServer(pair, (_request, response) => response.end('ok'));
  return { server, port: await listening(server) };
}

/** Handshakes as a client that calls the server `name` and trusts `ca`: 'ok', or the error code of the refusal. */
export async function handshake(port: number, name: string, ca: string): Promise<string> {
  const socket = await connectTo(port, name, ca).catch((error: NodeJS.ErrnoException) => error);
  if (socket instanceof Error) return socket.code ?? socket.message;
  socket.destroy();
  return 'ok';
}

/** An open connection. A name is sent as SNI; an address only judges the certificate. */
export async function connectTo(port: number, name: string, ca: string): Promise<TLSSocket> {
  const socket = connectTls({
    socket: connectTcp(port, '127.0.0.1'),
    host: name,
    ca,
    ...(isIP(name) === 0 && { servername: name }),
  });
  await once(socket, 'secureConnect');
  return socket;
}

/** An authority as a user would bring it: self-signed, and not under Linger's name. `key`: of any RSA pair, PEM. */
export function userAuthority(key: string, notAfter: Date): Authority {
  const privateKey = forge.pki.privateKeyFromPem(key);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = forge.pki.rsa.setPublicKey(privateKey.n, privateKey.e);
  certificate.serialNumber = '01';
  certificate.validity = { notBefore: days(-30, notAfter), notAfter };
  const subject = [{ name: 'organizationName', value: 'Example GmbH' }];
  certificate.setSubject(subject);
  certificate.setIssuer(subject);
  certificate.setExtensions([{ name: 'basicConstraints', cA: true }]);
  certificate.sign(privateKey, forge.md.sha256.create());
  return { certificate: forge.pki.certificateToPem(certificate), key };
}

/** A certificate that has signed itself, PEM, in force since a month before its end. */
export function signedByItself(commonName: string, notAfter: Date, extensions: object[] = []): string {
  const keys = forge.pki.rsa.generateKeyPair(1024);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = keys.publicKey;
  certificate.serialNumber = '02';
  certificate.validity = { notBefore: days(-30, notAfter), notAfter };
  const name = [{ name: 'commonName', value: commonName }];
  certificate.setSubject(name);
  certificate.setIssuer(name);
  certificate.setExtensions(extensions);
  certificate.sign(keys.privateKey, forge.md.sha256.create());
  return forge.pki.certificateToPem(certificate);
}

/** As an issuer of cert-manager's kind SelfSigned makes it: it has signed itself, and neither it nor its issuer has a name. */
export function nameless(names: readonly string[], notAfter: Date): Record<'tls.crt' | 'tls.key', string> {
  const keys = forge.pki.rsa.generateKeyPair(2048);
  const certificate = forge.pki.createCertificate();
  certificate.publicKey = keys.publicKey;
  certificate.serialNumber = '04';
  certificate.validity = { notBefore: days(-30, notAfter), notAfter };
  const altNames = names.map((value) => ({ type: 2, value }));
  certificate.setExtensions([{ name: 'subjectAltName', critical: true, altNames }]);
  certificate.sign(keys.privateKey, forge.md.sha256.create());
  return {
    'tls.crt': forge.pki.certificateToPem(certificate),
    'tls.key': forge.pki.privateKeyToPem(keys.privateKey),
  };
}

/** An authority's name and key under another one's signature, PEM. */
export function intermediate({ certificate: pem }: Authority, by: Authority): string {
  const certificate = forge.pki.certificateFromPem(pem);
  certificate.serialNumber = '03';
  certificate.setIssuer(forge.pki.certificateFromPem(by.certificate).subject.attributes);
  certificate.setExtensions([{ name: 'basicConstraints', cA: true }]);
  certificate.sign(forge.pki.privateKeyFromPem(by.key), forge.md.sha256.create());
  return forge.pki.certificateToPem(certificate);
}

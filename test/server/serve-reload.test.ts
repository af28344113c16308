import { readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, replaceFile, type Serving, serving, until } from '../cli/linger.ts';
import { waitNow } from '../cli/reviewing.ts';
import { swapMounted } from '../cluster/mounted.ts';
import { atEndOfFile, connect, requestBytes } from '../webhook/connection.ts';
import { bodyOf } from '../webhook/reviews.ts';
import { responseOf } from '../webhook/webhook.ts';

const certs = sharedCertificates();
// The tests mostly wait for the next look at the disk, so they do it together.
const atEnd = atEndOfFile();

const fixed = (wait: string, name = 'base') =>
  `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: ${name}}\n` +
  `spec: {wait: {from: Fixed, fixed: ${wait}}}\n`;
const INVALID = fixed('soon');
const SUCCESSES = 'linger_policy_reloads_total{result="success"}';
const FAILURES = 'linger_policy_reloads_total{result="failure"}';

/** Resolves once the wait is in force; says how long that took. */
async function inForce(server: Serving, wait: number, since = Date.now()): Promise<number> {
  await until(async () => (await waitNow(server, atEnd)) === wait);
  return Date.now() - since;
}

describe.concurrent('policies on the disk', () => {
  it('change, break, are mended and go while the server serves', async () => {
    const directory = await emptyDirectory(atEnd);
    const file = join(directory, 'base.yaml');
    await replaceFile(file, fixed('11s'));
    const server = await serving(certs(), ['--policies', directory], { atEnd });
    expect(await waitNow(server, atEnd)).toBe(11);
    expect(await server.count('linger_policy_documents{kind="ClusterTerminationPolicy"}')).toBe(1);

    await replaceFile(file, fixed('12s'));
    const took = await inForce(server, 12);
    console.log(`a changed policy was in force after ${took} ms (promised: 3000)`);
    expect(await server.count(SUCCESSES)).toBe(1);

    await replaceFile(file, INVALID);
    await until(async () => (await server.count(FAILURES)) === 1);
    expect(await waitNow(server, atEnd)).toBe(12);
    expect(await server.count('linger_policy_problems')).toBe(1);
    expect(JSON.parse((await server.get('/estimates')).text)).toEqual({
      policyProblems: [expect.stringMatching(/base\.yaml.*spec\.wait\.fixed/)],
    });
    expect(
      await server.logged('policy document rejected; its last good version stays in force'),
    ).toMatchObject([
      { level: 'error', path: directory, problem: expect.stringMatching(/base\.yaml.*spec\.wait\.fixed/) },
    ]);

    await replaceFile(file, fixed('13s'));
    await inForce(server, 13);

    await rm(file);
    await inForce(server, 30);
    expect(await server.count('linger_policy_documents{kind="ClusterTerminationPolicy"}')).toBe(0);

    // A good file beside a broken one counts.
    await replaceFile(join(directory, 'good.yaml'), fixed('14s', 'good'));
    await inForce(server, 14);
    await replaceFile(join(directory, 'bad.yaml'), INVALID);
    await replaceFile(join(directory, 'good.yaml'), fixed('15s', 'good'));
    await inForce(server, 15);
    expect(await server.count('linger_policy_problems')).toBe(1);
    await rm(join(directory, 'bad.yaml'));
    await until(async () => (await server.count('linger_policy_problems')) === 0);
    const failures = await server.count(FAILURES);

    await rename(directory, `${directory}-gone`);
    await until(async () => (await server.count(FAILURES)) === failures + 1);
    expect(await waitNow(server, atEnd)).toBe(15);
    await rename(`${directory}-gone`, directory);
  });

  it('are swapped as a ConfigMap is', async () => {
    const directory = await emptyDirectory(atEnd);
    await swapMounted(directory, '..2026_11_21_01', { 'base.yaml': fixed('21s') });
    const server = await serving(certs(), ['--policies', directory], { atEnd });
    expect(await waitNow(server, atEnd)).toBe(21);

    await swapMounted(directory, '..2026_11_21_02', { 'base.yaml': fixed('22s') });
    await rm(join(directory, '..2026_11_21_01'), { recursive: true });
    const took = await inForce(server, 22);
    console.log(`a swapped ConfigMap was in force after ${took} ms (promised: 3000)`);
    expect([await server.count(SUCCESSES), await server.count(FAILURES)]).toEqual([1, 0]);
  });
});

describe.concurrent('the certificate on the disk', () => {
  it('is replaced: new handshakes get it, open connections survive', async () => {
    const directory = await emptyDirectory(atEnd);
    const authority = await issueAuthority(new Date());
    const provide = async () => {
      const { cert, key } = await issueServingCertificate(authority, ['localhost', '127.0.0.1'], new Date());
      await writeFile(join(directory, 'tls.key'), key);
      await writeFile(join(directory, 'tls.crt'), cert);
    };
    await writeFile(join(directory, 'ca.crt'), authority.certificate);
    await provide();
    const server = await serving(directory, ['--connection-close-probability', '0'], { atEnd });
    const open = await connect(server, atEnd);
    open.write(requestBytes(bodyOf()));
    responseOf(await open.answer());

    await provide();
    const fingerprint = async () => {
      const connection = await connect(server, atEnd);
      const { peerFingerprint } = connection;
      connection.destroy();
      return peerFingerprint;
    };
    await until(async () => (await fingerprint()) !== open.peerFingerprint);
    open.write(requestBytes(bodyOf()));
    responseOf(await open.answer());
    expect(open.isClosed).toBe(false);
    expect(await server.count('linger_certificate_reloads_total{result="success"}')).toBe(1);
    expect(await readFile(join(directory, 'ca.crt'), 'utf8')).toBe(authority.certificate);

    await writeFile(join(directory, 'tls.crt'), 'broken');
    // It goes on counting while the trouble lasts: that is what the alert goes by.
    await until(
      async () => (await server.count('linger_certificate_reloads_total{result="failure"}')) >= 2,
      30,
    );
    open.write(requestBytes(bodyOf()));
    responseOf(await open.answer());
    await fingerprint();
  });
});

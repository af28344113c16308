import { X509Certificate } from 'node:crypto';
import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();

describe.concurrent('linger certs', () => {
  it('makes a CA and a certificate for the names, and prints the caBundle of a webhook configuration', async () => {
    const out = join(await emptyDirectory(atEnd), 'made/here');
    const { code, stdout, stderr } = await linger([
      'certs',
      '--dns',
      'linger.linger.svc',
      '10.96.0.7',
      '--out',
      out,
    ]);
    expect(code).toBe(0);
    expect((await readdir(out)).toSorted()).toEqual(['ca.crt', 'tls.crt', 'tls.key']);
    expect((await stat(join(out, 'tls.key'))).mode & 0o777).toBe(0o600);

    expect(stdout).toMatch(/^[A-Za-z0-9+/]+=*\n$/);
    const bundle = Buffer.from(stdout, 'base64').toString('utf8');
    expect(bundle).toBe(await readFile(join(out, 'ca.crt'), 'utf8'));
    const leaf = new X509Certificate(await readFile(join(out, 'tls.crt')));
    expect(leaf.verify(new X509Certificate(bundle).publicKey)).toBe(true);
    expect(leaf.subjectAltName).toBe('DNS:linger.linger.svc, IP Address:10.96.0.7');
    expect(stderr).toMatch(
      /tls\.crt for linger\.linger\.svc, 10\.96\.0\.7: written; expires \d{4}-\d\d-\d\d/,
    );
  });

  it('run again: keeps what is good, and prints the same', async () => {
    const out = await emptyDirectory(atEnd);
    const args = ['certs', '--dns', 'a.example,b.example', '--out', out];
    const first = await linger(args);
    const again = await linger(args);
    expect([again.code, again.stdout]).toEqual([0, first.stdout]);
    expect(again.stderr).toContain('still valid');
  });

  it.each([
    ['a name that no certificate can hold', ['--dns', 'web server'], /"web server"/],
    ['a folder that cannot be made', ['--out', '/proc/linger'], /\/proc\/linger/],
  ])('%s: exit 1, one line, nothing on standard output', async (_what, args, message) => {
    const { code, stdout, stderr } = await linger(['certs', '--out', await emptyDirectory(atEnd), ...args]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(message);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('a certificate that is not of its making is not replaced', async () => {
    const out = await emptyDirectory(atEnd);
    await writeFile(join(out, 'tls.crt'), 'mine');
    const { code, stdout } = await linger(['certs', '--out', out]);
    expect({ code, stdout, kept: await readFile(join(out, 'tls.crt'), 'utf8') }).toEqual({
      code: 1,
      stdout: '',
      kept: 'mine',
    });
  });
});

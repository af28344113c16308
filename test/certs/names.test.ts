import { describe, expect, it } from 'vitest';
import { CertificateError, parseNames } from '../../src/certs/x509.ts';

describe('names that a certificate can hold', () => {
  it.each([
    ['localhost', 'localhost'],
    ['Linger.Linger.SVC', 'linger.linger.svc'],
    ['*.example.com', '*.example.com'],
    ['xn--bcher-kva.example', 'xn--bcher-kva.example'],
    ['1.2.3.4.example', '1.2.3.4.example'],
    [`${'a'.repeat(63)}.example`, `${'a'.repeat(63)}.example`],
    ['127.0.0.1', '127.0.0.1'],
    ['::1', '::1'],
    ['2001:DB8:0:0:0:0:0:1', '2001:db8::1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
  ])('%s is %s', (name, canonical) => {
    expect(parseNames([name])).toEqual([canonical]);
  });

  it('keeps the order and drops repetitions, however they are spelled', () => {
    const names = parseNames(['b', '::1', 'B', '0:0:0:0:0:0:0:1', 'a']);
    expect(names).toEqual(['b', '::1', 'a']);
  });
});

describe('names that it cannot hold are refused, and named', () => {
  it.each([
    ['', 'it is empty'],
    ['localhost:8443', 'got "localhost:8443"'],
    ['https://localhost', 'got "https://localhost"'],
    ['10.0.0.0/8', 'got "0/8"'],
    ['300.1.1.1', 'only digits'],
    ['fe80::1%eth0', 'got "fe80::1%eth0"'],
    ['[::1]', 'got "[::1]"'],
    ['a..b', 'got ""'],
    ['example.com.', 'got ""'],
    ['-a.example', 'got "-a"'],
    ['under_score.example', 'got "under_score"'],
    ['bücher.example', 'got "bücher"'],
    ['a b', 'got "a b"'],
    ['*', 'got "*"'],
    ['*.com', 'at least two labels'],
    ['a.*.example', 'got "*"'],
    ['w*.example.com', 'got "w*"'],
    [`${'a'.repeat(64)}.example`, 'labels of 1 to 63'],
    [`${'a.'.repeat(127)}a`, 'it has 255 characters'],
  ])('%s', (name, fault) => {
    const refusal = catchError(() => parseNames(['fine.example', name]));
    expect(refusal.code).toBe('BadName');
    expect(refusal.message).toContain(JSON.stringify(name));
    expect(refusal.message).toContain(fault);
  });

  it('no name at all', () => {
    expect(catchError(() => parseNames([])).code).toBe('BadName');
  });
});

function catchError(run: () => unknown): CertificateError {
  try {
    run();
  } catch (error) {
    if (error instanceof CertificateError) return error;
    throw error;
  }
  throw new Error('expected a CertificateError');
}

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { HTTP_URL } from '../../../src/core/api/discovery-consumer.ts';
import { parseDocument } from '../../../src/core/api/documents.ts';
import { consumer } from '../decision/sample-snapshot.ts';
import { CONSUMER_SPECS } from './consumer-specs.ts';

const parse = (spec: unknown, name = 'gateway') => parseDocument({ ...consumer({}, name), spec }, 'here');

describe('a DiscoveryConsumer in a file', () => {
  test.each(CONSUMER_SPECS.filter(({ refused }) => refused === undefined))('$name: is taken', ({ spec }) => {
    expect(parse(spec)).toMatchObject({ kind: 'DiscoveryConsumer' });
  });

  test.each(CONSUMER_SPECS.filter(({ refused }) => refused !== undefined))(
    '$name: is refused',
    ({ spec, refused }) => {
      expect(() => parse(spec)).toThrow(refused);
    },
  );

  const SECRET = 'x7-hunter2';
  const http = { method: 'PUT', url: 'http://registry/{pod}/{namespace}' };
  const registering = (more: object) => ({
    measure: { declared: { lag: '1s' } },
    deregister: { http: { ...http, ...more } },
  });
  it.each([
    ['a password in a URL', { measure: { probe: { url: `https://me:${SECRET}@a@edge.example/` } } }],
    ['a header', registering({ headers: [{ name: 'Authorization', value: `Bearer ${SECRET}\n` }] })],
    ['a header said twice', registering({ headers: [{ name: 'A', value: SECRET, valueFile: 'a' }] })],
    [
      'headers beside what is wrong',
      registering({ headers: [{ value: SECRET, name: 'A' }], url: 'http://r' }),
    ],
  ])('that is refused for %s shows no secret', (_, spec) => {
    expect(() => parse(spec)).toThrow(/: expected/);
    expect(() => parse(spec)).not.toThrow(SECRET);
  });

  it('may have the name of a built-in consumer, and then replaces it', () => {
    expect(parse({ measure: { reports: {} } }, 'cluster-ip')).toMatchObject({
      metadata: { name: 'cluster-ip' },
    });
  });
});

it('every URL that is taken is one that can be called', () => {
  const url = fc.stringMatching(HTTP_URL).filter((text) => !text.includes('xn--'));
  fc.assert(
    fc.property(url, (text) => {
      const { protocol, username, password, hash, hostname } = new URL(text);
      expect([username, password, hash]).toEqual(['', '', '']);
      expect(protocol).toMatch(/^https?:$/);
      expect(hostname).not.toBe('');
    }),
  );
});

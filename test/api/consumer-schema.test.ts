import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { HTTP_URL } from '../../src/api/discovery-consumer.ts';
import { parseDocument } from '../../src/api/documents.ts';
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

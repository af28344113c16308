import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  canonicalAddress,
  endpointIn,
  PAGE_FORMAT_NAMES,
  type PageEndpoint,
  type PageFindings,
  type PageFormat,
  pageReader,
} from '../../../src/core/api/index.ts';
import { SAMPLE_PAGES } from './sample-pages.ts';

/** @param sizes of the chunks, over and over */
function read(
  format: PageFormat,
  text: string | Buffer,
  wanted: readonly (string | PageEndpoint)[],
  sizes: readonly number[] = [65_536],
): PageFindings | string {
  const bytes = Buffer.from(text);
  const reader = pageReader(
    format,
    wanted.map((each) => (typeof each === 'string' ? { address: each, ports: [] } : each)),
  );
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length] ?? 1;
    reader.write(bytes.toString('latin1', at, at + size));
    at += size;
  }
  return reader.end();
}

/** What a page says of each of these, by `ADDRESS:PORT`, or of any port of an address. */
function said(format: PageFormat, text: string | Buffer, ...names: readonly string[]) {
  const endpoints = names.map((name) => {
    const { address = '', port } = endpointIn(name) ?? {};
    return { name, address, ports: port === undefined ? [] : [port] };
  });
  const found = read(format, text, endpoints);
  if (typeof found === 'string') return found;
  return Object.fromEntries(endpoints.map((endpoint) => [endpoint.name, found.of(endpoint)]));
}

describe.each(PAGE_FORMAT_NAMES)('%s', (format) => {
  const samples = SAMPLE_PAGES.filter((each) => each.format === format);

  it.each(samples)('reads $name, as its server sent it', ({ bytes, expected }) => {
    const names = typeof expected === 'string' ? [] : Object.keys(expected);
    expect(said(format, bytes, ...names)).toEqual(expected);
  });

  it('has samples with an address that is in use, and one that is not', () => {
    const shown = samples.flatMap(({ expected }) =>
      typeof expected === 'string' ? [] : Object.values(expected),
    );
    expect(shown).toContain('using');
    expect(shown.some((each) => each !== 'using')).toBe(true);
  });
});

describe('Envoy', () => {
  const clusters = SAMPLE_PAGES.find(({ name }) => name === 'clusters.txt')?.bytes ?? '';

  it('uses all hosts of a priority that is in panic', () => {
    // No host of priority 0 is healthy, and one of two of priority 1: 50 % is no panic yet.
    expect(said('Envoy', clusters, '[fd00::a:2]:8080', '10.0.0.10:8443')).toEqual({
      '[fd00::a:2]:8080': 'using',
      '10.0.0.10:8443': 'listed',
    });
  });

  it.each([
    ['an ejection', '/failed_outlier_check', 'using'],
    ['a check of its own that fails', '/failed_active_hc', 'using'],
    ['a removal that waits for checks to fail', '/pending_dynamic_removal', 'using'],
    ['a withdrawal', '/failed_eds_health', 'listed'],
    ['both', '/failed_active_hc/failed_eds_health', 'listed'],
  ])('takes %s for what it is', (_, flags, expected) => {
    const host = (address: string, health: string) =>
      `web::${address}::health_flags::${health}\nweb::${address}::priority::0\n`;
    const text = host('10.0.0.1:80', flags) + host('10.0.0.2:80', 'healthy');
    expect(said('Envoy', text, '10.0.0.1:80')).toEqual({ '10.0.0.1:80': expected });
  });

  it('learns the names of the clusters that list an address', () => {
    const found = read('Envoy', clusters, ['10.0.0.9']);
    expect([...(found as PageFindings).clusters]).toEqual(['six::odd']);
  });

  it('lists nothing on an empty page, and says so of another', () => {
    expect(said('Envoy', '', '10.0.0.1')).toEqual({ '10.0.0.1': 'absent' });
    expect(said('Envoy', '<html>10.0.0.1</html>', '10.0.0.1')).toMatch(/is not what Envoy answers/);
  });
});

describe('HAProxy', () => {
  it('reads cells in quotes, and servers in maintenance that have an address', () => {
    const text = '# pxname,svname,status,type,last_chk,addr,\nweb,s1,MAINT,2,"a, ""b""",10.0.0.1:80,\n';
    expect(said('HAProxy', text, '10.0.0.1:80')).toEqual({ '10.0.0.1:80': 'listed' });
  });

  it('says when it is another page', () => {
    expect(said('HAProxy', '<html></html>', '10.0.0.1')).toMatch(/is neither/);
    expect(said('HAProxy', '', '10.0.0.1')).toMatch(/is neither/);
  });
});

describe('Traefik', () => {
  it('reads strings with quotes and brackets in them', () => {
    const text = JSON.stringify([{ name: '"}]\\', url: 'http://10.0.0.1:80' }]);
    expect(said('Traefik', text, '10.0.0.1:80')).toEqual({ '10.0.0.1:80': 'using' });
  });

  it('reads past strings of any length, however they are cut: rules, certificates', () => {
    const parts = fc.array(fc.constantFrom('\\', '"', '{', 'x', '\n'), { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(parts, fc.integer({ min: 500, max: 9_000 }), (some, size) => {
        const rule = some.join('').repeat(5_000 / some.length);
        const servers = [{ url: `http://10.0.0.1:80/${rule}`, fenced: true }, { url: 'http://10.0.0.2:80' }];
        const text = JSON.stringify([{ rule, [rule]: rule, loadBalancer: { servers } }]);
        const endpoints = ['10.0.0.1', '10.0.0.2', '10.0.0.3'].map((address) => ({ address, ports: [80] }));
        const found = read('Traefik', text, endpoints, [size, 700, 4_096]);
        expect(typeof found).not.toBe('string');
        expect(endpoints.map((each) => (found as PageFindings).of(each))).toEqual([
          'listed',
          'using',
          'absent',
        ]);
      }),
    );
  });

  it.each(['', 'x', '[{"url":"http://10.0.0.1:80"}', '<html>', '[]]', '[][]', '["'])('refuses %j', (text) => {
    expect(said('Traefik', text, '10.0.0.1:80')).toMatch(/is not what Traefik answers/);
  });
});

describe('Text', () => {
  it.each([
    ['10.0.0.1', '10.0.0.1', 'using'],
    ['x=10.0.0.1;', '10.0.0.1', 'using'],
    ['{"ip":"10.0.0.1","port":8080}', '10.0.0.1:8080', 'using'],
    ['http://10.0.0.1:8080/x', '10.0.0.1:8080', 'using'],
    ['http://10.0.0.1:8080/x', '10.0.0.1:9090', 'absent'],
    ['server_10.0.0.1_8080', '10.0.0.1', 'using'],
    ['ip:10.0.0.1', '10.0.0.1', 'using'],
    ['We left 10.0.0.1.', '10.0.0.1', 'using'],
    ['::ffff:10.0.0.1', '10.0.0.1', 'using'],
    ['[::ffff:a00:1]:80', '10.0.0.1:80', 'using'],
    ['10.0.0.10', '10.0.0.1', 'absent'],
    ['110.0.0.1', '10.0.0.1', 'absent'],
    ['10.0.0.1.5', '10.0.0.1', 'absent'],
    ['5.10.0.0.1', '10.0.0.1', 'absent'],
    ['fd00::1', '[fd00::1]', 'using'],
    ['FD00:0:0:0:0:0:0:1', '[fd00::1]', 'using'],
    ['fd00:0000::0001%eth0', '[fd00::1]', 'using'],
    ['inet6:fd00::1', '[fd00::1]', 'using'],
    ['"[fd00::1]:8080"', '[fd00::1]:8080', 'using'],
    ['"[fd00::1]:8080"', '[fd00::1]:9090', 'absent'],
    ['fd00::1:8080', '[fd00::1]:8080', 'using'],
    ['fd00::1:8080', '[fd00::1:8080]', 'using'],
    ['fd00::1', '[fd00::10]', 'absent'],
    ['fd00::10', '[fd00::1]', 'absent'],
    ['1:fd00::1', '[fd00::1]', 'absent'],
    ['', '10.0.0.1', 'absent'],
  ])('%j: %s is %s', (text, name, expected) => {
    expect(said('Text', text, name)).toEqual({ [name]: expected });
  });

  it('leaves out what is too long to be an address, and reads on', () => {
    const text = `${'1'.repeat(70_000)}.10.0.0.1 10.0.0.2`;
    expect(said('Text', text, '10.0.0.1', '10.0.0.2')).toEqual({ '10.0.0.1': 'absent', '10.0.0.2': 'using' });
  });
});

describe('Witness', () => {
  it.each(['', '[]', '{"10.0.0.1:80":true}', '{"web":"using"}', `{"x":"${'y'.repeat(20_000)}"}`])(
    'refuses %.30j',
    (text) => {
      expect(said('Witness', text, '10.0.0.1:80')).toBe('is not what linger witness answers');
    },
  );
});

/** The same address as people and programs write it. */
const ipv6Spellings = fc
  .tuple(
    fc.array(fc.oneof(fc.constant(0), fc.nat(0xffff)), { minLength: 8, maxLength: 8 }),
    fc.nat(),
    fc.boolean(),
  )
  .map(([groups, at, upper]) => {
    const hex = groups.map((group) => group.toString(16));
    const padded = groups.map((group) => group.toString(16).padStart(4, '0')).join(':');
    const zeros = groups.flatMap((group, index) => (group === 0 ? [index] : []));
    const begin = zeros[at % Math.max(1, zeros.length)];
    let shortened = hex.join(':');
    if (begin !== undefined) {
      let end = begin;
      while (groups[end + 1] === 0) end += 1;
      shortened = `${hex.slice(0, begin).join(':')}::${hex.slice(end + 1).join(':')}`;
    }
    const url = new URL(`http://[${padded}]/`).hostname.slice(1, -1);
    return [padded, shortened, hex.join(':'), url].map((text) => (upper ? text.toUpperCase() : text));
  });

describe('addresses', () => {
  it('has one spelling for each IPv6 address', () => {
    fc.assert(
      fc.property(ipv6Spellings, (spellings) => {
        const canonical = spellings.map(canonicalAddress);
        expect(new Set(canonical).size).toBe(1);
        expect(canonical[0]).toBeDefined();
      }),
    );
  });

  it('finds each spelling in a text', () => {
    fc.assert(
      fc.property(ipv6Spellings, ([wanted = '', ...others]) => {
        const address = canonicalAddress(wanted) ?? '';
        for (const spelling of others) {
          for (const text of [`a ${spelling},b`, `"[${spelling}]:80"`]) {
            const found = read('Text', text, [{ address, ports: [80] }]) as PageFindings;
            expect(found.of({ address, ports: [80] })).toBe('using');
          }
        }
      }),
    );
  });

  it.each([
    '',
    ':',
    ':::',
    '1::2::3',
    '1:2:3:4:5:6:7',
    '1:2:3:4:5:6:7:8:9',
    '12345::',
    'g::',
    '10.0.0.256',
    '010.0.0.1',
    '10.0.0',
    '1:2:3:4:5:6:7:8::',
    '10.0.0.1::',
    'web',
  ])('takes %j for none', (text) => {
    expect(canonicalAddress(text)).toBeUndefined();
  });
});

describe('chunks', () => {
  const wanted = ['10.0.0.1', '10.0.0.2', '10.0.0.10', '10.202.0.7', '127.0.0.9', 'fd00::1', 'fd00::a:2'];
  const endpoints = wanted.map((address) => ({ address, ports: [8080, 80] }));
  const run = 'fd00::1 [fd00::a:2]:8080, 10.0.0.10x';
  const pages: readonly (readonly [PageFormat, string, string | Buffer])[] = [
    ...SAMPLE_PAGES.map(({ format, name, bytes }) => [format, name, bytes] as const),
    ['Text', 'a long run', `${run} ${'a'.repeat(300)}10.0.0.1`],
  ];

  it.each(pages)('%s says the same of %s however it is cut', (format, _, text) => {
    const summary = (found: PageFindings | string) =>
      typeof found === 'string'
        ? found
        : [wanted.map((address) => found.of({ address, ports: [8080, 80] })), [...found.clusters]];
    const expected = summary(read(format, text, endpoints));
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 97 }), { minLength: 1, maxLength: 20 }), (sizes) => {
        expect(summary(read(format, text, endpoints, sizes))).toEqual(expected);
      }),
    );
  });

  it.each(PAGE_FORMAT_NAMES)('%s bears any bytes', (format) => {
    const pieces = fc.array(
      fc.oneof(
        fc.uint8Array({ maxLength: 50 }),
        fc
          .constantFrom('::health_flags::', '10.0.0.1:8', '# pxname,addr,type\n', '[{"url":"', '"', '\n')
          .map((text) => Buffer.from(text)),
      ),
      { maxLength: 30 },
    );
    fc.assert(
      fc.property(pieces, (chunks) => {
        const bytes = Buffer.concat(chunks);
        const whole = read(format, bytes, wanted, [bytes.length + 1]);
        const cut = read(format, bytes, wanted, [1, 3, 2]);
        const summary = (found: PageFindings | string) =>
          typeof found === 'string' ? found : wanted.map((address) => found.of({ address, ports: [] }));
        expect(summary(cut)).toEqual(summary(whole));
      }),
    );
  });
});

/** Pages made to take long: each cost seconds, or grew without end, as some reader once was. */
const MB = 1 << 20;
const fill = (text: string, bytes: number) => text.repeat(bytes / text.length);
const envoyHosts = (name: (at: number) => string) =>
  Array.from({ length: 20_000 }, (_, at) => `${name(at)}::10.0.0.1:80::health_flags::healthy\n`).join('');
const ATTACKS: readonly (readonly [PageFormat, string, string])[] = [
  ['Envoy', 'clusters of brackets', `${fill('::[', 4_000)}::health_flags::\n`.repeat(250)],
  ['Envoy', 'one line of brackets', `${fill('::[', MB)}::health_flags::\n`],
  ['Envoy', 'brackets that close', `${fill('::[1]:', 4_000)}::priority::\n`.repeat(250)],
  ['Envoy', 'colons', `${fill('::', 4_000)}::health_flags::\n`.repeat(250)],
  ['Envoy', 'marks', `${fill('::health_flags::', 4_000)}\n`.repeat(250)],
  ['Envoy', 'a cluster for each host', envoyHosts((at) => `c${at}`)],
  [
    'Envoy',
    'a priority for each host',
    envoyHosts(() => 'web').replaceAll('healthy\n', 'x\nweb::10.0.0.1:80::priority::7777\n'),
  ],
  ['HAProxy', 'a wide header', `# pxname,${fill('a,', 64_000)}\n${`${fill('b,', 4_000)}\n`.repeat(250)}`],
  [
    'HAProxy',
    'a header within a line',
    `# pxname,${fill('a,', 4_000)}\n${`${fill('b,', 4_000)}\n`.repeat(250)}`,
  ],
  ['HAProxy', 'headers', `# pxname,${fill('a,', 4_000)}\n`.repeat(250)],
  ['HAProxy', 'a wide state', `# be_id ${fill('a ', 4_000)}\n${`${fill('b ', 4_000)}\n`.repeat(250)}`],
  ['HAProxy', 'quotes', `# pxname,svname,type,addr,\n${`${fill('"', 4_001)},\n`.repeat(250)}`],
  [
    'HAProxy',
    'quoted cells without an end',
    `# pxname,svname,type,addr,\n${`${fill('"x""x,', 4_000)}\n`.repeat(250)}`,
  ],
  ['Text', 'groups', fill('1::', MB)],
  ['Text', 'runs of groups', fill('1:1:1:1:1:1:1:1:1 ', MB)],
  ['Text', 'runs of addresses', fill('a:b:c:fd00::1:1 ', MB)],
  ['Text', 'brackets', fill('[', MB)],
  ['Text', 'brackets in runs', fill(`${fill('[1:', 252)} `, MB)],
  ['Text', 'dots', fill('1.', MB)],
  ['Text', 'closing brackets', fill(`${fill(']', 250)}:x `, MB)],
  ['Text', 'percent signs', fill(`::${fill('%', 250)} `, MB)],
  ['Traefik', 'backslashes', `[{"url":"${fill('\\\\', MB)}`],
  ['Traefik', 'brackets', fill('[', MB)],
  ['Traefik', 'quotes', fill('"', MB)],
  ['Traefik', 'colons', fill(':', MB)],
  ['Traefik', 'an endless key', `[{"${fill('x', MB)}`],
  ['Witness', 'brackets', fill('[', MB)],
  ['Witness', 'brackets within the answer', fill('[', 16_000)],
];

describe('hostile pages', () => {
  const wanted = [...Array(50).keys()].map((at) => ({ address: `10.0.0.${at}`, ports: [80] }));
  wanted.push({ address: 'fd00::1', ports: [80] });

  // Unloaded, each takes less than half a second; a quadratic reader takes minutes for most of them.
  it.each(ATTACKS)('%s with %s takes linear time and little memory', (format, _, text) => {
    const began = performance.now();
    const found = read(format, text, wanted);
    expect(performance.now() - began).toBeLessThan(8_000);
    if (typeof found !== 'string') expect(found.clusters.size).toBeLessThan(50);
  });

  it('does not say that an address is absent that a long line may list', () => {
    const line = `${'x'.repeat(5_000)}::10.0.0.1:80::health_flags::healthy\n`;
    expect(said('Envoy', line, '10.0.0.1:80')).toBe('has a line of more than 4 KiB');
    expect(said('HAProxy', `# pxname,${line}`, '10.0.0.1:80')).toBe('has a line of more than 4 KiB');
    const wide = `# pxname,svname,status,type,addr,${'x,'.repeat(200)}\nweb,s1,UP,2,10.0.0.1:80\n`;
    expect(said('HAProxy', wide, '10.0.0.1:80')).toBe('has more than 200 columns');
  });
});

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { mkdir, mkdtemp, open, rename, rm, writeFile } from 'node:fs/promises';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  buildHelper,
  buildHelpers,
  HELPER_ARCHITECTURES,
  HELPER_FOLDER,
  type HelperArchitecture,
  zigHere,
} from '../../deploy/build-helper.ts';
import { type HoldServer, helperFile, OWN_ARCHITECTURE, runHelper, serveHelpers, TOKEN } from './helper.ts';

const ARCHITECTURES = Object.keys(HELPER_ARCHITECTURES) as HelperArchitecture[];
const EMULATOR = '/usr/bin/qemu-aarch64-static';

/** How to run each architecture's helper here; arm64 may need an emulator. */
const COMMANDS: Readonly<Record<HelperArchitecture, readonly string[] | undefined>> = {
  amd64: OWN_ARCHITECTURE === 'amd64' ? [helperFile('amd64')] : undefined,
  arm64:
    OWN_ARCHITECTURE === 'arm64'
      ? [helperFile('arm64')]
      : existsSync(EMULATOR)
        ? [EMULATOR, helperFile('arm64')]
        : undefined,
};
const OWN = [helperFile(OWN_ARCHITECTURE)];

const servers: HoldServer[] = [];
async function meeting(meet: (socket: net.Socket, call: number) => void, host?: string) {
  const server = await serveHelpers(meet, host);
  servers.push(server);
  return server;
}
afterAll(() => {
  for (const server of servers) server.close();
});

/** An address on which nothing listens. */
async function refusing(): Promise<string> {
  const server = await serveHelpers(() => undefined);
  server.close();
  return server.address;
}

/** How late a helper may end on a machine that is busy with other tests; on an even busier one the test is run a second time. */
const LATE_MS = 1_500;
const AGAIN = { retry: 2 };

interface Case {
  readonly what: string;
  /** What the server does with each connection; undefined: it is refused. */
  readonly meet?: (socket: net.Socket, call: number) => void;
  readonly host?: string;
  /** Seconds. */
  readonly least: number;
  readonly most: number;
  readonly ends: number;
}

const CASES: readonly Case[] = [
  { what: 'released at once', meet: (s) => s.write('release\n'), least: 3, most: 5, ends: 0 },
  { what: 'held, then released', meet: heldFor(600), least: 3, most: 5, ends: 0.6 },
  { what: 'released by IPv6', meet: heldFor(200), host: '::1', least: 3, most: 5, ends: 0.2 },
  { what: 'STATIC where the connection is refused', least: 1, most: 3, ends: 1 },
  { what: 'STATIC where nothing is said', meet: () => undefined, least: 1, most: 3, ends: 1 },
  {
    what: 'STATIC where every connection is reset',
    meet: (s) => void s.resetAndDestroy(),
    least: 1,
    most: 3,
    ends: 1,
  },
  {
    what: 'STATIC where every connection ends at once',
    meet: (s) => void s.end(),
    least: 1,
    most: 3,
    ends: 1,
  },
  { what: 'STATIC where Linger is unsure', meet: (s) => s.end('unsure\n'), least: 1, most: 3, ends: 1 },
  {
    what: 'STATIC where Linger is unsure after holding',
    meet: (s, call) => s.end(call === 1 ? 'holding\nunsure\n' : 'unsure\n'),
    least: 1,
    most: 3,
    ends: 1,
  },
  { what: 'MAX while it is held', meet: (s) => s.write('holding\n'), least: 1, most: 2, ends: 2 },
  { what: 'MAX before 30 s after a loss', meet: (s) => s.end('holding\n'), least: 1, most: 2, ends: 2 },
  { what: 'held beyond STATIC', meet: heldFor(1500), least: 1, most: 5, ends: 1.5 },
  {
    what: 'not ended by a word that only begins alike',
    meet: (s) => s.write('releases\nreleas\n'),
    least: 1,
    most: 3,
    ends: 1,
  },
  { what: 'not ended by garbage', meet: (s) => s.write(Buffer.alloc(3000, 0)), least: 1, most: 3, ends: 1 },
  {
    what: 'released in one byte at a time',
    meet: async (socket) => {
      for (const byte of 'what is this\nholding\nrelease\n') {
        socket.write(byte);
        await delay(20);
      }
    },
    least: 3,
    most: 5,
    ends: 0.56,
  },
  {
    what: 'released on the second connection, after a pause of at least 0.1 s',
    meet: (socket, call) => (call === 1 ? void socket.resetAndDestroy() : socket.write('holding\nrelease\n')),
    least: 3,
    most: 5,
    ends: 0.1,
  },
  {
    what: 'released by the last bytes of a connection',
    meet: (socket) => socket.end('holding\nrelease\n'),
    least: 3,
    most: 5,
    ends: 0,
  },
];

function heldFor(milliseconds: number) {
  return async (socket: net.Socket) => {
    socket.write('holding\n');
    await delay(milliseconds);
    socket.write('release\n');
  };
}

for (const [architecture, command] of Object.entries(COMMANDS)) {
  describe.skipIf(command === undefined).concurrent(`the helper for ${architecture}`, AGAIN, () => {
    it.each(CASES)('$what: ends after $ends s, with 0', async ({ meet, host, least, most, ends }) => {
      const address = meet === undefined ? await refusing() : (await meeting(meet, host)).address;
      const { ended } = runHelper(command ?? [], [address, TOKEN, String(least), String(most)]);
      const { code, signal, ms } = await ended;
      expect({ code, signal }).toEqual({ code: 0, signal: null });
      expect(ms).toBeGreaterThanOrEqual(ends * 1000 - 5);
      expect(ms).toBeLessThan(ends * 1000 + LATE_MS);
    });
  });
}

describe.concurrent('the helper, met by others', AGAIN, () => {
  it('says its token and its age once, and nothing more until it is held', async () => {
    const server = await meeting(() => undefined);
    await runHelper(OWN, [server.address, TOKEN, '1', '1']).ended;
    expect(server.calls.map(({ lines }) => lines)).toEqual([
      [expect.stringMatching(new RegExp(`^linger-hold/1 ${TOKEN} \\d{1,4}$`))],
    ]);
  });

  it('calls again after 0.2 to 2 s, not all the time', async () => {
    const server = await meeting((socket) => void socket.resetAndDestroy());
    await runHelper(OWN, [server.address, TOKEN, '3', '3']).ended;
    // 0.1–0.2, 0.2–0.4, 0.4–0.8, 0.8–1.6, 1–2 s: 3 at the least, 5 at the most.
    expect(server.calls.length).toBeGreaterThanOrEqual(3);
    expect(server.calls.length).toBeLessThanOrEqual(6);
  });

  it('reads little of an answer without end, and keeps none of it', async () => {
    let taken = 0;
    const flood = (bytes: Buffer) => (socket: net.Socket) => {
      let wrote = 0;
      const more = () => {
        while (!socket.destroyed && wrote < 1 << 30) {
          wrote += bytes.length;
          if (!socket.write(bytes)) return;
        }
      };
      socket.on('drain', more);
      socket.on('close', () => {
        taken = Math.max(taken, socket.bytesWritten - socket.writableLength);
      });
      more();
    };
    for (const bytes of [
      Buffer.alloc(65_536, 'x'),
      Buffer.from('x\n'.repeat(32_768)),
      Buffer.from('holding\n'.repeat(8192)),
    ]) {
      taken = 0;
      const server = await meeting(flood(bytes));
      const helper = runHelper(OWN, [server.address, TOKEN, '1', '1']);
      await delay(700);
      // Its own and a page of each of its arrays.
      expect(helper.memory()).toBeLessThan(1024);
      expect(await helper.ended).toMatchObject({ code: 0 });
      // What it has read, plus what fits into the kernel's buffers.
      expect(taken).toBeLessThan(16 << 20);
      expect(server.calls.length).toBeGreaterThan(1);
    }
  });

  it('gives up a connect without an answer', async () => {
    // A process that listens and never accepts: once its queue is full, the kernel drops new connections.
    const script = `const server = require('node:net').createServer();
      server.listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
        require('node:fs').writeSync(1, String(server.address().port) + '\\n');
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
      });`;
    const deaf = spawn(process.execPath, ['-e', script], { stdio: ['ignore', 'pipe', 'ignore'] });
    const [port] = (await once(deaf.stdout, 'data')) as [Buffer];
    const knocking = Array.from({ length: 4 }, () =>
      net.connect(Number(port), '127.0.0.1').on('error', () => {}),
    );
    try {
      await delay(200);
      const { code, ms } = await runHelper(OWN, [`127.0.0.1:${Number(port)}`, TOKEN, '2', '5']).ended;
      expect(code).toBe(0);
      expect(ms).toBeGreaterThanOrEqual(1995);
      expect(ms).toBeLessThan(2000 + LATE_MS);
    } finally {
      deaf.kill('SIGKILL');
      for (const socket of knocking) socket.destroy();
    }
  });

  it.each(['SIGTERM', 'SIGINT', 'SIGKILL'] as const)('ends by %s as any program', async (signal) => {
    const server = await meeting((socket) => socket.write('holding\n'));
    const helper = runHelper(OWN, [server.address, TOKEN, '5', '5']);
    while (server.calls[0]?.lines.length === undefined) await delay(10);
    helper.process.kill(signal);
    expect(await helper.ended).toMatchObject({ signal });
  });

  it.each([
    ['an address without a port', ['127.0.0.1', TOKEN, '1', '2'], 1],
    ['a name for an address', ['linger-hold:8445', TOKEN, '1', '2'], 1],
    ['an address of five parts', ['1.2.3.4.5:80', TOKEN, '1', '2'], 1],
    ['no closing bracket', ['[::1:80', TOKEN, '1', '2'], 1],
    ['two gaps', ['[1::2::3]:80', TOKEN, '1', '2'], 1],
    ['nothing at all', ['', '', '1', '2'], 1],
    ['a port beyond 65535', ['127.0.0.1:65536', TOKEN, '1', '2'], 1],
    ['a long address', [`${'1'.repeat(5000)}:80`, TOKEN, '1', '2'], 1],
    ['a MAX below STATIC', ['127.0.0.1:1', TOKEN, '1', '0'], 1],
    ['a MAX that is no number', ['127.0.0.1:1', TOKEN, '1', 'x'], 1],
    ['no MAX', ['127.0.0.1:1', TOKEN, '1'], 1],
    ['no wait', ['127.0.0.1:1', TOKEN, '0', '0'], 0],
  ])('%s: ends after STATIC, with 0', async (_what, args, ends) => {
    const { code, ms } = await runHelper(OWN, args).ended;
    expect(code).toBe(0);
    expect(ms).toBeGreaterThanOrEqual(ends * 1000 - 5);
    expect(ms).toBeLessThan(ends * 1000 + LATE_MS);
  });

  it.each(['short', `${TOKEN}A`, 'AAAAAAAAAAAAAAAAAAAAA\n', 'AAAAAAAAAAAAAAAAAAAAA+'])(
    'calls nobody with a token that is none: %j',
    async (token) => {
      const server = await meeting((socket) => socket.write('release\n'));
      const { code, ms } = await runHelper(OWN, [server.address, token, '1', '2']).ended;
      expect(code).toBe(0);
      expect(ms).toBeGreaterThanOrEqual(995);
      expect(server.calls).toEqual([]);
    },
  );

  it('tells of connections over loopback as what they are', async () => {
    const server = await meeting((socket) => socket.write('holding\n'));
    const application = net.createServer((socket) => socket.on('error', () => {}));
    application.listen(0, '127.0.0.1');
    await once(application, 'listening');
    const { port } = application.address() as net.AddressInfo;
    const helper = runHelper(OWN, [server.address, TOKEN, '5', '5']);
    const samples = () => (server.calls[0]?.lines ?? []).filter((line) => line.startsWith('w '));
    while (samples().length === 0) await delay(20);
    const clients = Array.from({ length: 25 }, () => net.connect(port, '127.0.0.1'));
    await delay(1200);
    helper.process.kill();
    for (const client of clients) client.destroy();
    application.close();
    const fields = samples().map((line) => line.split(' '));
    expect(fields[0]?.[5]).toBe('-');
    expect(Number(fields.at(-1)?.[1]) - Number(fields[0]?.[1])).toBeGreaterThanOrEqual(25);
    expect(fields.slice(1).reduce((sum, each) => sum + Number(each[5]), 0)).toBeGreaterThanOrEqual(25);
    // Only the two that a rate of 2 a second allows.
    expect(fields.length).toBeLessThanOrEqual(5);
    expect(fields.every((each) => !(each[4] ?? '').includes('127.0.0.1'))).toBe(true);
  });
});

/** `0100007F`, as /proc writes it. */
const hex4 = (address: string) =>
  address
    .split('.')
    .reverse()
    .map((part) => Number(part).toString(16).padStart(2, '0'))
    .join('')
    .toUpperCase();
/** @param groups all eight, in hex */
const hex6 = (groups: string) =>
  (
    groups
      .split(':')
      .map((group) => group.padStart(4, '0'))
      .join('')
      .match(/.{8}/g) ?? []
  )
    .map((word) => (word.match(/../g) ?? []).reverse().join(''))
    .join('')
    .toUpperCase();

type Row = readonly [local: string, port: number, remote: string, from: number, state: string];
const HEAD =
  '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n';
function table(hex: (address: string) => string, rows: readonly Row[]): string {
  const port = (value: number) => value.toString(16).toUpperCase().padStart(4, '0');
  return `${HEAD}${rows
    .map(
      ([local, own, remote, from, state], index) =>
        `${String(index).padStart(4)}: ${hex(local)}:${port(own)} ${hex(remote)}:${port(from)} ${state} 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n`,
    )
    .join('')}`;
}

const snmp = (opens: string, datagrams: string) =>
  `Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails\nTcp: 1 200 120000 -1 7 ${opens} 3\nUdp: InDatagrams NoPorts\nUdp: ${datagrams} 1\nUdpLite: InDatagrams NoPorts\nUdpLite: 99 99\n`;

/** Milliseconds of a second of the helper that is compiled for these tests. */
const SECOND = 50;
const zig = zigHere();
const WITHOUT_ZIG = 'npm run build:helper installs the compiler that this needs';

describe.skipIf(zig === undefined)(`the helper, compiled here (${WITHOUT_ZIG})`, () => {
  let folder = '';
  let fast: readonly string[] = [];
  let steady: readonly string[] = [];
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'linger-hold-'));
    // Both read tables from their folder. Witnesses have more time: Linger must not fall silent while it holds them.
    const build = async (second: number) => {
      const file = join(folder, `hold-${second}`);
      await buildHelper(zig ?? '', OWN_ARCHITECTURE, file, [`SECOND=${second}`, 'PROC_NET="net/"']);
      return [file];
    };
    fast = await build(SECOND);
    steady = await build(250);
  });
  afterAll(async () => {
    await rm(folder, { recursive: true, force: true });
  });

  it('comes out as it is committed, to the byte', async () => {
    const built = await buildHelpers(zig ?? '');
    const digest = (file: string) => createHash('sha256').update(readFileSync(file)).digest('hex');
    try {
      for (const architecture of ARCHITECTURES)
        expect(digest(built.files[architecture]), architecture).toBe(digest(helperFile(architecture)));
    } finally {
      await rm(built.folder, { recursive: true });
    }
  });

  describe.concurrent('once it has been held', AGAIN, () => {
    it.each([
      // [what, STATIC, MAX, end]
      ['30 s after the loss, beyond STATIC', 5, 600, 30],
      ['STATIC, beyond 30 s after the loss', 40, 600, 40],
      ['MAX, before both', 5, 20, 20],
    ])('ends by %s', async (_what, least, most, ends) => {
      const server = await meeting((socket, call) =>
        call === 1 ? socket.end('holding\n') : void socket.resetAndDestroy(),
      );
      const { code, ms } = await runHelper(fast, [server.address, TOKEN, String(least), String(most)], folder)
        .ended;
      expect(code).toBe(0);
      expect(ms).toBeGreaterThanOrEqual(ends * SECOND - 5);
      expect(ms).toBeLessThan(ends * SECOND + LATE_MS);
    });

    it('takes a silence of 15 s for a loss, and any byte for none', async () => {
      const silent = await meeting((socket, call) => (call === 1 ? socket.write('holding\n') : undefined));
      const { ms } = await runHelper(fast, [silent.address, TOKEN, '1', '600'], folder).ended;
      expect(ms).toBeGreaterThanOrEqual(45 * SECOND - 5);
      expect(ms).toBeLessThan(45 * SECOND + LATE_MS);
      const slow = await meeting((socket) => {
        socket.write('holding\n');
        const timer = setInterval(() => socket.write('h'), 8 * SECOND);
        socket.on('close', () => clearInterval(timer));
      });
      const held = await runHelper(fast, [slow.address, TOKEN, '1', '60'], folder).ended;
      expect(held.ms).toBeGreaterThanOrEqual(60 * SECOND - 5);
      expect(slow.calls.length).toBe(1);
    });

    it('goes on when it has been held again, and counts from the last loss', async () => {
      const begun = performance.now();
      const server = await meeting(async (socket, call) => {
        if (call > 3) return void socket.resetAndDestroy();
        socket.write('holding\n');
        await delay(10 * SECOND);
        socket.destroy();
      });
      const { code } = await runHelper(fast, [server.address, TOKEN, '1', '600'], folder).ended;
      expect(code).toBe(0);
      const lost = (server.calls[2]?.at ?? 0) + 10 * SECOND;
      expect(performance.now() - lost).toBeGreaterThanOrEqual(30 * SECOND - 10);
      expect(performance.now() - lost).toBeLessThan(30 * SECOND + LATE_MS);
      expect(performance.now() - begun).toBeGreaterThan(60 * SECOND);
    });

    it.each([
      ['STATIC that is no number', ['127.0.0.1:1', TOKEN, '-5', '600']],
      ['nothing to read', []],
    ])('%s: ends after the standard wait', async (_what, args) => {
      const { code, ms } = await runHelper(fast, args, folder).ended;
      expect(code).toBe(0);
      expect(ms).toBeGreaterThanOrEqual(30 * SECOND - 5);
      expect(ms).toBeLessThan(30 * SECOND + LATE_MS);
    });
  });

  /** Runs the helper on tables; each step's tables stay in place until `lines` more lines have come. */
  async function witness(steps: readonly Readonly<Record<string, string>>[], lines = 2): Promise<string[][]> {
    const place = await mkdtemp(join(folder, 'tables-'));
    await mkdir(join(place, 'net'));
    const server = await meeting((socket) => {
      const say = () => socket.write('holding\n');
      const timer = setInterval(say, 500);
      socket.on('close', () => clearInterval(timer));
      say();
    });
    const told = () => (server.calls[0]?.lines ?? []).slice(1);
    const results: string[][] = [];
    let helper: ReturnType<typeof runHelper> | undefined;
    for (const step of steps) {
      for (const [name, text] of Object.entries(step)) await writeFile(join(place, 'net', name), text);
      // A line may have been produced while the tables were being written.
      const from = helper === undefined ? 0 : told().length + 1;
      helper ??= runHelper(steady, [server.address, TOKEN, '1', '900'], place);
      while (told().length < from + lines && helper.process.exitCode === null) await delay(10);
      results.push(told().slice(from, from + lines));
    }
    helper?.process.kill();
    return results;
  }

  const LISTENING: Row = ['0.0.0.0', 8080, '0.0.0.0', 0, '0A'];
  const row = (remote: string, from: number, state = '01', local = '10.1.0.9', port = 8080): Row => [
    local,
    port,
    remote,
    from,
    state,
  ];

  describe.concurrent('as a witness', () => {
    it('counts what is established on listening ports, and names who is there', async () => {
      const rows = [
        LISTENING,
        row('10.1.0.7', 4000),
        row('10.1.0.8', 4001),
        row('10.1.0.8', 4002),
        row('10.1.0.6', 4003, '06'),
        row('10.1.0.5', 4004, '03'),
        // Outgoing, within the pod, and over its own address.
        row('10.1.0.4', 5432, '01', '10.1.0.9', 40_000),
        row('127.0.0.1', 4005, '01', '127.0.0.1'),
        row('10.1.0.9', 4006),
      ];
      const [[first, second] = []] = await witness([{ snmp: snmp('11', '5'), tcp: table(hex4, rows) }]);
      expect(first).toBe('w 11 5 3 10.1.0.7,10.1.0.8,10.1.0.6 -');
      expect(second).toBe('w 11 5 3 - 0');
    });

    it('names an address again with each connection that is new, and counts what is new within the pod', async () => {
      const before = [
        LISTENING,
        row('10.1.0.7', 4000),
        row('10.1.0.8', 4001),
        row('127.0.0.1', 5000, '01', '127.0.0.1'),
      ];
      const later = [
        LISTENING,
        row('10.1.0.7', 4009),
        row('10.1.0.8', 4001),
        row('127.0.0.1', 5000, '01', '127.0.0.1'),
        // Both ends of one, the client's end of another, and one over the pod's own address.
        row('127.0.0.1', 5001, '01', '127.0.0.1'),
        ['127.0.0.1', 5001, '127.0.0.1', 8080, '01'] as Row,
        ['127.0.0.1', 5002, '127.0.0.1', 8080, '06'] as Row,
        row('10.1.0.9', 5003),
      ];
      const [, [line] = []] = await witness(
        [
          { snmp: snmp('11', '5'), tcp: table(hex4, before) },
          // The table first: a helper reads it once the counter has changed.
          { tcp: table(hex4, later), snmp: snmp('15', '6') },
        ],
        1,
      );
      // Either this line or the previous one shows the change.
      expect(line).toMatch(/^w 15 6 2 /);
    });

    it('reads IPv6, and IPv4 in IPv6 as IPv4', async () => {
      const any = '0:0:0:0:0:0:0:0';
      const own = 'fd00:0:0:0:0:0:0:9';
      const rows: Row[] = [
        [any, 8080, any, 0, '0A'],
        [own, 8080, 'fd00:0:0:0:0:0:a:7', 4000, '01'],
        ['0:0:0:0:0:ffff:a01:9', 8080, '0:0:0:0:0:ffff:a01:7', 4001, '01'],
        ['0:0:0:0:0:0:0:1', 8080, '0:0:0:0:0:0:0:1', 4002, '01'],
        ['0:0:0:0:0:ffff:7f00:1', 8080, '0:0:0:0:0:ffff:7f00:1', 4003, '01'],
        [own, 8080, own, 4004, '01'],
      ];
      const [[line] = []] = await witness([
        {
          snmp: snmp('11', '5'),
          snmp6: 'Ip6InReceives   \t8\nUdp6InDatagrams      \t7\n',
          tcp: HEAD,
          tcp6: table(hex6, rows),
        },
      ]);
      expect(line).toBe('w 11 12 2 fd00:0:0:0:0:0:a:7,10.1.0.7 -');
    });

    it('tells at most 16 addresses, in lines of at most 512 bytes, the others in the next', async () => {
      const any = '0:0:0:0:0:0:0:0';
      const remote = (index: number) => `fd00:1111:2222:3333:4444:5555:6666:${(0x7000 + index).toString(16)}`;
      const rows: Row[] = [[any, 80, any, 0, '0A']];
      for (let index = 0; index < 40; index += 1)
        rows.push(['fd00:0:0:0:0:0:0:9', 80, remote(index), 4000, '01']);
      const [lines = []] = await witness([{ snmp: snmp('11', '5'), tcp: HEAD, tcp6: table(hex6, rows) }], 3);
      for (const line of lines) expect(line.length).toBeLessThanOrEqual(511);
      const named = lines
        .flatMap((line) => (line.split(' ')[4] ?? '').split(','))
        .filter((each) => each !== '-');
      expect(named).toEqual(Array.from({ length: 16 }, (_, index) => remote(index)));
    });

    it.each([
      [
        'the largest counters',
        snmp('18446744073709551615', '4294967295'),
        'w 18446744073709551615 4294967295',
      ],
      ['tabs between numbers', snmp('11', '5').replaceAll(' ', '\t'), 'w 11 5'],
      ['a counter that is none', snmp('-1', 'x'), 'w - -'],
      ['a file that ends early', 'Tcp: PassiveOpens\n', 'w - -'],
      ['an empty file', '', 'w - -'],
      ['a line without end', `Tcp: ${'x'.repeat(100_000)}`, 'w - -'],
    ])('tells %s as it is', async (_what, text, told) => {
      const [[line] = []] = await witness([{ snmp: text, tcp: HEAD }]);
      expect(line).toBe(`${told} 0 - -`);
    });

    it('tells what it cannot read as unknown', async () => {
      const [lines] = await witness([{}]);
      expect(lines).toEqual(['w - - - - -', 'w - - - - -']);
    });

    it('passes over rows that are none', async () => {
      const text = `${table(hex4, [LISTENING, row('10.1.0.7', 4000)])}\n   9: zz\n   10: 0100007F\n 11: 0100007F:1F90 0100:0 01\n${'1'.repeat(200)}\n`;
      const [[line] = []] = await witness([{ snmp: snmp('11', '5'), tcp: text }]);
      expect(line).toBe('w 11 5 1 10.1.0.7 -');
    });

    it('counts as often, and to the end, where it gets little of a processor', async () => {
      const place = await mkdtemp(join(folder, 'tables-'));
      const tables = join(place, 'net', 'tcp');
      await mkdir(join(place, 'net'));
      await writeFile(join(place, 'net', 'snmp'), snmp('11', '5'));
      execFileSync('mkfifo', [tables]);
      const arrived: number[] = [];
      const server = await meeting((socket) => {
        socket.on('data', (bytes) => {
          if (bytes.toString('latin1').includes('\nw ') || bytes.toString('latin1').startsWith('w '))
            arrived.push(performance.now());
        });
        socket.write('holding\n');
      });
      const helper = runHelper(steady, [server.address, TOKEN, '1', '900'], place);
      // As if it lost its processor in between: it opens the tables, and reads them 400 ms later.
      const text = table(hex4, [LISTENING, row('10.1.0.7', 4000)]);
      const file = await open(tables, 'w');
      await writeFile(`${tables}.next`, text);
      await rename(`${tables}.next`, tables);
      await delay(400);
      await file.writeFile(text);
      await file.close();
      while (arrived.length < 2 && helper.process.exitCode === null) await delay(10);
      helper.process.kill();
      expect(server.calls[0]?.lines[1]).toBe('w 11 5 1 10.1.0.7 -');
      // Not ten times what has passed.
      expect((arrived[1] ?? 0) - (arrived[0] ?? 0)).toBeLessThan(2000);
    });

    it('counts 50,000 connections in a fraction of a second and a megabyte, and gives 70,000 up', async () => {
      // Built here in one go: row by row it would delay the code that measures time.
      const head = table(hex4, [LISTENING]);
      const rest = '01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n';
      const many = (count: number) => {
        let text = head;
        for (let index = 0; index < count; index += 1) {
          // 10.2.0.0 and the following addresses, as words in this machine's byte order.
          const bytes =
            ((index & 255) << 24) | (((index >> 8) & 255) << 16) | ((2 + (index >> 16)) << 8) | 10;
          const remote = (bytes >>> 0).toString(16).padStart(8, '0').toUpperCase();
          text += `   1: 0900010A:1F90 ${remote}:0FA0 ${rest}`;
        }
        return text;
      };
      const [[some] = [], [next] = []] = await witness(
        [
          { snmp: snmp('11', '5'), tcp: many(50_000) },
          { tcp: many(70_000), snmp: snmp('12', '5') },
        ],
        1,
      );
      expect(some).toMatch(/^w 11 5 50000 (10\.2\.0\.\d+,){15}10\.2\.0\.15 -$/);
      expect(next).toMatch(/^w 12 5 - /);
    });
  });
});

describe('the files of the helper', () => {
  it.each(ARCHITECTURES)('%s: at most 32 KB, static, for anybody to run', (architecture) => {
    const file = helperFile(architecture);
    const bytes = readFileSync(file);
    expect(bytes.length).toBeLessThanOrEqual(32_768);
    expect(statSync(file).mode & 0o111).toBe(0o111);
    // ELF of 64 bits, a program (no interpreter: type EXEC), for its machine.
    expect(bytes.subarray(0, 5).toString('latin1')).toBe('\x7fELF\x02');
    expect([bytes.readUInt16LE(16), bytes.readUInt16LE(18)]).toEqual([
      2,
      architecture === 'amd64' ? 62 : 183,
    ]);
  });

  it('makes no system call but those that every default seccomp profile allows', () => {
    const source = readFileSync(join(HELPER_FOLDER, 'hold.c'), 'utf8');
    const calls = new Set([...source.matchAll(/\bSYS_(\w+)/g)].map(([, name]) => name));
    expect([...calls].sort()).toEqual([
      'clock_gettime',
      'close',
      'connect',
      'exit_group',
      'openat',
      'ppoll',
      'read',
      'recvfrom',
      'sendto',
      'socket',
    ]);
    // The only ways into the kernel: one instruction for each architecture.
    expect(source.match(/"syscall"|"svc 0"/g)).toEqual(['"syscall"', '"svc 0"']);
  });
});

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer, connect as dial } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { listen } from '../../src/webhook/server.ts';
import { ROOT } from '../cli/linger.ts';
import { atEndOfFile } from './connection.ts';

const atEnd = atEndOfFile();

describe('a server that listens on ::', () => {
  it.each(['127.0.0.1', '::1'])('is reached at %s', async (host) => {
    const server = createServer((socket) => socket.end('here'));
    const port = await listen(server, '::', 0, '--port', () => {});
    atEnd(() => server.close());
    const [answer] = (await once(dial({ host, port }), 'data')) as [Buffer];
    expect(answer.toString()).toBe('here');
  });

  const python = spawnSync('python3', ['-c', '']).status === 0 && ['x64', 'arm64'].includes(process.arch);
  it.runIf(python)('listens on IPv4 alone where the kernel has no IPv6', () => {
    const server = JSON.stringify(join(ROOT, 'src/webhook/server.ts'));
    const program = `
      import { createServer } from 'node:net';
      import { listen } from ${server};
      const server = createServer();
      await listen(server, '::', 0, '--port', console.error);
      console.log(server.address().address);
      server.close();`;
    const node = [process.execPath, '--input-type=module', '--eval', program];
    const { stdout, stderr } = spawnSync('python3', ['-c', WITHOUT_IPV6, ...node], { encoding: 'utf8' });
    expect([stdout, stderr]).toEqual(['0.0.0.0\n', '']);
  });
});

/** Runs a command for which socket(AF_INET6, …) fails as in a kernel that was started with ipv6.disable=1. */
const WITHOUT_IPV6 = `
import ctypes, os, struct, sys
number = {'x64': 41, 'arm64': 198}['${process.arch}']
code = [
    (0x20, 0, 0, 0),           # the number of the system call
    (0x15, 0, 3, number),      # not socket: allow
    (0x20, 0, 0, 16),          # its first argument
    (0x15, 0, 1, 10),          # not AF_INET6: allow
    (0x06, 0, 0, 0x50000 | 97),  # EAFNOSUPPORT
    (0x06, 0, 0, 0x7fff0000),
]
text = ctypes.create_string_buffer(b''.join(struct.pack('HBBI', *each) for each in code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
filter = ctypes.create_string_buffer(struct.pack('HP', len(code), ctypes.addressof(text)))
assert libc.prctl(22, 2, filter, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
`;

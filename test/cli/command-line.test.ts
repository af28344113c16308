import { Readable, Writable } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Environment, readCommandLine } from '../../src/cli/command-line.ts';
import { VERBS, type Verb } from '../../src/cli/commands.ts';
import { variableName } from '../../src/cli/flags.ts';
import { run as runCommand } from '../../src/cli/index.ts';
import { LingerError } from '../../src/core/api/index.ts';
import { COMMANDS, rows } from './flag-table.ts';
import { linger } from './linger.ts';

function settingsOf(argv: readonly string[], environment: Environment = {}): Record<string, unknown> {
  const invocation = readCommandLine(argv, environment, '1.2.3');
  if (invocation.command === 'none')
    throw new Error(`${argv.join(' ')} was refused with ${invocation.exitCode}`);
  return invocation.settings as unknown as Record<string, unknown>;
}

function refusalOf(argv: readonly string[], environment: Environment = {}): LingerError {
  try {
    const settings = settingsOf(argv, environment);
    throw new Error(`not refused: ${JSON.stringify(settings)}`);
  } catch (error) {
    if (error instanceof LingerError) return error;
    throw error;
  }
}

/** A stream, and what has been written to it. */
function collecting() {
  let written = '';
  const write = (chunk: Buffer, _encoding: string, done: () => void) => {
    written += chunk;
    done();
  };
  return { stream: new Writable({ write }), text: () => written };
}

const written = rows.flatMap((row) => row.reads.map(([text, value]) => ({ ...row, text, value })));
const refused = rows.flatMap((row) => row.refuses.map((text) => ({ ...row, text })));
const ofServe = <T extends { command: string }>(all: readonly T[]) =>
  all.filter(({ command }) => command === 'serve');

describe('every flag', () => {
  it.each(Object.entries(VERBS))('of %s has its row here', (command, { flags }) => {
    expect(Object.keys(COMMANDS[command] ?? {}).toSorted()).toEqual(Object.keys(flags).toSorted());
  });

  it.each(rows)('$command $flag has its default', ({ command, key, byDefault }) => {
    expect(settingsOf([command])[key]).toEqual(byDefault);
  });

  it.each(written)('$command $flag "$text" is read', ({ command, key, flag, text, value }) => {
    expect(settingsOf([command, flag, text])[key]).toEqual(value);
    expect(settingsOf([command, `${flag}=${text}`])[key]).toEqual(value);
  });

  it.each(refused)('$command $flag "$text" is refused by name', ({ command, flag, text }) => {
    const { code, message } = refusalOf([command, `${flag}=${text}`]);
    expect(code).toBe('settings-invalid');
    expect(message).toMatch(new RegExp(`^${flag}: expected .+, got "`));
    expect(message).toContain(`got "${text}"`);
  });

  it('is refused without a value', () => {
    const said = vi.spyOn(process.stderr, 'write').mockReturnValue(true);
    onTestFinished(() => said.mockRestore());
    for (const { command, flag, reads } of rows) {
      if (reads.length > 0) expect(readCommandLine([command, flag], {}, '1').command).toBe('none');
    }
  });
});

describe('every flag of serve is also a variable', () => {
  it('with this name', () => {
    expect(Object.keys(VERBS.serve.flags).map(variableName)).toEqual([
      'LINGER_PORT',
      'LINGER_ADMIN_PORT',
      'LINGER_PAGE_PORT',
      'LINGER_HOST',
      'LINGER_POLICIES',
      'LINGER_STRICT',
      'LINGER_CERTS',
      'LINGER_CERT_NAMES',
      'LINGER_CERTS_SECRET',
      'LINGER_WEBHOOK_CONFIGURATION',
      'LINGER_CLIENT_CA',
      'LINGER_MODE_LIMIT',
      'LINGER_AUDIT_WARNINGS',
      'LINGER_LOG_LEVEL',
      'LINGER_DRAIN',
      'LINGER_CONNECTION_CLOSE_PROBABILITY',
      'LINGER_CLUSTER',
      'LINGER_KUBECONFIG',
      'LINGER_CONTEXT',
      'LINGER_SYNC_TIMEOUT',
      'LINGER_NAMESPACE',
      'LINGER_IDENTITY',
      'LINGER_CANARY_PORT',
      'LINGER_CANARY_EVERY',
      'LINGER_PROBE_ALLOW_LINK_LOCAL',
      'LINGER_INSPECT_FILES',
      'LINGER_POD_IP',
      'LINGER_REPORTS_AUDIENCE',
      'LINGER_HOLD_PORT',
      'LINGER_HOLD_ADDRESS',
      'LINGER_HOLD_IMAGE',
      'LINGER_HOLD_TEST_IMAGE',
      'LINGER_DELETE_ON_NODE_SHUTDOWN',
      'LINGER_ENDPOINTS',
      'LINGER_AUDIT_EVERY',
      'LINGER_POLICY_REPORTS',
    ]);
  });

  it.each(ofServe(written))('$key "$text" is read', ({ key, text, value }) => {
    expect(settingsOf(['serve'], { [variableName(key)]: text })[key]).toEqual(value);
  });

  it.each(ofServe(refused).filter(({ text }) => text !== ''))(
    '$key "$text" is refused by name',
    ({ key, text }) => {
      const { message } = refusalOf(['serve'], { [variableName(key)]: text });
      expect(message).toMatch(new RegExp(`^${variableName(key)}: expected .+, got "`));
    },
  );

  it.each(ofServe(rows))('$key set to nothing is not set', ({ key }) => {
    expect(settingsOf(['serve'], { [variableName(key)]: '' })).toEqual(settingsOf(['serve']));
  });

  it.each(ofServe(rows).filter(({ reads }) => reads.length > 1))(
    '$flag wins over it',
    ({ key, flag, reads, refuses }) => {
      const [[first], [second, value]] = reads as [[string, unknown], [string, unknown]];
      expect(settingsOf(['serve', flag, second], { [variableName(key)]: first })[key]).toEqual(value);
      // What is not used is not judged.
      expect(settingsOf(['serve', flag, second], { [variableName(key)]: refuses[1] })[key]).toEqual(value);
    },
  );

  it.each(['inject', 'explain', 'certs', 'watch', 'diagnose', 'consumers'])(
    'and %s has none: people see what they type',
    (command) => {
      const environment = Object.fromEntries(rows.map(({ key }) => [variableName(key), 'anything']));
      expect(settingsOf([command], environment)).toEqual(settingsOf([command]));
    },
  );

  it.each(['tcp://10.96.31.7:443', 'udp://[fd00::7]:443'])(
    'LINGER_PORT=%s is what Kubernetes sets for a Service named linger, and means nothing',
    (port) => {
      expect(settingsOf(['serve'], { LINGER_PORT: port, LINGER_ADMIN_PORT: port })).toEqual(
        settingsOf(['serve']),
      );
    },
  );
});

describe('--audit-warnings', () => {
  it('is a switch', () => {
    expect(settingsOf(['serve', '--audit-warnings']).auditWarnings).toBe(true);
  });

  it.each([
    ['true', true],
    ['1', true],
    ['Yes', true],
    ['on', true],
    ['false', false],
    ['0', false],
    ['no', false],
    ['OFF', false],
  ] as const)('LINGER_AUDIT_WARNINGS=%s', (text, value) => {
    expect(settingsOf(['serve'], { LINGER_AUDIT_WARNINGS: text }).auditWarnings).toBe(value);
  });

  it.each(['maybe', '2', ' '])('LINGER_AUDIT_WARNINGS="%s" is refused by name', (text) => {
    expect(refusalOf(['serve'], { LINGER_AUDIT_WARNINGS: text }).message).toMatch(
      /^LINGER_AUDIT_WARNINGS: expected true or false/,
    );
  });

  it('wins over the variable', () => {
    expect(settingsOf(['serve', '--audit-warnings'], { LINGER_AUDIT_WARNINGS: 'false' }).auditWarnings).toBe(
      true,
    );
  });
});

describe('several values', () => {
  it.each([
    ['certs', 'dns', ['--dns', 'a', 'b', '--dns', 'c,d'], ['a', 'b', 'c', 'd']],
    ['serve', 'certNames', ['--cert-names', 'a', 'b'], ['a', 'b']],
    ['explain', 'failOn', ['--fail-on', 'Job,skip'], ['Job', 'skip']],
  ])('%s %s', (command, key, argv, value) => {
    expect(settingsOf([command, ...argv])[key]).toEqual(value);
  });

  it('--fail-on takes one word, so that a file may follow it', () => {
    expect(settingsOf(['explain', '--fail-on', 'Job', 'web.yaml'])).toMatchObject({
      failOn: ['Job'],
      operands: ['web.yaml'],
    });
  });

  it('-n is --namespace, as in kubectl', () => {
    expect(settingsOf(['watch', '-n', 'a', 'b', '-n', 'c']).namespace).toEqual(['a', 'b', 'c']);
  });

  it('of a flag that has one: the last counts', () => {
    expect(settingsOf(['serve', '--port', '1', '--port', '2']).port).toBe(2);
  });
});

describe('manifests', () => {
  it.each(['inject', 'explain'])('%s takes them as words', (command) => {
    expect(settingsOf([command]).operands).toEqual([]);
    expect(settingsOf([command, 'a.yaml', '-', 'b.yaml']).operands).toEqual(['a.yaml', '-', 'b.yaml']);
  });
});

describe('where a cluster is found', () => {
  it.each([
    [{}, { kubeconfigs: [], homeKubeconfig: undefined, service: { host: undefined, port: undefined } }],
    [{ HOME: '/home/me' }, { homeKubeconfig: '/home/me/.kube/config' }],
    [{ KUBECONFIG: '/a:/b::' }, { kubeconfigs: ['/a', '/b'] }],
    [
      { KUBERNETES_SERVICE_HOST: '10.96.0.1', KUBERNETES_SERVICE_PORT: '443' },
      { service: { host: '10.96.0.1', port: '443' } },
    ],
    [{ TOKEN_FOR_PLUGINS: 'x' }, { variables: { TOKEN_FOR_PLUGINS: 'x' } }],
  ])('%j', (environment, kube) => {
    for (const command of ['serve', 'watch']) {
      expect(readCommandLine([command], environment, '1')).toMatchObject({ command, kube });
    }
  });

  it.each([
    [{}, undefined],
    [{ NO_COLOR: '' }, undefined],
    [{ NO_COLOR: '1' }, false],
    [{ FORCE_COLOR: '1' }, true],
    [{ FORCE_COLOR: '0' }, false],
    [{ FORCE_COLOR: '1', NO_COLOR: '1' }, true],
  ])('colours are welcome with %j: %s', (environment, colour) => {
    expect(readCommandLine(['watch'], environment, '1')).toMatchObject({ command: 'watch', colour });
  });
});

describe('the help', () => {
  const verbs = Object.entries<Verb>(VERBS);
  const shown = verbs.filter(([, { group }]) => group !== 'internal');
  const examples = verbs.flatMap(([verb, of]) => of.examples.map(([line]) => ({ verb, line })));

  it('lists each command once, below its heading, and help among the others', async () => {
    const { code, stdout } = await linger(['--help']);
    expect(code).toBe(0);
    const listed = new Map<string, string>();
    let heading = '';
    for (const line of stdout.split('\n')) {
      heading = /^\S.*:$/.exec(line)?.[0] ?? heading;
      const command = /^ {2}([a-z][a-z-]*) /.exec(line)?.[1];
      if (command !== undefined) listed.set(command, heading);
    }
    const expected = shown.map(([verb, { group }]) => [verb, group] as const);
    expect([...listed]).toEqual([...expected, ['help', 'Others:']]);
  });

  it.each(shown)('of %s ends with two examples', async (verb, { examples: own }) => {
    expect(own).toHaveLength(2);
    const { code, stdout } = await linger([verb, '--help']);
    expect(code).toBe(0);
    const lines = own.map(([line, does]) => `  # ${does}\n  ${line}`);
    expect(stdout.slice(stdout.indexOf('\nExamples:\n'))).toBe(`\nExamples:\n${lines.join('\n\n')}\n`);
  });

  it.each([
    ['inject', 'kubectl linger inject -f web.yaml | kubectl apply -f -'],
    ['explain', 'helm template chart/ | kubectl linger explain -'],
  ])('of a kubectl plugin shows what its user types: %s', (verb, line) => {
    const { stream, text } = collecting();
    readCommandLine([verb, '--help'], {}, '1', 'kubectl linger', { stdout: stream, stderr: stream });
    expect(text()).toContain(`\n  ${line}\n`);
  });

  it.each(examples)('$line is a command line of $verb', ({ verb, line }) => {
    const words = /(?:^|\| |<\()linger ([^|)>]+)/.exec(line)?.[1]?.trim().split(' ') ?? [];
    expect(readCommandLine(words, {}, '1').command).toBe(verb);
  });

  it.each(verbs.filter(([, { group }]) => group === 'internal'))(
    '%s runs without standing in it',
    async (verb) => {
      expect(readCommandLine([verb], {}, '1').command).toBe(verb);
      expect((await linger([verb, '--help'])).code).toBe(0);
    },
  );
});

describe('linger version', () => {
  const node = process.version;
  const run = async (commit: string | undefined, ...args: readonly string[]) => {
    const { stream, text } = collecting();
    const program = { name: 'linger', version: '1.2.3', commit };
    const streams = { stdin: Readable.from([]), stdout: stream, stderr: stream };
    return { code: await runCommand(['version', ...args], {}, program, streams), printed: text() };
  };

  it('says the version, Node.js, and the commit where that is known', async () => {
    const said = `Node.js ${node}\n`;
    expect(await run(undefined)).toEqual({ code: 0, printed: `linger 1.2.3\n${said}` });
    expect(await run('4b825dc')).toEqual({ code: 0, printed: `linger 1.2.3, commit 4b825dc\n${said}` });
    const json = async (commit?: string) => JSON.parse((await run(commit, '-o', 'json')).printed) as unknown;
    expect(await json()).toEqual({ version: '1.2.3', node });
    expect(await json('4b825dc')).toEqual({ version: '1.2.3', commit: '4b825dc', node });
  });
});

describe('without input', () => {
  const run = async (argv: readonly string[], isTTY: boolean) => {
    const { stream, text } = collecting();
    const stdin = Object.assign(Readable.from([Buffer.from('')]), { isTTY });
    const program = { name: 'linger', version: '1.2.3' };
    const code = await runCommand(argv, {}, program, { stdin, stdout: stream, stderr: stream });
    return { code, said: text() };
  };

  it.each([
    ['inject', /^linger: no manifests: name files or folders \(-f FILE\), or - for standard input \[/],
    ['uninject', /^linger: no manifests: .* - for standard input \[/],
    [
      'explain',
      /^linger: no manifests: .* - for standard input, or a workload of a cluster \(deployment\/web\) \[/,
    ],
    ['simulate', /^linger: no events: name a file of removals, or - for standard input \[/],
  ])('%s on a terminal says what it wants, and does not wait', async (verb, said) => {
    const found = await run([verb], true);
    expect(found.code).toBe(2);
    expect(found.said).toMatch(said);
  });

  it.each(['inject', 'uninject', 'explain', 'simulate'])(
    '%s reads a terminal that - names, and a pipe',
    async (verb) => {
      for (const { said } of [await run([verb, '-'], true), await run([verb], false)])
        expect(said).not.toContain('for standard input');
    },
  );
});

import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, rename, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { sharedCertificates } from '../cli/certificates.ts';
import { emptyDirectory, linger, ROOT, run, type Serving, serving, until } from '../cli/linger.ts';
import { reasonNow } from '../cli/reviewing.ts';
import { writeKubeconfig } from '../cli/watching.ts';
import type { JsonObject } from '../core/decision/sample-pod.ts';
import { atEndOfFile, connect, requestBytes } from '../webhook/connection.ts';
import { bodyOf } from '../webhook/reviews.ts';

const certs = sharedCertificates();
const atEnd = atEndOfFile();

const POLICY = (spec: string) =>
  `apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: base}\nspec: ${spec}\n`;

/** The pasteable line of the greeting, which comes after the line that says "listening". */
function pasteable({ stdout }: Serving): string | undefined {
  const [, line] = /^ {2}(curl .*?[^\\])$/ms.exec(stdout()) ?? [];
  return line;
}

describe.concurrent('a server that has started', () => {
  it('is ready, serves reviews with its certificate, and says in a metric when that expires', async () => {
    const server = await serving(certs(), [], { atEnd });
    expect(await server.get('/readyz')).toEqual({ status: 200, text: 'ok\n' });
    expect(await reasonNow(server, atEnd)).toBe('Injected');
    const expiry = await server.count('linger_certificate_expiry_timestamp_seconds');
    expect(expiry).toBeGreaterThan(Date.now() / 1000);
    expect(await server.count('linger_draining')).toBe(0);
  });

  it('says that it has few file descriptors, and keeps some for new reviews', async () => {
    const server = await serving(certs(), [], { atEnd, descriptors: 64 });
    const said = server.logs().filter(({ msg }) => String(msg).includes('file descriptors'));
    expect(said).toMatchObject([{ level: 'warn', limit: 64, reviews: 32, holds: 16 }]);
    // The later ones displace the earlier ones, some before their handshake is over.
    await Promise.allSettled(Array.from({ length: 60 }, () => connect(server, atEnd)));
    expect(await reasonNow(server, atEnd)).toBe('Injected');
    expect(await server.get('/readyz')).toMatchObject({ status: 200 });
  });

  it('SIGUSR2 turns the log to debug, and back', async () => {
    const server = await serving(certs(), [], { atEnd });
    const decisions = () => server.logs().filter(({ msg }) => msg === 'decision').length;
    const switched = async (to: string) => {
      server.kill('SIGUSR2');
      await until(async () => server.logs().at(-1)?.logLevel === to);
    };
    await reasonNow(server, atEnd);
    expect(decisions()).toBe(0);
    await switched('debug');
    await reasonNow(server, atEnd);
    await until(async () => decisions() === 1);
    await switched('info');
    await reasonNow(server, atEnd);
    await switched('debug');
    expect(decisions()).toBe(1);
  });

  it('makes its own certificates where there are none', async () => {
    const server = await serving(join(await emptyDirectory(atEnd), 'a/b'), [], { atEnd });
    expect(await reasonNow(server, atEnd)).toBe('Injected');
  });

  const curl = spawnSync('curl', ['--version']).status === 0;
  it.runIf(curl).each(['certs', 'my certs; $(exit 7)'])(
    'greets with a line that works when pasted (certificates in "%s")',
    async (name) => {
      const folder = join(await emptyDirectory(atEnd), name);
      const server = await serving(folder, [], { atEnd });
      const { code, stdout, stderr } = await run('sh', ['-c', await until(async () => pasteable(server))], {
        cwd: ROOT,
      });

      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      const operations = JSON.parse(stdout) as JsonObject[];
      expect(operations.map(({ path }) => path)).toEqual([
        '/spec/containers/0/lifecycle',
        '/spec/terminationGracePeriodSeconds',
        '/metadata/annotations',
      ]);
      expect(server.stdout()).toContain(`http://127.0.0.1:${server.adminPort}/readyz`);
    },
  );

  it('prints no greeting in a cluster', async () => {
    const server = await serving(certs(), [], { atEnd, env: { KUBERNETES_SERVICE_HOST: '10.96.0.1' } });
    expect(
      server
        .stdout()
        .trim()
        .split('\n')
        .filter((line) => !line.startsWith('{')),
    ).toEqual([]);
  });

  it('closes no connection, or each, as --connection-close-probability says', async () => {
    const seen: (string | undefined)[] = [];
    for (const probability of ['0', '1']) {
      const server = await serving(certs(), ['--connection-close-probability', probability], { atEnd });
      for (let index = 0; index < 5; index++) {
        const connection = await connect(server, atEnd);
        connection.write(requestBytes(bodyOf()));
        seen.push((await connection.answer()).headers.get('connection'));
        connection.destroy();
      }
    }
    expect(seen).toEqual([...Array(5).fill('keep-alive'), ...Array(5).fill('close')]);
  });
});

describe.concurrent('where a setting comes from: the flag, else the variable, else the default', () => {
  it.each([
    ['default', [], {}, 'Injected', 'info'],
    ['variables', [], { LINGER_MODE_LIMIT: 'Off', LINGER_LOG_LEVEL: 'debug' }, 'ModeOff', 'debug'],
    ['flags', ['--mode-limit', 'Audit', '--log-level', 'debug'], {}, 'Audit', 'debug'],
    [
      'both',
      ['--mode-limit', 'Audit'],
      { LINGER_MODE_LIMIT: 'Off', LINGER_LOG_LEVEL: 'debug' },
      'Audit',
      'debug',
    ],
  ] as const)('%s', async (_what, flags, env, reason, level) => {
    const server = await serving(certs(), flags, { atEnd, env });
    expect(await reasonNow(server, atEnd)).toBe(reason);
    const decisionLogged = async () => server.logs().some(({ msg }) => msg === 'decision');
    if (level === 'debug') await until(decisionLogged);
    else expect(await decisionLogged()).toBe(false);
  });

  it('what Kubernetes puts into the environment for a Service named "linger" is not a setting', async () => {
    // Source: kubernetes.io/docs/tutorials/services/connect-applications-service, "Environment Variables"; the
    // webhook's own Service in deploy/ has that name, so its own pods get these.
    const env = {
      LINGER_PORT: 'tcp://10.96.31.7:443',
      LINGER_PORT_443_TCP: 'tcp://10.96.31.7:443',
      LINGER_PORT_443_TCP_ADDR: '10.96.31.7',
      LINGER_PORT_443_TCP_PORT: '443',
      LINGER_PORT_443_TCP_PROTO: 'tcp',
      LINGER_SERVICE_HOST: '10.96.31.7',
      LINGER_SERVICE_PORT: '443',
      LINGER_ADMIN_PORT: 'tcp://10.96.31.8:8080',
    };
    const { code, stderr } = await lingerServe(['--mode-limit', 'None'], env);
    // It comes as far as the next fault, which is ours.
    expect([code, stderr]).toEqual([2, expect.stringContaining('--mode-limit')]);
  });
});

describe.concurrent('a server with policies that cannot be used starts, and says so', () => {
  it('what can be used is in force; the rest is in the log, the metrics and /estimates', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'a.yaml'), `${POLICY('{mode: Audit}')}---\n${POLICY('{modus: Off}')}`);
    await writeFile(join(directory, 'b.yaml'), 'a: [');
    const server = await serving(certs(), ['--policies', directory], { atEnd });
    expect(await reasonNow(server, atEnd)).toBe('Audit');
    const problems = [expect.stringContaining('spec.modus'), expect.stringContaining('b.yaml')];
    expect(JSON.parse((await server.get('/estimates')).text)).toEqual({ policyProblems: problems });
    expect(server.logs().flatMap(({ problem }) => problem ?? [])).toEqual(problems);
    expect(await server.count('linger_policy_problems')).toBe(2);
    expect(await server.count('linger_policy_last_reload_successful')).toBe(0);
  });

  it('a folder that is not there: one of its policies may say Audit', async () => {
    const server = await serving(certs(), ['--policies', '/nonexistent/policies'], { atEnd });
    expect(await reasonNow(server, atEnd)).toBe('Audit');
    expect(await server.count('linger_policy_problems')).toBe(1);
    expect(await server.count('linger_policy_documents{kind="ClusterTerminationPolicy"}')).toBe(0);
    expect(server.logs().map(({ msg }) => msg)).toContain(
      'policies unreadable; every pod is kept in Audit until they can be read',
    );
  });
});

describe.concurrent('linger check', () => {
  it('names each document that cannot be used, and exits with 1', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'a.yaml'), `${POLICY('{mode: Audit}')}---\n${POLICY('{modus: Off}')}`);
    await writeFile(join(directory, 'b.yaml'), 'a: [');
    const { code, stdout, stderr } = await linger(['check', directory]);
    expect(stdout.trim().split('\n')).toEqual([
      expect.stringMatching(/^a\.yaml document 2: .*spec\.modus.* \[policy-invalid\]$/),
      expect.stringMatching(/^b\.yaml:1.* \[policy-syntax\]$/),
    ]);
    expect([code, stderr]).toEqual([1, '1 documents valid, 2 invalid\n']);
  });

  it('names policies that have no effect, and exits with 0', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'a.yaml'), POLICY('{mode: Audit}'));
    await writeFile(
      join(directory, 'b.yaml'),
      POLICY('{mode: Off}').replace(/name: [\w-]+/, 'name: z-later'),
    );
    const { code, stdout } = await linger(['check', directory]);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^\w+Policy\/\S+ has no effect: \w+Policy\/\S*z-later wins in every field\n$/),
    ]);
  });

  it('exits with 0 where all can be used, and takes no flags that are about a cluster', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'a.yaml'), POLICY('{mode: Audit}'));
    const { code, stdout } = await linger(['check', '--policies', directory, '-o', 'json']);
    expect([code, JSON.parse(stdout)]).toEqual([0, { problems: [], usable: 1, shadowed: [] }]);
    expect((await linger(['check', directory, '--pre'])).code).toBe(2);
  });

  it('without paths asks the cluster, and exits with 1 where there is none', async () => {
    const kubeconfig = await writeKubeconfig(new URL('http://127.0.0.1:9'), {}, atEnd);
    for (const more of [[], ['--pre']]) {
      const { code, stdout, stderr } = await linger(['check', '--kubeconfig', kubeconfig, ...more]);
      expect([code, stderr]).toEqual([1, '0 ok, 0 warnings, 1 failures, 0 not checked\n']);
      expect(stdout).toMatch(/^failure {2}ApiServer {2}http:\/\/127\.0\.0\.1:9.*ECONNREFUSED.*\n +→ Check /);
    }
  });
});

describe.concurrent('the names in the certificate', () => {
  const names = async (server: Serving) => {
    const connection = await connect(server, atEnd);
    const { peerNames } = connection;
    connection.destroy();
    return peerNames;
  };

  it('--host is one of those that are made', async () => {
    const server = await serving(join(await emptyDirectory(atEnd), 'certs'), ['--host', '127.0.0.2'], {
      atEnd,
    });
    expect(await names(server)).toContain('IP Address:127.0.0.2');
  });
});

/** A serve that is expected to end at once; without --port, so that the variable counts. */
function lingerServe(args: readonly string[], env: Readonly<Record<string, string>> = {}) {
  return linger(['serve', '--certs', certs(), ...args], { env });
}

describe.concurrent('a server that cannot start ends with 1, one line and no stack', () => {
  const cannotStart = async (args: readonly string[]) => {
    const { code, stderr, stdout } = await lingerServe(['--port', '0', '--admin-port', '0', ...args]);
    expect(stdout).not.toContain('"listening"');
    expect(stderr.trim().split('\n'), stderr).toHaveLength(1);
    expect(stderr).toMatch(/^linger: .* \[[A-Za-z-]+\]\n$/);
    expect(code).toBe(1);
    return stderr;
  };
  const policyFile = async (text: string, name = 'bad.yaml') => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, name), text);
    return ['--strict', '--policies', directory];
  };

  it.each([
    ['an unknown field', POLICY('{wait: {maximum: 3s}}'), ['bad.yaml', 'spec.wait.maximum']],
    [
      'a value out of range',
      POLICY('{wait: {percentile: 100}}'),
      ['bad.yaml', 'spec.wait.percentile', '100'],
    ],
    ['a duration that is none', POLICY('{wait: {min: 5}}'), ['bad.yaml', 'spec.wait.min', 'duration']],
    ['another version', POLICY('{}').replace('v1alpha1', 'v2'), ['bad.yaml', 'apiVersion', 'linger.dev/v2']],
    ['an unknown kind', POLICY('{}').replace('ClusterT', 't'), ['bad.yaml', 'kind', 'terminationPolicy']],
    ['no name', POLICY('{}').replace('{name: base}', '{}'), ['bad.yaml', 'metadata.name']],
    ['a hook that is none', POLICY('{hook: Nap}'), ['bad.yaml', 'spec.hook', 'Hold', 'Auto']],
    ['text that is no YAML', 'a: [', ['bad.yaml']],
    ['a duplicate', `${POLICY('{}')}---\n${POLICY('{}')}`, ['bad.yaml', 'base', 'document 1', 'document 2']],
  ])('an invalid policy, with --strict: %s', async (_what, text, named) => {
    const stderr = await cannotStart(await policyFile(text));
    for (const each of named) expect(stderr).toContain(each);
  });

  it('policies that are not there, with --strict', async () => {
    expect(await cannotStart(['--strict', '--policies', '/nonexistent/policies'])).toMatch(
      /\/nonexistent\/policies.*--policies/,
    );
  });

  it.each([
    ['that is not there', '/nonexistent/ca.crt', /--client-ca: .*ENOENT/],
    ['that is none', join(ROOT, 'package.json'), /--client-ca: .*no certificate/],
  ])('an authority of clients %s', async (_what, file, message) => {
    const { code, stderr } = await lingerServe(['--port', '0', '--admin-port', '0', '--client-ca', file]);
    expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
  });

  it.each(['--port', '--admin-port'])('%s is taken: names the flag', async (flag) => {
    const taken = createServer().listen(0, '127.0.0.1');
    await once(taken, 'listening');
    atEnd(() => taken.close());
    const { port } = taken.address() as AddressInfo;
    expect(await cannotStart([flag, String(port)])).toMatch(
      new RegExp(`127\\.0\\.0\\.1:${port}.* ${flag} \\[port-unavailable\\]$`, 'm'),
    );
  });

  it('an address that this machine does not have', async () => {
    expect(await cannotStart(['--host', '192.0.2.1'])).toContain('192.0.2.1');
  });

  it.each([
    ['no key', 'tls.key', undefined],
    ['a certificate that is none', 'tls.crt', 'not PEM'],
  ])('unusable certificates: %s', async (_what, file, text) => {
    const directory = join(await emptyDirectory(atEnd), 'provided');
    await mkdir(directory);
    const source = await emptyDirectory(atEnd);
    expect((await linger(['certs', '--out', source])).code).toBe(0);
    for (const name of ['tls.crt', 'tls.key'] as const) {
      if (name !== file) await rename(join(source, name), join(directory, name));
      else if (text !== undefined) await writeFile(join(directory, name), text);
    }
    expect(await cannotStart(['--certs', directory])).toContain(file);
  });

  it('a name that no certificate can hold', async () => {
    const fresh = join(await emptyDirectory(atEnd), 'certs');
    expect(await cannotStart(['--certs', fresh, '--cert-names', 'web server'])).toContain('"web server"');
  });
});

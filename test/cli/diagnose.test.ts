import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { DIAGNOSES } from '../../src/diagnose/index.ts';
import { AnsweringServer, refused, well } from '../cluster/answers.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';
import { writeKubeconfig } from './watching.ts';

const atEnd = atEndOfFile();
const DATA = 'test/testdata/controller-manager';
const scrapes = (name: string) => `${DATA}/${name}-1.prom,${DATA}/${name}-2.prom`;
const THROTTLED = [
  '--controller-metrics',
  scrapes('throttled'),
  '--controller-flags',
  '--kube-api-qps=5 --kube-api-burst=5',
];

/** Without a kubeconfig in KUBECONFIG and at home. */
async function diagnose(args: readonly string[], stdin = '') {
  return linger(['diagnose', ...args], { stdin, env: { HOME: await emptyDirectory(atEnd), KUBECONFIG: '' } });
}

const codesOf = (stdout: string) =>
  (JSON.parse(stdout) as { findings: { code: string }[] }).findings.map(({ code }) => code);

describe.concurrent('linger diagnose, from saved scrapes', () => {
  it('says for people why, on what evidence, which flags to set, and what was looked at', async () => {
    const { code, stdout, stderr } = await diagnose(THROTTLED);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toBe(`\
CRITICAL ClientThrottled
  EndpointSlices and Endpoints are withdrawn late because each write waits 991 ms for the
  controller-manager’s own rate limit (5 requests a second) and 8.7 ms for the API server. A pod
  deleted now is withdrawn about 1.8 min later. More workers alone do not help: they share the
  limit.
  evidence
    rest_client_rate_limiter_duration_seconds mean 991 ms over 102 writes in 10 s
    rest_client_request_duration_seconds without that: mean 8.7 ms in 10 s
    workqueue_depth{name="endpoint_slice"} 575 → 557 in 10 s; 3.3/s added, 5.1/s done
    workqueue_queue_duration_seconds{name="endpoint_slice"} mean 11 s
    workqueue_work_duration_seconds{name="endpoint_slice"} mean 1 s: 5.1 of 5 workers busy (--concurrent-service-endpoint-syncs)
    workqueue_depth{name="endpoint"} 557 → 506 in 10 s; 0/s added, 5.1/s done
    workqueue_queue_duration_seconds{name="endpoint"} mean 11 s
    workqueue_work_duration_seconds{name="endpoint"} mean 1 s: 5.1 of 5 workers busy (--concurrent-endpoint-syncs)
  cure
    --kube-api-qps=300
    --kube-api-burst=325
    The limit applies to each controller’s client separately. After raising it, watch the API
    server’s latency.

WARNING WriteStorm
  A write storm: up to 575 Services are queued at once for EndpointSlices and Endpoints. At 5 writes
  a second they take 1.9 min. Every pod deleted meanwhile waits behind them.
  evidence
    workqueue_depth{name="endpoint_slice"} 575 → 557 in 10 s; 3.3/s added, 5.1/s done
    workqueue_depth{name="endpoint"} 557 → 506 in 10 s; 0/s added, 5.1/s done
  cure
    Find what changes so many pods at once: a failed node, a mass rollout, a readiness probe with a
    shared dependency, a restart of the controller-manager.
    Do not lengthen every wait for a rare storm: make the controllers faster.

looked at
  controller-manager metrics  ${scrapes('throttled').replace(',', ' and ')}, said to be 10 s apart
  controller-manager flags    as given by --controller-flags

not seen
  cluster  not asked: a saved scrape may be from another one; --kubeconfig or --context names it
`);
  });

  it('--output json: what is promised; what is not known is null', async () => {
    const { stdout } = await diagnose([...THROTTLED, '--output', 'json']);
    const { findings, looks, facts } = JSON.parse(stdout);
    expect(Object.keys(JSON.parse(stdout))).toEqual(['findings', 'looks', 'facts']);
    expect(Object.keys(findings[0])).toEqual(['code', 'severity', 'text', 'evidence', 'cure']);
    expect(looks[0]).toEqual({ what: 'cluster', seen: false, text: expect.any(String) });
    expect(Object.keys(facts)).toEqual(['controller', 'flags', 'leader', 'priority', 'lag', 'cluster']);
    expect([facts.leader, facts.lag, facts.controller.leading]).toEqual([null, null, null]);
  });

  it('--output yaml says the same', async () => {
    const args = ['--controller-metrics', scrapes('calm'), '--output'];
    const [json, yaml] = await Promise.all([diagnose([...args, 'json']), diagnose([...args, 'yaml'])]);
    expect(parse(yaml.stdout)).toEqual(JSON.parse(json.stdout));
  });

  it('one scrape, on standard input', async () => {
    const stdin = await readFile(`${DATA}/storm-1.prom`, 'utf8');
    const { stdout } = await diagnose(['--controller-metrics', '-', '--output', 'json'], stdin);
    expect(codesOf(stdout)).toEqual(['ClientThrottled', 'WriteStorm']);
  });

  it('--interval says how far two of them are apart', async () => {
    const args = ['--controller-metrics', scrapes('throttled'), '--interval', '5s'];
    const { stdout } = await diagnose(args);
    expect(stdout).toContain('575 → 557 in 5 s; 6.6/s added, 10/s done');
  });

  it('and the metrics of a running Linger', async () => {
    const file = join(await emptyDirectory(atEnd), 'linger.prom');
    const lines = ['1', '10', '+Inf'].map(
      (le, index) =>
        `linger_removal_lag_seconds_bucket{le="${le}",stage="Endpoints"} ${[0, 100, 100][index]}\n`,
    );
    await writeFile(file, lines.join(''));
    const { stdout } = await diagnose(['--linger', file, '--output', 'json']);
    expect(codesOf(stdout)).toEqual(['SlowBefore', 'ControllerNotSeen']);
  });
});

describe.concurrent('linger diagnose, from addresses', () => {
  it('looks twice, and waits in between though nothing else goes on', async () => {
    const texts = await Promise.all([1, 2].map((index) => readFile(`${DATA}/storm-${index}.prom`, 'utf8')));
    const server = await AnsweringServer.start({ '/metrics': texts.map(well) }, atEnd);
    const args = ['--controller-metrics', `${server.url}metrics`, '--interval', '500ms', '--output', 'json'];
    const { code, stdout, stderr } = await diagnose(args);
    expect([code, stderr]).toEqual([0, '']);
    expect(codesOf(stdout)).toEqual(['ClientThrottled', 'WriteStorm']);
    expect(JSON.parse(stdout).facts.controller.seconds).toBeGreaterThanOrEqual(0.5);
  });
});

describe.concurrent('linger diagnose --fail-on', () => {
  it.each([
    ['nothing', 'throttled', [], 0],
    ['a code that is found', 'throttled', ['--fail-on', 'ClientThrottled'], 3],
    ['a code that is not', 'throttled', ['--fail-on', 'TooFewWorkers'], 0],
    ['several', 'throttled', ['--fail-on', 'TooFewWorkers,WriteStorm'], 3],
    ['any', 'throttled', ['--fail-on', 'any'], 3],
    ['any, and what is found is good to know', 'calm', ['--fail-on', 'any'], 0],
    ['what is good to know, by its name', 'calm', ['--fail-on', 'NothingWrong'], 3],
  ])('%s', async (_what, name, args, expected) => {
    const { code, stdout } = await diagnose(['--controller-metrics', scrapes(name), ...args]);
    expect(code).toBe(expected);
    expect(stdout).toContain('looked at');
  });

  it('an unknown code would never be found: exit 2', async () => {
    const { code, stdout, stderr } = await diagnose(['--fail-on', 'ClientThrotled']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toBe(
      `linger: --fail-on: expected some of any, ${Object.keys(DIAGNOSES).join(', ')}, got "ClientThrotled" [settings-invalid]\n`,
    );
  });
});

describe.concurrent('linger diagnose, and what cannot be done', () => {
  it.each([
    ['no cluster and nothing given', [], 1, /^linger: .*cannot be read.* \[KubeconfigUnreadable\]\n$/],
    [
      'a file that is not there',
      ['--controller-metrics', '/no/such'],
      1,
      /^linger: \/no\/such: cannot be read \(ENOENT\) \[metrics-unreadable\]\n$/,
    ],
    [
      'a file of something else',
      ['--controller-metrics', 'package.json'],
      1,
      /^linger: package\.json: line 1: .* \[metrics-invalid\]\n$/,
    ],
    [
      'a server that is not there',
      ['--controller-metrics', 'https://127.0.0.1:1/metrics'],
      1,
      /ECONNREFUSED.* \[metrics-unreadable\]\n$/,
    ],
    [
      'three files',
      ['--controller-metrics', 'a,b,c'],
      2,
      /expected a URL, or one or two files, the older first, got "a,b,c" \[settings-invalid\]\n$/,
    ],
    [
      'a file and a URL',
      ['--controller-metrics', 'a,https://b/metrics'],
      2,
      /expected a URL, or one or two files/,
    ],
    [
      'a kubeconfig that is not there',
      ['--kubeconfig', '/no/such', '--controller-metrics', scrapes('calm')],
      1,
      /\/no\/such.* \[KubeconfigUnreadable\]\n$/,
    ],
  ])('%s: one line, and standard output stays empty', async (_what, args, expected, message) => {
    const { code, stdout, stderr } = await diagnose(args);
    expect([code, stdout]).toEqual([expected, '']);
    expect(stderr).toMatch(message);
    expect(stderr.split('\n').length).toBe(2);
  });

  it('an API server that refuses everything is an error; one that answers little is not', async () => {
    const forbidden = await AnsweringServer.start({ '/version': refused(401, 'Unauthorized') }, atEnd);
    const denied = await diagnose(['--kubeconfig', await writeKubeconfig(forbidden.url, {}, atEnd)]);
    expect([denied.code, denied.stdout]).toEqual([1, '']);
    expect(denied.stderr).toMatch(/401: Unauthorized \[cluster-denied\]\n$/);

    const poor = await AnsweringServer.start({ '/version': well({ gitVersion: 'v1.36.3' }) }, atEnd);
    const kubeconfig = await writeKubeconfig(poor.url, {}, atEnd);
    const { code, stdout } = await diagnose(['--kubeconfig', kubeconfig, '--lag', 'off', '--interval', '0']);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^INFO ControllerNotSeen\n/);
    expect(stdout).toMatch(/\nnot seen\n(.*\n)+.*→ This needs the right to list services\n/);
  });
});

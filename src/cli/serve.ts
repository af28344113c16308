import { join } from 'node:path';
import { isUnspecified, type Listening, serve as runServer } from '../server/index.ts';
import type { Settings } from './commands.ts';
import type { Surroundings } from './terminal.ts';

/** An AdmissionReview recorded from a real API server, in this checkout. */
const EXAMPLE = 'docs/examples/review.json';

/**
 * A greeting for a person who has just started Linger on their own machine: says that it runs, and shows a command to paste.
 */
export function greeting(
  { host, certs }: Pick<Settings<'serve'>, 'host' | 'certs'>,
  { port, adminPort, ownAuthority, page }: Listening,
): string {
  const trust = ownAuthority ? `--cacert ${quoted(join(certs, 'ca.crt'))} ` : '';
  const decode = `node -pe 'r = JSON.parse(fs.readFileSync(0)).response; r.patch ? atob(r.patch) : r'`;
  return [
    '',
    ...(page === undefined
      ? []
      : [
          'See which of your workloads lose requests, and the patch. Open in a browser:',
          '',
          `  ${page}`,
          '',
        ]),
    `Linger answers on https://${name(host)}:${port}/mutate`,
    `Readiness and metrics: http://${name(host)}:${adminPort}/readyz and /metrics`,
    '',
    'A Pod as a real API server sends it goes in, the patch comes out. In another terminal:',
    '',
    `  curl --silent ${trust}--data-binary @${EXAMPLE} \\`,
    `    https://${name(host)}:${port}/mutate | ${decode}`,
    '',
    'Your own manifests, with no server at all:  npm run --silent linger -- explain FILE.yaml',
    '',
  ].join('\n');
}

/** Quoted so that a shell reads it as one word. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

function name(host: string): string {
  if (isUnspecified(host)) return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

/** `linger serve`: answers admission reviews until SIGTERM. */
export function serve(settings: Settings<'serve'>, surroundings: Surroundings): Promise<number> {
  const { version, kube, print } = surroundings;
  const inPod = kube.service.host !== undefined;
  const connect = async () => (await import('./connect.ts')).connect(settings, kube);
  return runServer(settings, {
    version,
    inPod,
    connect: settings.cluster === 'off' ? undefined : connect,
    openPage: async (port, onError) => (await import('./open-page.ts')).openPage(port, onError),
    // Only for a terminal; in a cluster it would be noise in the log.
    onListening: (at) => (inPod ? undefined : print(`${greeting(settings, at)}\n`)),
  });
}

import { join } from 'node:path';

export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly adminPort: number;
  readonly certs: string;
  /** Whether the certificate is of Linger's own making, and so trusted by nobody yet. */
  readonly ownAuthority: boolean;
}

/** An AdmissionReview recorded from a real API server, in this checkout. */
const EXAMPLE = 'docs/examples/review.json';

/** What somebody who has just started Linger on their machine reads: that it runs, and a line to paste. */
export function greeting({ host, port, adminPort, certs, ownAuthority }: Endpoint): string {
  const trust = ownAuthority ? `--cacert ${quoted(join(certs, 'ca.crt'))} ` : '';
  const decode = `node -pe 'r = JSON.parse(fs.readFileSync(0)).response; r.patch ? atob(r.patch) : r'`;
  return [
    '',
    `Linger answers on https://${name(host)}:${port}/mutate`,
    `Readiness and metrics: http://${name(host)}:${adminPort}/readyz and /metrics`,
    '',
    'See it work: a Pod as a real API server sends it goes in, the patch comes out. In another terminal:',
    '',
    `  curl --silent ${trust}--data-binary @${EXAMPLE} \\`,
    `    https://${name(host)}:${port}/mutate | ${decode}`,
    '',
    'Your own manifests, with no server at all:  npm run --silent linger -- explain FILE.yaml',
    '',
  ].join('\n');
}

/** As a shell takes it for one word. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** The address to call for an address that is listened on. */
function name(host: string): string {
  if (host === '0.0.0.0' || host === '::') return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

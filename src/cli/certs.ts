import { join } from 'node:path';
import { ensureCertificates } from '../certs/index.ts';
import type { Settings } from './commands.ts';
import type { Terminal } from './terminal.ts';

/**
 * `linger certs`: a CA and a serving certificate for an installation by hand. Prints the caBundle as a webhook
 * configuration wants it (base64 of the PEM), and where the files are on standard error.
 */
export async function certs({ dns, out }: Settings<'certs'>, { print, warn }: Terminal): Promise<number> {
  const { caBundle, notAfter, renewAt, origin } = await ensureCertificates(
    { directory: out, names: dns, exactly: true },
    new Date(),
  );
  const done = origin === 'generated' ? 'written' : 'still good';
  warn(
    `${join(out, 'tls.crt')} for ${dns.join(', ')}: ${done}; expires ${day(notAfter)}, run this again after ${day(renewAt)}`,
  );
  print(`${Buffer.from(caBundle).toString('base64')}\n`);
  return 0;
}

function day(date: Date): string {
  return date.toISOString().slice(0, 10);
}

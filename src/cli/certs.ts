import { join } from 'node:path';
import { ensureCertificates } from '../certs/index.ts';
import type { Settings } from './commands.ts';
import type { Terminal } from './terminal.ts';

/**
 * `linger certs`: creates a CA and a serving certificate for an installation by hand. Prints the caBundle in the form of a
 * webhook configuration (base64 of the PEM); standard error says where the files are.
 */
export async function certs({ dns, out }: Settings<'certs'>, { print, warn }: Terminal): Promise<number> {
  const { caBundle, notAfter, origin } = await ensureCertificates(
    { directory: out, names: dns, onRequest: true },
    new Date(),
  );
  const outcome =
    { generated: 'written', provided: 'yours, left unchanged' }[origin as string] ?? 'still valid';
  warn(`${join(out, 'tls.crt')} for ${dns.join(', ')}: ${outcome}; expires ${day(notAfter)}`);
  print(`${Buffer.from(caBundle).toString('base64')}\n`);
  return 0;
}

function day(date: Date): string {
  return date.toISOString().slice(0, 10);
}

import type { ServingCertificate } from '../certs/ensure.ts';
import type { CertificateSource, Refreshed } from '../certs/source.ts';
import { asError } from '../core/catalog/errors.ts';
import { pause } from './pause.ts';

export interface WatchOptions {
  readonly signal: AbortSignal;
  readonly clock: () => Date;
  /** Called with each new certificate: `server.setSecureContext(certificate)`, and a line in the log. */
  readonly onChange: (certificate: ServingCertificate) => void;
  /** Called when a look fails, once as long as the message stays the same. What `onChange` throws comes here too. */
  readonly onFailure: (error: Error) => void;
  /** Between two looks. Default: 5 s. */
  readonly everyMs?: number;
}

/**
 * Content is polled, not watched: inotify says nothing reliable about the symbolic links of a mounted
 * Secret. The kubelet takes a minute to bring a new Secret, so 5 s add little, and reading four small
 * files costs nothing. A timer set for the renewal itself would not do: setTimeout overflows at 24.8 days,
 * and does not run while a machine sleeps.
 */
const DEFAULT_EVERY_MS = 5_000;

/** Looks at a started source again and again. Resolves when the signal aborts; the wait keeps no process alive. */
export async function watchCertificates(source: CertificateSource, options: WatchOptions): Promise<void> {
  const { signal, clock, onChange, onFailure, everyMs = DEFAULT_EVERY_MS } = options;
  let reported: string | undefined;
  while (await pause(everyMs, signal)) {
    const error = announce(await source.refresh(clock()), onChange);
    if (error !== undefined && error.message !== reported) onFailure(error);
    reported = error?.message;
  }
}

function announce(refreshed: Refreshed, onChange: WatchOptions['onChange']): Error | undefined {
  if (refreshed.outcome === 'failed') return refreshed.error;
  if (refreshed.outcome === 'unchanged') return undefined;
  try {
    onChange(refreshed.certificate);
    return undefined;
  } catch (error) {
    return asError(error);
  }
}

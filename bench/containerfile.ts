import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** How deploy/Containerfile runs Linger: what is measured, and what the cluster suite runs, is what is installed. */
export interface ContainerRuntime {
  /** Node's own, before the program. */
  readonly nodeFlags: readonly string[];
  /** Relative to the root of a checkout in which `npm run build` has run. */
  readonly program: string;
  readonly environment: Readonly<Record<string, string>>;
}

/**
 * @param root the checkout
 * @throws Error when the file no longer says it in the form that is read here
 */
export function containerRuntime(root: string): ContainerRuntime {
  const text = readFileSync(join(root, 'deploy', 'Containerfile'), 'utf8');
  const environment = text
    .match(/^ENV (.+)$/gm)
    ?.at(-1)
    ?.slice('ENV '.length);
  const entrypoint = /^ENTRYPOINT (\[.+\])$/m.exec(text)?.[1];
  if (environment === undefined || entrypoint === undefined)
    throw new Error('deploy/Containerfile: expected one line ENV NAME=VALUE… and one ENTRYPOINT ["node", …]');
  const command = JSON.parse(entrypoint) as string[];
  const at = command.findIndex((word) => word.endsWith('.js'));
  const pairs = environment.split(' ').map((pair) => {
    const equals = pair.indexOf('=');
    return [pair.slice(0, equals), pair.slice(equals + 1)] as const;
  });
  return {
    nodeFlags: command.slice(1, at),
    program: command[at] ?? '',
    environment: Object.fromEntries(pairs),
  };
}

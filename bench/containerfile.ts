import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** How deploy/Containerfile runs Linger: what is measured, and what the cluster suite runs, is what is installed. */
export interface ContainerRuntime {
  /** Node's own, before the program. */
  readonly nodeFlags: readonly string[];
  /** Relative to the root of a checkout in which `npm run build` has run. */
  readonly program: string;
  readonly environment: Readonly<Record<string, string>>;
  /** `UID:GID`. */
  readonly user: string;
  /** Arguments of the starts that fill the compile cache, after the program, and the files that they read. */
  readonly warmUps: readonly (readonly string[])[];
  readonly files: Readonly<Record<string, string>>;
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
  const user = text
    .match(/^USER (.+)$/gm)
    ?.at(-1)
    ?.slice('USER '.length);
  if (environment === undefined || entrypoint === undefined || user === undefined)
    throw new Error('deploy/Containerfile: expected ENV NAME=VALUE…, USER and ENTRYPOINT ["node", …]');
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
    user,
    warmUps: [
      ...text.matchAll(/^RUN --network=none node .*?\.js (.+) & sleep \d+; kill -TERM \$!; wait \$!$/gm),
    ].map(([, words = '']) => words.split(' ')),
    files: Object.fromEntries(
      [...text.matchAll(/^RUN echo '(.+)' > (\S+)$/gm)].map(([, content = '', path = '']) => [path, content]),
    ),
  };
}

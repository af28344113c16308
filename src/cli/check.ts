import { LingerError } from '../api/index.ts';
import { problemsIn } from '../manifest/index.ts';
import type { Settings } from './commands.ts';
import type { Terminal } from './terminal.ts';

/** `linger check`: every document of policy folders and files that `serve` could not use, one a line; 1 where there is one. */
export async function check(
  { policies, operands }: Settings<'check'>,
  { print, warn }: Terminal,
): Promise<number> {
  const paths = policies === undefined ? operands : [policies, ...operands];
  if (paths.length === 0)
    throw new LingerError('settings-invalid', 'check: expected folders or files of policies, got none');
  let unusable = 0;
  let usable = 0;
  for (const path of paths) {
    const { problems, documents } = await problemsIn(path);
    for (const { code, message } of problems) print(`${message} [${code}]\n`);
    unusable += problems.length;
    usable += documents;
  }
  warn(`${usable} documents can be used, ${unusable} cannot\n`);
  return unusable === 0 ? 0 : 1;
}

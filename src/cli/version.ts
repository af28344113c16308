import type { Settings } from './commands.ts';
import { rendered } from './rendering.ts';
import { paragraphs, type Surroundings } from './terminal.ts';

/** `linger version`: shows what is running here. The commit is known only in releases. */
export function version(
  { output }: Settings<'version'>,
  { print, version: own, commit }: Surroundings,
): Promise<number> {
  const value = { version: own, ...(commit !== undefined && { commit }), node: process.version };
  const of = commit === undefined ? '' : `, commit ${commit}`;
  print(rendered(output, value, () => paragraphs([`linger ${own}${of}`, `Node.js ${process.version}`])));
  return Promise.resolve(0);
}

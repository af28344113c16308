import type { FloorEntry } from '../../src/core/decision/index.ts';

/** An entry as the leader has written it into the ConfigMap; undefined: none. */
export function entryIn(line: string): FloorEntry | undefined {
  if (line === 'none') return undefined;
  const [wait = '', initial = '', maxGrace = '', hook, kinds = '', names = ''] = line.split(' ');
  const listed = (text: string) => text.split(',').filter((each) => each !== '' && each !== '-');
  return {
    wait: Number(wait),
    initial: Number(initial),
    maxGrace: Number(maxGrace),
    hook: hook as FloorEntry['hook'],
    excluded: listed(kinds) as FloorEntry['excluded'],
    containers: listed(names),
  };
}

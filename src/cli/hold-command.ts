import { stringify } from 'yaml';
import { LingerError } from '../api/index.ts';
import { readHelperObject } from '../hold/index.ts';
import type { Settings } from './commands.ts';
import type { Surroundings } from './terminal.ts';

type Action = (settings: Settings<'hold'>, surroundings: Surroundings) => Promise<number>;

const ACTIONS: Readonly<Record<string, Action>> = { manifest };

/** `linger hold ACTION`: what there is to do about hook Hold. */
export async function hold(settings: Settings<'hold'>, surroundings: Surroundings): Promise<number> {
  const [name = '', ...rest] = settings.operands;
  const action = Object.hasOwn(ACTIONS, name) && rest.length === 0 ? ACTIONS[name] : undefined;
  if (action !== undefined) return action(settings, surroundings);
  const expected = Object.keys(ACTIONS).join(' or ');
  throw new LingerError(
    'settings-invalid',
    `hold: expected ${expected}, got "${settings.operands.join(' ')}"`,
  );
}

/** The ConfigMap with the helpers of this version, once for each namespace: for kubectl apply, and for GitOps. */
async function manifest(
  { namespace = [], output }: Settings<'hold'>,
  { print }: Surroundings,
): Promise<number> {
  const helper = readHelperObject();
  const objects =
    namespace.length === 0 ? [helper.manifest()] : namespace.map((each) => helper.manifest(each));
  if (output === 'json') {
    const [only] = objects;
    const list = { apiVersion: 'v1', kind: 'List', items: objects };
    print(`${JSON.stringify(objects.length === 1 ? only : list, undefined, 2)}\n`);
    return 0;
  }
  // Base64 is one long word: folding would only make it harder to compare.
  print(objects.map((object) => stringify(object, { lineWidth: 0 })).join('---\n'));
  return 0;
}

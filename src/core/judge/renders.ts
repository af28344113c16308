/** An object of an input, with the file, kustomization or chart that it comes from. */
export interface Originated {
  readonly origin: string;
}

/**
 * All objects of an input are assumed to be applied together, with one exception: folders that create workloads of the same
 * namespace and name are alternative ways to install the same. If files of one folder do so, each of these files is a way of
 * its own.
 * @param workloads with their namespace as part of `name`
 * @returns the way to install that an origin belongs to; undefined: it belongs to all of them
 */
export function waysToInstall(
  workloads: readonly (Originated & { readonly name: string })[],
): (origin: string) => string | undefined {
  const files = makingTheSame(workloads, ({ origin, name }) => [
    origin,
    JSON.stringify([folderOf(origin), name]),
  ]);
  const unitOf = (origin: string) => (files.has(origin) ? origin : `${folderOf(origin)}/`);
  const ways = makingTheSame(workloads, ({ origin, name }) => [unitOf(origin), name]);
  return (origin) => (ways.has(unitOf(origin)) ? unitOf(origin) : undefined);
}

/** The units that make something that another unit makes, too. */
function makingTheSame<T>(
  all: readonly T[],
  made: (each: T) => readonly [unit: string, what: string],
): ReadonlySet<string> {
  const units = new Map<string, Set<string>>();
  for (const each of all) {
    const [unit, what] = made(each);
    const known = units.get(what);
    if (known === undefined) units.set(what, new Set([unit]));
    else known.add(unit);
  }
  return new Set([...units.values()].filter(({ size }) => size > 1).flatMap((each) => [...each]));
}

function folderOf(origin: string): string {
  return origin.slice(0, Math.max(0, origin.lastIndexOf('/')));
}

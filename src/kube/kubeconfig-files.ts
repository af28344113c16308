import { readFile } from 'node:fs/promises';
import { asError } from '../core/catalog/errors.ts';
import { ConnectionError } from './connection-error.ts';
import {
  type KubeconfigCluster,
  type KubeconfigContext,
  type KubeconfigDocument,
  type KubeconfigUser,
  parseKubeconfig,
} from './kubeconfig-document.ts';

/** An entry of a kubeconfig, and the file in which it stands: relative names count from that file's folder. */
export interface Located<T> {
  readonly value: T;
  readonly file: string;
}

/** What a context stands for. */
export interface SelectedContext {
  readonly name: string;
  readonly cluster: Located<KubeconfigCluster>;
  readonly user: Located<KubeconfigUser>;
  readonly namespace: string | undefined;
  /** The file of the context. */
  readonly file: string;
}

interface ReadFile {
  readonly file: string;
  readonly document: KubeconfigDocument;
}

/**
 * What the context stands for in these files, taken together as client-go does: the first file that has an entry wins.
 * Source: k8s.io/client-go tools/clientcmd (ClientConfigLoadingRules.Load).
 * @param wanted the context; undefined: the current one
 * @param mayMiss whether files that are not there are passed over, as those of KUBECONFIG are
 * @throws ConnectionError `KubeconfigUnreadable`, `KubeconfigInvalid`
 */
export async function selectContext(
  files: readonly string[],
  wanted: string | undefined,
  mayMiss = false,
): Promise<SelectedContext> {
  const read = await Promise.all(files.map((file) => readDocument(file, mayMiss)));
  const documents = read.filter((each) => each !== undefined);
  const all = files.join(', ');
  if (documents.length === 0)
    throw new ConnectionError('KubeconfigUnreadable', `${all}: there is no such file`);
  const name = wanted ?? documents.find(({ document }) => document.currentContext)?.document.currentContext;
  if (name === undefined) {
    throw new ConnectionError(
      'KubeconfigInvalid',
      `${all}: has no current-context; set one with kubectl config use-context NAME`,
    );
  }
  const context = pick<KubeconfigContext>(all, 'context', name, documents, (each) => each.contexts);
  const { cluster, user, namespace } = context.value;
  return {
    name,
    cluster: pick<KubeconfigCluster>(all, 'cluster', cluster, documents, (each) => each.clusters),
    // A context without a user is anonymous, as for kubectl proxy.
    user: user
      ? pick<KubeconfigUser>(all, 'user', user, documents, (each) => each.users)
      : { value: {}, file: context.file },
    namespace: namespace || undefined,
    file: context.file,
  };
}

async function readDocument(file: string, mayMiss: boolean): Promise<ReadFile | undefined> {
  let source: string;
  try {
    source = await readFile(file, 'utf8');
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    if (mayMiss && code === 'ENOENT') return undefined;
    throw new ConnectionError('KubeconfigUnreadable', `${file}: cannot be read (${code})`);
  }
  try {
    return { file, document: parseKubeconfig(source) };
  } catch (error) {
    throw new ConnectionError('KubeconfigInvalid', `${file}: ${asError(error).message}`);
  }
}

function pick<T>(
  all: string,
  kind: string,
  name: string,
  documents: readonly ReadFile[],
  entriesOf: (document: KubeconfigDocument) => ReadonlyMap<string, T | null | undefined>,
): Located<T> {
  for (const { file, document } of documents) {
    const value = entriesOf(document).get(name);
    if (value !== undefined && value !== null) return { value, file };
  }
  const known = [...new Set(documents.flatMap(({ document }) => [...entriesOf(document).keys()]))];
  const there = known.join(', ') || 'none';
  throw new ConnectionError('KubeconfigInvalid', `${all}: has no ${kind} "${name}"; there are: ${there}`);
}

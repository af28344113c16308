import { parse } from 'yaml';
import { z } from 'zod';

/*
 * As much of a kubeconfig as is read. Fields that are not named are let through: clients add their own. Those that
 * are named only to be refused are `unknown`. Source: k8s.io/client-go tools/clientcmd/api/v1.
 */
const text = z.string();
const present = z.unknown().optional();

const cluster = z.looseObject({
  server: text.optional(),
  'certificate-authority': text.optional(),
  'certificate-authority-data': text.optional(),
  'insecure-skip-tls-verify': z.boolean().optional(),
  'tls-server-name': text.optional(),
  'proxy-url': present,
  extensions: z.array(z.looseObject({ name: text.optional(), extension: present })).nullish(),
});

const exec = z.looseObject({
  apiVersion: text.nullish(),
  command: text.nullish(),
  args: z.array(text).nullish(),
  env: z.array(z.looseObject({ name: text, value: text })).nullish(),
  installHint: text.nullish(),
  provideClusterInfo: z.boolean().nullish(),
  interactiveMode: text.nullish(),
});

const user = z.looseObject({
  'client-certificate': text.optional(),
  'client-certificate-data': text.optional(),
  'client-key': text.optional(),
  'client-key-data': text.optional(),
  token: text.optional(),
  tokenFile: text.optional(),
  username: present,
  as: present,
  exec: exec.nullish(),
  'auth-provider': z.looseObject({ name: text.optional() }).nullish(),
});

const context = z.looseObject({ cluster: text, user: text.optional(), namespace: text.optional() });

/** A list may be absent or null: an empty kubeconfig, as tools write it, has all three null. */
function named<T extends z.ZodType>(key: string, value: T) {
  const entry = z.looseObject({ name: text, [key]: value.nullish() });
  return z
    .array(entry)
    .nullish()
    .transform((entries) => new Map((entries ?? []).map((each) => [each.name, each[key]] as const)));
}

const kubeconfig = z.looseObject({
  'current-context': text.nullish(),
  clusters: named('cluster', cluster),
  users: named('user', user),
  contexts: named('context', context),
});

export type KubeconfigCluster = z.infer<typeof cluster>;
export type KubeconfigExec = z.infer<typeof exec>;
export type KubeconfigUser = z.infer<typeof user>;
export type KubeconfigContext = z.infer<typeof context>;

export interface KubeconfigDocument {
  readonly currentContext: string | undefined;
  readonly clusters: ReadonlyMap<string, KubeconfigCluster | null | undefined>;
  readonly users: ReadonlyMap<string, KubeconfigUser | null | undefined>;
  readonly contexts: ReadonlyMap<string, KubeconfigContext | null | undefined>;
}

/** @throws Error that names the field, and never its value: it may be a secret. */
export function parseKubeconfig(source: string): KubeconfigDocument {
  let document: unknown;
  try {
    document = parse(source) ?? {};
  } catch {
    // The parser's message quotes the lines around the mistake.
    throw new Error('it is not valid YAML');
  }
  const { success, data, error } = kubeconfig.safeParse(document);
  if (!success) {
    const [issue] = error.issues;
    throw new Error(`${issue?.path.join('.') || 'the document'}: ${issue?.message ?? 'is invalid'}`);
  }
  const { clusters, users, contexts } = data;
  return {
    currentContext: data['current-context'] || undefined,
    clusters: clusters as KubeconfigDocument['clusters'],
    users: users as KubeconfigDocument['users'],
    contexts: contexts as KubeconfigDocument['contexts'],
  };
}

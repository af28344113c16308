import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { tokenOf } from '../../cluster-suite/support/reports.ts';
import type { Cluster } from '../../testbed/cluster.ts';

/** What an instance needs to report. */
export interface ReportAccess {
  readonly url: string;
  /** Token files by the name of the gateway: each has a pod of its own. */
  readonly tokenFiles: ReadonlyMap<string, string>;
  readonly authorityFile: string;
}

export interface ReportAccessOptions {
  readonly cluster: Cluster;
  /** Namespace of the ServiceAccount, which is created in it. */
  readonly namespace: string;
  readonly consumer: string;
  /** The names of the gateways. */
  readonly gateways: readonly string[];
  /** Where Linger takes reports. */
  readonly address: string;
  /** Certificate of the authority, PEM. */
  readonly authority: string;
}

const RBAC = 'rbac.authorization.k8s.io';
const AUDIENCE = 'linger.dev/reports';
/** Longer than any form of the scenario. */
const TOKEN_SECONDS = 3 * 3_600;

/** A ServiceAccount with tokens for reports and the right to report for one consumer, as docs/gateways.md has it. */
export async function allowReports(options: ReportAccessOptions): Promise<ReportAccess> {
  const { cluster, namespace, consumer, gateways, address, authority } = options;
  const name = 'gateway';
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name, namespace } });
  const role = reportRole(consumer);
  const rule = {
    apiGroups: ['linger.dev'],
    resources: ['discoveryconsumers/reports'],
    resourceNames: [consumer],
    verbs: ['create'],
  };
  await forbidReports(cluster, consumer);
  const withRules = { ...role.role, rules: [rule] };
  await cluster.create(withRules);
  const subjects = [{ kind: 'ServiceAccount', name, namespace }];
  const roleRef = { apiGroup: RBAC, kind: 'ClusterRole', name: role.role.metadata.name };
  const bound = { ...role.binding, roleRef, subjects };
  await cluster.create(bound);
  const directory = mkdtempSync(join(tmpdir(), 'linger-gateways-'));
  const tokenFiles = new Map(gateways.map((gateway) => [gateway, join(directory, gateway)]));
  for (const [pod, file] of tokenFiles) {
    const token = await tokenOf(cluster, namespace, name, {
      audience: AUDIENCE,
      pod,
      seconds: TOKEN_SECONDS,
    });
    writeFileSync(file, token, { mode: 0o600 });
  }
  const authorityFile = join(directory, 'ca.crt');
  writeFileSync(authorityFile, authority);
  return { url: `https://${address}/v1/consumers/${consumer}/reports`, tokenFiles, authorityFile };
}

/** Takes away what is not in the namespace. */
export async function forbidReports(cluster: Cluster, consumer: string): Promise<void> {
  const { role, binding } = reportRole(consumer);
  await cluster.delete(binding);
  await cluster.delete(role);
}

function reportRole(consumer: string) {
  const metadata = { name: `linger-reports-${consumer}` };
  const apiVersion = `${RBAC}/v1`;
  return {
    role: { apiVersion, kind: 'ClusterRole', metadata },
    binding: { apiVersion, kind: 'ClusterRoleBinding', metadata },
  };
}

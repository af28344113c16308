import { createSecureContext } from 'node:tls';
import { isAbsentOr, isRecord, isString } from '../core/schema/shape.ts';

/** Source: k8s.io/client-go plugin/pkg/client/auth/exec; v1alpha1 went with Kubernetes 1.24. */
export const EXEC_API_VERSIONS = [
  'client.authentication.k8s.io/v1',
  'client.authentication.k8s.io/v1beta1',
] as const;
export type ExecApiVersion = (typeof EXEC_API_VERSIONS)[number];

/** What a plugin is told of the cluster that it gives credentials for. Named as on the wire. */
export interface ExecCluster {
  readonly server: string;
  readonly 'tls-server-name'?: string | undefined;
  readonly 'insecure-skip-tls-verify'?: boolean | undefined;
  /** Base64. */
  readonly 'certificate-authority-data'?: string | undefined;
  /** Whatever the kubeconfig holds for the plugin: the cluster's extension client.authentication.k8s.io/exec. */
  readonly config?: unknown;
}

/** What a plugin has given. */
export interface ExecStatus {
  readonly token: string | undefined;
  readonly certificate: string | undefined;
  readonly key: string | undefined;
  /** Milliseconds since the epoch; undefined: until the server refuses it. */
  readonly expiresAt: number | undefined;
}

/** The value of KUBERNETES_EXEC_INFO. */
export function execInfo(
  apiVersion: ExecApiVersion,
  interactive: boolean,
  cluster: ExecCluster | undefined,
): string {
  const spec = { ...(cluster === undefined ? {} : { cluster }), interactive };
  return JSON.stringify({ kind: 'ExecCredential', apiVersion, spec });
}

/**
 * Reads what a plugin has printed.
 * @throws Error that says what is wrong with it, and never what is in it
 */
export function parseExecCredential(printed: string, expected: ExecApiVersion): ExecStatus {
  let document: unknown;
  try {
    document = JSON.parse(printed);
  } catch {
    throw new Error('what it printed is not JSON');
  }
  const { kind, apiVersion, status } = isRecord(document) ? document : {};
  if (kind !== 'ExecCredential') throw new Error('what it printed is not an ExecCredential');
  if (apiVersion !== expected) {
    throw new Error(`the kubeconfig says that it speaks ${expected}, and it spoke ${named(apiVersion)}`);
  }
  if (!isRecord(status)) throw new Error('it gave no status');
  return checked(status);
}

function checked(status: Record<string, unknown>): ExecStatus {
  const [token, certificate, key, expires] = [
    'token',
    'clientCertificateData',
    'clientKeyData',
    'expirationTimestamp',
  ].map((field) => textOf(status, field));
  if ((certificate === undefined) !== (key === undefined)) {
    throw new Error('it gave only one of clientCertificateData and clientKeyData');
  }
  if (token === undefined && certificate === undefined) {
    throw new Error('it gave neither a token nor a certificate');
  }
  if (certificate !== undefined) checkPair(certificate, key);
  const expiresAt = expires === undefined ? undefined : Date.parse(expires);
  if (Number.isNaN(expiresAt)) throw new Error('its expirationTimestamp is no RFC 3339 time');
  return { token, certificate, key, expiresAt };
}

function textOf(status: Record<string, unknown>, field: string): string | undefined {
  const value = status[field];
  if (!isAbsentOr(isString, value)) throw new Error(`its ${field} is not a text`);
  // As client-go has it: empty is absent.
  return value || undefined;
}

function checkPair(certificate: string, key: string | undefined): void {
  try {
    createSecureContext({ cert: certificate, key });
  } catch {
    // Not the cause's message: OpenSSL quotes parts of what it could not read.
    throw new Error('its certificate and key are no PEM pair');
  }
}

function named(apiVersion: unknown): string {
  return isString(apiVersion) ? apiVersion.slice(0, 100) : 'none';
}

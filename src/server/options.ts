import type { ClusterAuditSettings } from '../audit/index.ts';
import type { SigningKeys } from '../certs/index.ts';
import type { Mode } from '../core/api/index.ts';
import type { EndpointsChoice } from '../core/lag/index.ts';
import type { DeliverySettings, HoldSettings } from '../hold/index.ts';
import type { CanarySettings } from '../measurement/index.ts';
import type { LogLevel } from '../telemetry/index.ts';

/** The operator's settings; `linger serve --help` describes them in detail. Spans are seconds. */
export interface ServerOptions {
  readonly host: string;
  /** 0 chooses a free one. */
  readonly port: number;
  readonly adminPort: number;
  /** The port of the page for this machine; undefined: no page. */
  readonly pagePort: number | undefined;
  /** A file or a folder; undefined: no policies from files. */
  readonly policies: string | undefined;
  readonly strict: boolean;
  /** The folder of the certificate, unless there is a Secret. */
  readonly certs: string;
  readonly certNames: readonly string[];
  readonly certsSecret: string | undefined;
  /** The name of Linger's MutatingWebhookConfiguration. */
  readonly webhookConfiguration: string;
  /** A file; undefined: anyone may send reviews. */
  readonly clientCa: string | undefined;
  readonly modeLimit: Mode;
  readonly auditWarnings: boolean;
  readonly logLevel: LogLevel;
  readonly drain: number;
  readonly connectionCloseProbability: number;
  /** If given, its namespace belongs to a person, and is never Linger's own. */
  readonly kubeconfig: string | undefined;
  readonly syncTimeout: number;
  readonly namespace: string | undefined;
  readonly identity: string | undefined;
  readonly canaryPort: number;
  /** 0: there is no canary. */
  readonly canaryEvery: number;
  readonly probeAllowLinkLocal: boolean;
  readonly inspectFiles: string | undefined;
  readonly podIp: string | undefined;
  readonly reportsAudience: string;
  /** 0: no pod gets hook Hold. */
  readonly holdPort: number;
  readonly holdAddress: string | undefined;
  readonly holdImage: string | undefined;
  readonly holdTestImage: string | undefined;
  readonly deleteOnNodeShutdown: boolean;
  readonly endpoints: EndpointsChoice;
  /** 0: there are no audits. */
  readonly auditEvery: number;
  readonly policyReports: ClusterAuditSettings['policyReports'];
}

/** The options for the parts of a server with a cluster: the operator's settings, and what follows from them. */
export interface ClusterOptions extends ServerOptions {
  /** undefined: there is no canary. */
  readonly canary: CanarySettings | undefined;
  /** undefined: no pod gets hook Hold. */
  readonly hold: (DeliverySettings & HoldSettings) | undefined;
  /** The keys that sign the cursors of reports; the same in all replicas. */
  readonly reportKeys: () => SigningKeys;
  /** Whether the webhook configuration exists; undefined: not known. */
  readonly configured: () => boolean | undefined;
  /** Whether that configuration trusts the certificate of this replica; undefined: not known. */
  readonly trusted: () => boolean | undefined;
}

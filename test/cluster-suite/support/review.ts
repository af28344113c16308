import { randomUUID } from 'node:crypto';
import https from 'node:https';

/** A webhook's endpoint, as a client needs it. */
export interface WebhookAddress {
  readonly host: string;
  readonly port: number;
  /** PEM of the CA that has signed its certificate. */
  readonly authority: string;
  /** The name in the certificate. */
  readonly servername: string;
}

/** A pod of no namespace that exists. */
const NOBODYS = {
  namespace: 'nowhere',
  object: { apiVersion: 'v1', kind: 'Pod', metadata: {}, spec: { containers: [{ name: 'app' }] } },
};

/** Asks a webhook about a pod that is created; returns the review's uid once it is answered. */
export async function sendReview(
  { host, port, authority, servername }: WebhookAddress,
  created: { readonly namespace: string; readonly object: object } = NOBODYS,
): Promise<string> {
  const uid = randomUUID();
  const review = {
    apiVersion: 'admission.k8s.io/v1',
    kind: 'AdmissionReview',
    request: {
      uid,
      operation: 'CREATE',
      resource: { group: '', version: 'v1', resource: 'pods' },
      // Leaves no trace in the metrics.
      dryRun: true,
      ...created,
    },
  };
  await new Promise<void>((resolve, reject) => {
    const target = { host, port, servername, ca: authority, path: '/mutate', method: 'POST', agent: false };
    const request = https.request(target, (response) => {
      response.resume().on('end', resolve).on('error', reject);
    });
    request.setTimeout(5_000, () => request.destroy(new Error(`no answer from ${host}:${port}`)));
    request.on('error', reject);
    request.end(JSON.stringify(review));
  });
  return uid;
}

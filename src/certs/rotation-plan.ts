import type { X509Certificate } from 'node:crypto';
import {
  type IssueReason,
  materialOf,
  readSecret,
  type SecretContents,
  type SecretData,
  servingFault,
} from './secret-contents.ts';
import {
  type Authority,
  BACKDATE_MS,
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  isTrusted,
  parseCertificates,
  renewalTime,
  type ServingMaterial,
  validOf,
} from './x509.ts';

/** What to issue, and to write over what is there. */
export interface Issue {
  readonly because: IssueReason;
  /** Undefined: a new one is made. */
  readonly authority: Authority | undefined;
  /** What a new serving certificate is valid for; undefined: the one that is there stays. */
  readonly names: readonly string[] | undefined;
  /** The other authorities that stay in the bundle, PEM. */
  readonly retained: string;
}

/**
 * Whether a serving certificate is due for renewal. One that ends with its authority is not, because a new one could not
 * outlive it either.
 */
function isExpiring(leaf: X509Certificate, authority: X509Certificate, now: Date): boolean {
  return leaf.validToDate < authority.validToDate && now >= renewalTime(leaf);
}

/** Issues with the authority that is there. */
function renewal(
  because: IssueReason,
  { contents, bundle, names }: SecretContents,
  authority: X509Certificate,
): Issue {
  const others = bundle.filter((each) => each.fingerprint256 !== authority.fingerprint256);
  const signing = { certificate: authority.toString(), key: contents['ca.key'] ?? '' };
  return { because, authority: signing, names, retained: formatCertificates(others) };
}

/**
 * How replicas rotate the certificates that they share in a Secret. Each replica decides alone, from what it sees, and any
 * may act: a write names the version that it replaces, so of two that race one has to look again.
 *
 * The rule: an authority is trusted before any of its certificates is served. So a rotation takes three writes of the
 * Secret: the new authority beside the old one; once API servers have known both for a while, a serving certificate from the
 * new one; and when that has served for an hour, the old authority is removed.
 */

/** What a replica sees. */
export interface ReplicaView {
  /** Undefined: there is no such Secret. */
  readonly secret: SecretData | undefined;
  /** What API servers trust; undefined: there is no webhook configuration, so none of them calls. */
  readonly trust: Trust | undefined;
  /** What this replica serves with; undefined: nothing yet. */
  readonly serving: ServingMaterial | undefined;
  /** What a certificate must be valid for. Names that it has besides stay in it: another replica may want those. */
  readonly names: readonly string[];
}

export interface Trust {
  /** What the caBundle holds, PEM. */
  readonly bundle: string;
  /** For how long it has stored that, as far as this replica knows. */
  readonly forMs: number;
}

export interface RotationPlan {
  /** Once this has been written, the rest is decided again; until then the rest keeps the webhook reachable. */
  readonly issue?: Issue;
  /** What the caBundle must become, PEM. */
  readonly caBundle?: string | undefined;
  /** What to serve with from now on. */
  readonly serve?: ServingMaterial | undefined;
}

/**
 * An API server follows webhook configurations by a watch, within a second where all is well. There may be several of
 * them, and one of them may be busy.
 */
export const TRUSTED_MS = 10_000;

/** Time for replicas that are cut off from the API server and still serve the old certificate. */
export const RETIRE_MS = 3_600_000;

/** A Secret that is deleted again and again must not make the bundle grow without bound. */
const MOST_RETAINED = 4;

export function planRotation(view: ReplicaView, now: Date): RotationPlan {
  const stored = readSecret(view.secret ?? {}, view.names, now);
  const issue = issueDue(stored, view, now);
  if (issue !== undefined) return { issue, ...meanwhile(stored, view, now) };
  const bundle = formatCertificates(stored.bundle);
  const caBundle = view.trust === undefined || view.trust.bundle === bundle ? undefined : bundle;
  return { caBundle, serve: replacement(stored, view, now) };
}

/** What is served and trusted until the issue has been written, which may be refused for any length of time. */
function meanwhile(
  stored: SecretContents,
  view: ReplicaView,
  now: Date,
): Pick<RotationPlan, 'serve' | 'caBundle'> {
  const { trust, serving } = view;
  const isUsable = servingFault(stored, stored.bundle, now) === undefined;
  const serve = isUsable ? replacement(stored, view, now) : undefined;
  const served = serve ?? serving;
  if (served === undefined || trust === undefined || isTrusted(served.cert, trust.bundle, now))
    return { serve };
  // Another replica may still serve a certificate that is trusted now.
  const others = [served.caBundle, trust.bundle].flatMap(parseCertificates).filter(isIssuedByLinger);
  const caBundle = formatCertificates(newest(validOf([...stored.bundle, ...others], now)));
  return { serve, caBundle: isTrusted(served.cert, caBundle, now) ? caBundle : undefined };
}

function issueDue(stored: SecretContents, { trust, serving }: ReplicaView, now: Date): Issue | undefined {
  const { authority, authorityFault, bundle, chain, names } = stored;
  const lost = servingFault(stored, bundle, now);
  if (authority === undefined || authorityFault !== undefined) {
    // The Secret is lost or damaged, but replicas still serve and API servers still trust its certificates.
    const others = [trust?.bundle, serving?.caBundle].flatMap((pem) => parseCertificates(pem ?? ''));
    const known = [...bundle, ...validOf(others.filter(isIssuedByLinger), now)];
    const retained = formatCertificates(newest(known));
    const because = authorityFault ?? 'Absent';
    return { because, authority: undefined, names: lost === undefined ? undefined : names, retained };
  }
  const issue = (because: IssueReason) => renewal(because, stored, authority);
  const [leaf] = chain;
  if (leaf === undefined || lost !== undefined) return issue(lost ?? 'Absent');
  if (!isIssuedBy(leaf, authority))
    return isEstablished(authority, trust) ? issue('IssuerChanged') : undefined;
  if (isExpiring(leaf, authority, now) && isEstablished(authority, trust)) return issue('Expiring');
  const servedSince = leaf.validFromDate.getTime() + BACKDATE_MS;
  if (bundle.length > 1 && now.getTime() >= servedSince + RETIRE_MS)
    return { ...issue('Retired'), names: undefined, retained: '' };
  return undefined;
}

/** Whether API servers have trusted it for long enough that all of them do. */
function isEstablished(authority: X509Certificate, trust: Trust | undefined): boolean {
  if (trust === undefined) return true;
  const known = parseCertificates(trust.bundle);
  return trust.forMs >= TRUSTED_MS && known.some((each) => each.fingerprint256 === authority.fingerprint256);
}

/** The stored certificate, if it is time to serve it. */
function replacement(
  stored: SecretContents,
  { trust, serving }: ReplicaView,
  now: Date,
): ServingMaterial | undefined {
  const [leaf] = stored.chain;
  if (leaf === undefined) return undefined;
  const material = materialOf(leaf, stored);
  if (serving === undefined) return material;
  if (serving.cert === material.cert && serving.caBundle === material.caBundle) return undefined;
  if (trust === undefined || !isTrusted(serving.cert, trust.bundle, now)) return material;
  return trust.forMs >= TRUSTED_MS && isTrusted(material.cert, trust.bundle, now) ? material : undefined;
}

function newest(certificates: readonly X509Certificate[]): X509Certificate[] {
  const distinct = new Map(certificates.map((each) => [each.fingerprint256, each]));
  return [...distinct.values()]
    .toSorted((a, b) => b.validFromDate.getTime() - a.validFromDate.getTime())
    .slice(0, MOST_RETAINED);
}

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

/** What to issue, and to write in place of what is stored. */
export interface Issue {
  readonly because: IssueReason;
  /** Undefined: a new authority is created. */
  readonly authority: Authority | undefined;
  /** The names for a new serving certificate; undefined: the present one stays. */
  readonly names: readonly string[] | undefined;
  /** Other authorities that stay in the bundle, PEM. */
  readonly retained: string;
}

/**
 * Whether a serving certificate should be renewed. Not if it ends together with its authority, because a new one could not
 * outlive that either.
 */
function isExpiring(leaf: X509Certificate, authority: X509Certificate, now: Date): boolean {
  return leaf.validToDate < authority.validToDate && now >= renewalTime(leaf);
}

/** Issues a certificate with the present authority. */
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
 * How replicas rotate the certificates that they share in a Secret. Each replica decides alone from what it sees, and any of
 * them may act: a write names the version that it replaces, so if two race, one fails and looks again.
 *
 * The rule is that an authority is trusted before any of its certificates is served. So a rotation takes three writes of the
 * Secret: first the new authority is added to the old one; once API servers have known both for a while, a serving
 * certificate of the new one is stored; and when that has been served for an hour, the old authority is removed.
 */

/** What a replica knows. */
export interface ReplicaView {
  /** Undefined: the Secret does not exist. */
  readonly secret: SecretData | undefined;
  /** What API servers trust; undefined: there is no webhook configuration, so no API server calls. */
  readonly trust: Trust | undefined;
  /** The certificate that this replica serves with; undefined: none yet. */
  readonly serving: ServingMaterial | undefined;
  /** Names for which a certificate must be valid. Additional names in it are kept, because another replica may need them. */
  readonly names: readonly string[];
}

export interface Trust {
  /** The content of the caBundle, PEM. */
  readonly bundle: string;
  /** How long it has had this content, as far as this replica knows. */
  readonly forMs: number;
}

export interface RotationPlan {
  /** After this has been written, everything is decided again; until then, the other members keep the webhook reachable. */
  readonly issue?: Issue;
  /** The new content for the caBundle, PEM. */
  readonly caBundle?: string | undefined;
  /** The certificate to serve with from now on. */
  readonly serve?: ServingMaterial | undefined;
}

/**
 * API servers follow webhook configurations by a watch, usually within a second. There may be several API servers, and one
 * may be busy.
 */
export const TRUSTED_MS = 10_000;

/** Time for replicas that are cut off from the API server and so still serve the old certificate. */
export const RETIRE_MS = 3_600_000;

/** Limited, so that a Secret that is deleted repeatedly does not make the bundle grow without bound. */
const MOST_RETAINED = 4;

export function planRotation(view: ReplicaView, now: Date): RotationPlan {
  const stored = readSecret(view.secret ?? {}, view.names, now);
  const issue = issueDue(stored, view, now);
  if (issue !== undefined) return { issue, ...meanwhile(stored, view, now) };
  const bundle = formatCertificates(stored.bundle);
  const caBundle = view.trust === undefined || view.trust.bundle === bundle ? undefined : bundle;
  return { caBundle, serve: replacement(stored, view, now) };
}

/** What to serve and trust until the certificate has been written, which may be refused for any length of time. */
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
  // Another replica may still serve a certificate that is trusted at present.
  const others = [served.caBundle, trust.bundle].flatMap(parseCertificates).filter(isIssuedByLinger);
  const caBundle = formatCertificates(newest(validOf([...stored.bundle, ...others], now)));
  return { serve, caBundle: isTrusted(served.cert, caBundle, now) ? caBundle : undefined };
}

function issueDue(stored: SecretContents, { trust, serving }: ReplicaView, now: Date): Issue | undefined {
  const { authority, authorityFault, bundle, chain, names } = stored;
  const lost = servingFault(stored, bundle, now);
  if (authority === undefined || authorityFault !== undefined) {
    // The Secret was lost or damaged, but replicas still serve its certificates, and API servers still trust them.
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

/** Whether it has been trusted for so long that all API servers know it. */
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

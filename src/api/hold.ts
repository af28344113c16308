/** What the helper of Hold, the pod that carries it and the Hold Service agree on. */

/** The volume with the helper, and where it is mounted. */
export const HOLD_VOLUME = 'linger-hold';
export const HOLD_MOUNT = '/linger.dev';
export const HOLD_HELPER = `${HOLD_MOUNT}/hold`;
/** The Service, in Linger's own namespace, that helpers call. */
export const HOLD_SERVICE = 'linger-hold';

/** A new name for each helper: the kubelet caches immutable ConfigMaps by their names. */
export function holdConfigMap(digest: string): string {
  return `linger-hold-${digest}`;
}

/** The key of an architecture's helper (`amd64`, as a Node says) in that ConfigMap. */
export function holdKey(architecture: string): string {
  return `hold-${architecture}`;
}

/** 16 random bytes in base64url. */
const TOKEN = /^[\w-]{22}$/;
export function isHoldToken(text: string): boolean {
  return TOKEN.test(text);
}

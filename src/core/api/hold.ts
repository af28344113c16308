/** Names and formats that the helper of Hold, the pod that carries it and the Hold Service share. */

/** The volume with the helper, and where it is mounted. */
export const HOLD_VOLUME = 'linger-hold';
export const HOLD_MOUNT = '/linger.dev';
export const HOLD_HELPER = `${HOLD_MOUNT}/hold`;
/** The Service, in Linger's own namespace, that helpers call. */
export const HOLD_SERVICE = 'linger-hold';

/** Each version of the helper has a name of its own, because the kubelet caches immutable ConfigMaps by name. */
export function holdConfigMap(digest: string): string {
  return `linger-hold-${digest}`;
}

/** The key of an architecture's helper (`amd64`, as a Node says) in that ConfigMap. */
export function holdKey(architecture: string): string {
  return `hold-${architecture}`;
}

/**
 * A pod's volume with the helper. If it is a ConfigMap, it never prevents a pod from starting, even if the ConfigMap is
 * missing.
 */
export type HoldVolume =
  | {
      readonly name: typeof HOLD_VOLUME;
      readonly configMap: {
        readonly name: string;
        readonly defaultMode: number;
        readonly optional: true;
        readonly items: readonly { readonly key: string; readonly path: string }[];
      };
    }
  | { readonly name: typeof HOLD_VOLUME; readonly image: { readonly reference: string } };

/** Mode 0555: readable and executable for any user of the pod. */
const EXECUTABLE = 0o555;

export function holdVolume(digest: string, architecture: string): HoldVolume {
  const items = [{ key: holdKey(architecture), path: 'hold' }];
  const configMap = { name: holdConfigMap(digest), defaultMode: EXECUTABLE, optional: true, items } as const;
  return { name: HOLD_VOLUME, configMap };
}

/** The helper's arguments. Times are whole seconds since it has started. */
export interface HoldCall {
  /** The address of the Hold Service: `1.2.3.4:8445` or `[fd00::1]:8445`. */
  readonly address: string;
  readonly token: string;
  /** How long it waits without the Hold Service. */
  readonly wait: number;
  /** How long it waits at most. */
  readonly max: number;
}

/** A pod's token, and how to hash tokens: the API only ever sees the hash. Both come from outside of the pure core. */
export interface HoldToken {
  readonly text: string;
  /** SHA-256 in hex. */
  readonly hashOf: (token: string) => string;
}

/** 16 bytes in base64url: the seconds since the epoch when it was made (big endian, 32 bits), and 96 random bits. */
const TOKEN = /^[\w-]{22}$/;
export function isHoldToken(text: string): boolean {
  return TOKEN.test(text);
}

const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** When a token was made, in seconds since the epoch. */
export function holdTokenTime(token: string): number {
  // Six characters are 36 bits.
  const bits = [...token.slice(0, 6)].reduce((sum, char) => sum * 64 + BASE64URL.indexOf(char), 0);
  return Math.floor(bits / 16);
}

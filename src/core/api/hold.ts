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

/** A pod's volume with the helper. One from the ConfigMap keeps no pod from starting, even where the ConfigMap is missing. */
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
  /** The Hold Service's: `1.2.3.4:8445` or `[fd00::1]:8445`. */
  readonly address: string;
  readonly token: string;
  /** How long it waits without the Hold Service. */
  readonly wait: number;
  /** How long it waits at most. */
  readonly max: number;
}

/** A pod's token, and how tokens are hashed: the API only ever sees the hash. Both are made outside of the pure rooms. */
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

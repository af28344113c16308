/** PEM texts and a bearer token; whatever is absent is not used. */
export interface Credentials {
  /** Who may vouch for the server; absent: whom the machine trusts. */
  readonly ca?: string | undefined;
  readonly certificate?: string | undefined;
  readonly key?: string | undefined;
  readonly token?: string | undefined;
}

/** Where an API server is, and who we are to it. */
export interface KubeConnection {
  /** May have a path, as behind a gateway of many clusters. */
  readonly server: URL;
  /** The name that the server's certificate must have, where it is not the host of {@link server}. */
  readonly serverName?: string | undefined;
  /** The server's certificate is not verified. Only ever because somebody said so. */
  readonly insecure?: boolean | undefined;
  /** Whether lists are asked for compressed: it costs both sides processor time, and is worth it where the way is slow. */
  readonly compressed?: boolean | undefined;
  /** What people know it by, where it has a name: a kubeconfig's context. */
  readonly name?: string | undefined;
  /** The namespace that the credentials are at home in, where they say. */
  readonly namespace?: string | undefined;
  /**
   * Asked before every new connection, because files change under a process that runs: the kubelet writes a new token
   * at 80 % of its life (an hour), and a CA is rotated by adding the next one to its file.
   */
  readonly credentials: () => Promise<Credentials>;
  /** Told when the server did not accept what `credentials` gave (401), for whom something newer may be had. */
  readonly refused?: (used: Credentials) => void;
}

/** Codes of everything that can keep Linger from knowing its API server. */
export const CONNECTION_ERRORS = {
  NotInCluster: 'There are no in-cluster credentials here.',
  KubeconfigUnreadable: 'A kubeconfig, or a file that it names, cannot be read.',
  KubeconfigInvalid: 'A kubeconfig is not one, or names a context, cluster or user that it does not have.',
  KubeconfigUnsupported: 'A kubeconfig asks for something that Linger does not do, such as impersonation.',
  PluginFailed: 'The program that a kubeconfig gets its credentials from (exec) gave none.',
} as const satisfies Record<string, string>;

export type ConnectionErrorCode = keyof typeof CONNECTION_ERRORS;

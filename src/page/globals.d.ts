/** The files of docs/examples by name, inserted by the build. */
declare const EXAMPLES: {
  readonly manifests: Readonly<Record<string, string>>;
  readonly policies: Readonly<Record<string, string>>;
};

declare module '*.css';

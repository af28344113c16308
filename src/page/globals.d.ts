/** The files of docs/examples, put in by the build: name → text. */
declare const EXAMPLES: {
  readonly manifests: Readonly<Record<string, string>>;
  readonly policies: Readonly<Record<string, string>>;
};

declare module '*.css';

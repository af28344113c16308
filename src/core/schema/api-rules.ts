/**
 * What a CustomResourceDefinition says beyond types, put beside the refinement that says the same to files, so that
 * both refuse the same. Members of OpenAPI v3 as Kubernetes reads it; zod hands them on (`meta`) to what generates the
 * CRDs, and nothing else here reads them.
 */
export type ApiRules = {
  /** Rules in CEL, each true for what is valid. `self` is the value. */
  readonly 'x-kubernetes-validations': readonly { readonly rule: string; readonly message: string }[];
};

/** @param rule CEL that is true for what is valid @param message as zod's `error` */
export function apiRule(rule: string, message: string): ApiRules {
  return { 'x-kubernetes-validations': [{ rule, message }] };
}

/**
 * A regular expression as a CEL literal. It must mean the same to Go's RE2: no look-around and no back-references.
 * A raw literal cannot hold the quote that it ends with.
 */
export function celPattern({ source }: RegExp): string {
  if (source.includes("'")) throw new RangeError(`expected a pattern without ', got ${source}`);
  return `r'${source}'`;
}

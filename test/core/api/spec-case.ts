import type { JsonObject } from '../decision/sample-pod.ts';

/** A spec of one of our kinds, and what both validations say to it: that of files and that of the API server. */
export interface SpecCase {
  readonly name: string;
  readonly spec: JsonObject;
  /** What is wrong, as both put it; absent: the spec is taken. */
  readonly refused?: RegExp;
}

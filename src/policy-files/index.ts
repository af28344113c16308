export { followPolicyFiles } from './policy-files.ts';
export { problemsIn, readPolicies } from './read-policies.ts';

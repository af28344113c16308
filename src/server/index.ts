export { isUnspecified } from './addresses.ts';
export type { ServerOptions } from './options.ts';
export { type Listening, serve } from './serve.ts';
